"""A dozen models as people write them, trained by FRL and FedAvg: where the default settings come from.

    python benchmarks/own_models.py --out results.json --seeds 7 8 9     # the defaults
    python benchmarks/own_models.py --out results.json --fedavg
    python benchmarks/own_models.py --out results.json --nets "MLP 64-256-10" --set keep=0.5 --set epochs=2
    python benchmarks/own_models.py --out results.json --table           # what the file has, as Markdown

Every run adds a line to the file; what it already has is skipped.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits
from torch import nn

import fedrank
from fedrank.data import load

RATES = (0.4, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005)
"""What FedAvg is tried with; the best one counts."""


def mlp(*widths: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten()]
    for fan_in, fan_out in itertools.pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def cnn(*channels: int, side: int = 8) -> nn.Module:
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise((1, *channels)):
        layers += [nn.Conv2d(fan_in, fan_out, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        side //= 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels[-1] * side * side, 10))


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(images + self.body(images))


def resnet(channels: int, blocks: int, *, flat: bool = False) -> nn.Module:
    end: list[nn.Module] = (
        [nn.MaxPool2d(2), nn.Flatten(), nn.Linear(channels * 16, 10)]
        if flat
        else [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]
    )
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        *(Block(channels) for _ in range(blocks)),
        *end,
    )


def conv1d(*channels: int, flat: bool = True) -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten(), nn.Unflatten(1, (1, 64))]
    for fan_in, fan_out in itertools.pairwise((1, *channels)):
        layers += [nn.Conv1d(fan_in, fan_out, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2)]
    if not flat:
        layers.append(nn.AdaptiveAvgPool1d(1))
    length = 64 // 2 ** len(channels) if flat else 1
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels[-1] * length, 10))


def depthwise(channels: int, *, flat: bool = True) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(1, channels, 3, padding=1), nn.ReLU()]
    for _ in range(2):
        layers += [
            nn.Conv2d(channels, channels, 3, padding=1, groups=channels),
            nn.Conv2d(channels, channels, 1),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
        ]
    layers.append(nn.MaxPool2d(2) if flat else nn.AdaptiveAvgPool2d(1))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * (16 if flat else 1), 10))


def table(*widths: int) -> nn.Module:
    return mlp(30, *widths, 2)


MODELS: dict[str, tuple[str, Callable[[], nn.Module]]] = {
    "MLP 64-56-10": ("digits", lambda: mlp(64, 56, 10)),
    "MLP 64-256-10": ("digits", lambda: mlp(64, 256, 10)),
    "MLP 64-256-256-10": ("digits", lambda: mlp(64, 256, 256, 10)),
    "MLP 64-128x5-10": ("digits", lambda: mlp(64, *[128] * 5, 10)),
    "MLP 64-64x9-10": ("digits", lambda: mlp(64, *[64] * 9, 10)),
    "MLP 64-1024-1024-10": ("digits", lambda: mlp(64, 1024, 1024, 10)),
    "CNN 16-32": ("digits", lambda: cnn(16, 32)),
    "CNN 64-128-256": ("digits", lambda: cnn(64, 128, 256)),
    "ResNet 32x2": ("digits", lambda: resnet(32, 2)),
    "ResNet 64x3": ("digits", lambda: resnet(64, 3)),
    "ResNet 32x2, flattened": ("digits", lambda: resnet(32, 2, flat=True)),
    "Conv1d 32-64": ("digits", lambda: conv1d(32, 64)),
    "Conv1d 64-128": ("digits", lambda: conv1d(64, 128)),
    "Conv1d 32-64-128, pooled": ("digits", lambda: conv1d(32, 64, 128, flat=False)),
    "depthwise 64": ("digits", lambda: depthwise(64)),
    "depthwise 128, pooled": ("digits", lambda: depthwise(128, flat=False)),
    "table 128-128": ("breast cancer", lambda: table(128, 128)),
    "table 1024-512": ("breast cancer", lambda: table(1024, 512)),
    "MLP 784-256-256-10": ("mnist", lambda: mlp(784, 256, 256, 10)),
    "CNN 32-64, MNIST": ("mnist", lambda: cnn(32, 64, side=28)),
}


def federation(name: str, seed: int, data_dir: Path | None) -> fedrank.Federation:
    """Return the clients: 40 of the digits or of 6,000 images of MNIST, 20 of the table."""
    match name:
        case "digits":
            digits = load_digits()
            inputs, labels, clients = digits.images[:, None] / 16, digits.target, 40
        case "mnist":
            data = load("mnist", data_dir or Path()).dataset
            inputs, labels, clients = np.asarray(data.inputs[:6000], np.float32) / 255, data.labels[:6000], 40
        case _:
            patients = load_breast_cancer()
            inputs, labels, clients = patients.data, patients.target, 20
    return fedrank.split(inputs, labels, clients=clients, by=fedrank.Dirichlet(1.0), seed=seed)


def build(model: nn.Module, seed: int, settings: dict[str, Any]) -> fedrank.FRL:
    """Return FRL with some settings beside the defaults."""
    settings = dict(settings)
    network = {key: settings.pop(key) for key in ("keep", "weights") if key in settings}
    own = {key: settings.pop(key) for key in ("vote",) if key in settings}
    if settings:
        own["local"] = fedrank.LocalTraining(**settings)
    return fedrank.FRL(fedrank.supernetwork(model, seed=seed, fix=True, **network), **own)


FORMER = {"vote": "borda", "epochs": 2, "keep": 0.5, "balanced": False}


def read(path: Path) -> list[dict[str, Any]]:
    """Return the results of earlier runs."""
    rows: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return rows


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write results as JSON, a line each."""
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return a Markdown table: FRL by seed, FedAvg at its best rate, and FRL at the former defaults."""
    own = {"net", "seed", "method", "rounds", "result"}
    headings = ("model", "edges", "FRL, seed 7", "seed 8", "seed 9", "FedAvg", "at rate", "FRL before")
    lines = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
    for name in MODELS:
        mine = [row for row in rows if row["net"] == name]
        now = {row["seed"]: row["result"] for row in mine if row["method"] == "FRL" and row.keys() == own}
        before = [row["result"] for row in mine if row.items() >= FORMER.items()]
        averaged = [(row["result"]["accuracy"], row["rate"]) for row in mine if row["method"] == "FedAvg"]
        best, rate = max(averaged, default=(None, None))
        cells = [now[seed]["accuracy"] if seed in now else None for seed in (7, 8, 9)]
        edges = next((result["edges"] for result in (*now.values(), *before)), 0)
        shown = [_percent(value) for value in (*cells, best)]
        former = _percent(before[0]["accuracy"] if before else None)
        lines.append(" | ".join((f"| {name}", f"{edges:,}", *shown, f"{rate or ''}", f"{former} |")))
    return "\n".join(lines)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"


def runs(args: argparse.Namespace) -> Iterator[tuple[dict[str, Any], Callable[[], Any], str]]:
    """List the runs: what identifies each, its method, and its data."""
    settings = dict(args.set)
    for name in args.nets:
        data, make = MODELS[name]
        for seed in args.seeds:
            torch.manual_seed(seed)
            model = make()
            if args.fedavg:
                for rate in args.rates:
                    local = fedrank.LocalTraining(**{"balanced": False, **settings, "learning_rate": rate})
                    key = {"net": name, "seed": seed, "method": "FedAvg", "rate": rate, **settings}
                    yield key, partial(fedrank.FedAvg, model, local, seed=seed), data
            else:
                key = {"net": name, "seed": seed, "method": "FRL", **settings}
                yield key, partial(build, model, seed, settings), data


def main() -> None:
    def number(text: str) -> tuple[str, Any]:
        key, _, value = text.partition("=")
        try:
            return key, json.loads(value)
        except ValueError:
            return key, value

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a JSON file")
    parser.add_argument("--nets", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[7])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--set", action="append", default=[], type=number, help="such as keep=0.8")
    parser.add_argument("--fedavg", action="store_true", help="FedAvg at several rates instead of FRL")
    parser.add_argument("--rates", nargs="*", type=float, default=RATES, help="of FedAvg")
    parser.add_argument("--data-dir", type=Path, help="where MNIST is")
    parser.add_argument("--table", action="store_true", help="run nothing; print a table of the file")
    args = parser.parse_args()
    rows = read(args.out)
    if args.table:
        print(markdown(rows))
        return
    known = [{key: value for key, value in row.items() if key != "result"} for row in rows]
    warnings.simplefilter("ignore", fedrank.FedrankWarning)
    for key, method, data in runs(args):
        key |= {"rounds": args.rounds}
        if key in known:
            continue
        begin = time.process_time()
        clients = federation(data, key["seed"], args.data_dir)
        often = max(args.rounds // 6, 1)
        try:
            run = fedrank.train(
                method(),
                clients,
                rounds=args.rounds,
                clients_per_round=10,
                evaluate_every=often,
                workers=1,
                progress=False,
            )
            curve = [round(done.evaluation.test_accuracy, 4) for done in run.history if done.evaluation]
            result = {"accuracy": curve[-1], "curve": curve, "edges": run.method.network.layout.size}
        except fedrank.FedrankError as error:
            result = {"accuracy": 0.0, "problem": str(error)}
        result["seconds"] = round(time.process_time() - begin, 1)
        rows.append({**key, "result": result})
        write(args.out, rows)
        print({**key, **result}, flush=True)


if __name__ == "__main__":
    main()
