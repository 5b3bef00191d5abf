"""Benchmarks of what a client and its ballot cost beside training: ranking, encoding, counting."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from fedrank.ballots import BallotCodec, BallotStore, Tally
from fedrank.bench.measure import Row, cpu_seconds
from fedrank.nn import NETWORKS, supernetwork
from fedrank.rank.ranking import argsort_scores

SIZES = (10**4, 10**5, 10**6, 10**7)


def rankings(*, quick: bool) -> Iterator[Row]:
    """Measure ranking by size, beside NumPy's fastest sort that gives the same order."""
    section = "ranking of random scores, beside NumPy"
    for size in SIZES[:-1] if quick else SIZES:
        scores = np.random.default_rng(size).normal(size=size).astype(np.float32)
        repeat = max(1, 10**6 // size)
        ours = cpu_seconds(lambda s=scores: argsort_scores(s), repeat=repeat)  # type: ignore[misc]
        theirs = cpu_seconds(lambda s=scores: _sorted_words(s), repeat=repeat)  # type: ignore[misc]
        yield Row(section, f"NumPy, {size:,} edges", 1e3 * theirs, "ms", 1.0)
        yield Row(section, f"radix sort, {size:,} edges", 1e3 * ours, "ms", ours / theirs)


def _sorted_words(scores: np.ndarray) -> np.ndarray:
    """Return the order that sorts scores: NumPy's sort of (score, edge) packed into 64 bits."""
    bits = scores.view(np.uint32)
    ordered = bits ^ np.where(bits >> 31, np.uint32(0xFFFFFFFF), np.uint32(0x80000000))
    words = ordered.astype(np.uint64) << np.uint64(32) | np.arange(scores.size, dtype=np.uint64)
    words.sort()
    return words.astype(np.uint32)


def fixed_costs() -> Iterator[Row]:
    """Measure what every client costs however few samples it has, on LeNet."""
    network = supernetwork(NETWORKS["lenet"](), seed=7)
    reference, scores = network.initial_ranking, network.initial_scores
    codec = BallotCodec(network.layout, reference=reference)
    ballot = codec.encode(network.rank(-scores), 0)
    section = f"fixed costs of a client, {network.layout.size:,} edges"

    def tallied() -> None:
        Tally(codec).add(0, ballot)

    def kept() -> None:
        BallotStore(codec).add(0, ballot)

    parts: dict[str, Callable[[], object]] = {
        "assign the initial scores": lambda: network.assign_scores(reference),
        "rank": lambda: network.rank(scores),
        "encode the ballot": lambda: codec.encode(reference, 0),
        "check and count the ballot": tallied,
        "check and keep the ballot": kept,
    }
    for name, part in parts.items():
        yield Row(section, name, 1e3 * cpu_seconds(part, repeat=5), "ms")
