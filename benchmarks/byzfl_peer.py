"""Fedrank's aggregation rules against ByzFL's: same inputs, same run, one thread.

    pip install --no-deps byzfl==0.0.11
    python benchmarks/byzfl_peer.py

ByzFL is no dependency of fedrank. Of what it needs itself, torchvision and the plotting libraries are
not used by its rules, so empty modules take their places where they are not installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from fedrank.aggregators import Aggregator
from fedrank.bench.measure import cpu_seconds
from fedrank.processor import processor_name

UNUSED = (
    *("torchvision", "torchvision.datasets", "torchvision.transforms"),
    *("matplotlib", "matplotlib.pyplot", "seaborn"),
)


class _Empty(types.ModuleType):
    """A module in which every name is there, can be called, and does nothing."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Empty(f"{self.__name__}.{name}")

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self


def _is_installed(name: str) -> bool:
    return name in sys.modules or importlib.util.find_spec(name) is not None


def load_byzfl() -> Any:
    """Return ByzFL; ImportError where it is not installed."""
    if importlib.util.find_spec("byzfl") is None:
        raise ImportError("ByzFL is not installed: pip install --no-deps byzfl==0.0.11")
    missing = [name for name in ("torchvision", "matplotlib", "seaborn") if not _is_installed(name)]
    for name in (name for name in UNUSED if name.partition(".")[0] in missing):
        sys.modules[name] = _Empty(name)
    return importlib.import_module("byzfl")


def peers(byzfl: Any, m: int) -> dict[str, Callable[[Any], Any]]:
    """Return ByzFL's rules by the names that they have in fedrank, where both mean the same.

    ByzFL's Krum looks at n - f - 1 neighbors, Blanchard's at n - m - 2: so f is m + 1. Its geometric median
    stops after three steps; here it goes on for as long as ours does in most cases.
    """
    mix, pairs = byzfl.NNM(m), byzfl.Bucketing(2)
    return {
        "mean": byzfl.Average(),
        "median": byzfl.Median(),
        "trimmed-mean": byzfl.TrMean(m),
        "geometric-median": byzfl.GeometricMedian(nu=1e-6, T=30),
        "krum": byzfl.Krum(m + 1),
        "nnm+trimmed-mean": lambda vectors: byzfl.TrMean(m)(mix(vectors)),
        "nnm+median": lambda vectors: byzfl.Median()(mix(vectors)),
        "bucketing+median": lambda vectors: byzfl.Median()(pairs(vectors)),
    }


def main() -> None:
    byzfl = load_byzfl()
    torch.set_num_threads(1)
    print(f"{processor_name()}; CPU milliseconds; ratio: ByzFL's time by ours, so more than 1 is faster\n")
    print("| rule | n | coordinates | fedrank | ByzFL, torch | ratio | ByzFL, NumPy | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for n, size in ((20, 500_000), (100, 100_000)):
        m = n // 5
        updates = np.random.default_rng(0).normal(size=(n, size)).astype(np.float32)
        tensor = torch.from_numpy(updates)
        for name, theirs in peers(byzfl, m).items():
            rule, rng = Aggregator(name), np.random.default_rng(1)
            calls = partial(rule, updates, m, rng), partial(theirs, tensor), partial(theirs, updates)
            ours, by_torch, by_numpy = (1000 * cpu_seconds(call, repeat=1) for call in calls)
            ratios = by_torch / ours, by_numpy / ours
            print(
                f"| `{name}` | {n} | {size:,} | {ours:.1f} | {by_torch:.1f} | {ratios[0]:.2f} "
                f"| {by_numpy:.1f} | {ratios[1]:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
