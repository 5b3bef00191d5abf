"""Ballots: their size on real rankings, and the speed of encoding, checking and counting."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrank.ballots import BallotCodec, BallotFormat
from fedrank.ballots.levels import HALF, level_borders
from fedrank.ballots.traffic import least_bits
from fedrank.bench.measure import Row, cpu_seconds
from fedrank.bench.training import mnist
from fedrank.engine import local_engine
from fedrank.experiment.rounds import select
from fedrank.methods import FRL, Method
from fedrank.nn import NETWORKS, LocalTraining, supernetwork
from fedrank.rank import Layout, Ranking

LEVELS = (256, 64, 16, 4, 2)
SPARSE = ("top=50%", "top=10%")


def ballots(data_dir: Path, *, quick: bool) -> Iterator[Row]:
    """Train, and measure one client's ballot and the broadcast of every round."""
    what, federation = mnist(data_dir)
    frl: Method[Any] = FRL(
        supernetwork(NETWORKS["lenet"](), seed=7, keep=0.5),
        LocalTraining(epochs=2, balanced=False),
        vote="screened-mean",
    )
    layout, rounds, clients_per_round = frl.network.layout, 2 if quick else 20, 3 if quick else 25
    seen: list[tuple[Ranking, Ranking]] = []
    state = frl.init()
    with local_engine(frl, federation, workers=2) as engine:
        while state.round < rounds:
            one, *others = select(federation.voters, clients_per_round, 7, state.round)
            message = frl.broadcast(state)
            collected = engine.collect(message, others, [one])
            ranking = collected.learned[one].update
            seen.append((state.ranking, ranking))
            collected.add(one, frl.encode(frl.receive(message), ranking, one))
            state = frl.aggregate(state, collected.messages)
    section = f"bits per edge of a ballot, {what}, mean of rounds 1 to {rounds}"
    yield from _sizes(section, layout, seen)
    first, *later = (broadcast for broadcast, _ in seen)
    section = f"bits per edge of a broadcast, {what}, mean of rounds 2 to {rounds}"
    yield from _sizes(section, layout, [(first, broadcast) for broadcast in later])
    yield from _speeds(layout, *seen[-1])


def _sizes(section: str, layout: Layout, pairs: list[tuple[Ranking, Ranking]]) -> Iterator[Row]:
    """Compare coded ballots with an ideal coder that knows each edge's level in the reference."""
    lowest = least_bits(layout) / layout.size
    yield Row(section, "log2(n!), the ballot's lower bound", lowest, "bits", 1.0)
    exact = _mean_bits(layout, BallotFormat.parse("exact coded"), pairs)
    yield Row(section, "exact coded, against log2(n!)", exact, "bits", exact / lowest)
    for count in LEVELS:
        ideal = float(np.mean([_conditional_entropy(layout, count, *pair) for pair in pairs]))
        yield Row(section, f"levels={count}: ideal, level by level", ideal, "bits", 1.0)
        for words in (f"levels={count} coded", f"levels={count} dithered coded"):
            bits = _mean_bits(layout, BallotFormat.parse(words), pairs)
            yield Row(section, words, bits, "bits", bits / ideal)
    for share in SPARSE:
        yield Row(
            section, f"{share} coded", _mean_bits(layout, BallotFormat.parse(f"{share} coded"), pairs), "bits"
        )


def _mean_bits(layout: Layout, ballot_format: BallotFormat, pairs: list[tuple[Ranking, Ranking]]) -> float:
    lengths = [
        len(BallotCodec(layout, ballot_format, reference).encode(ranking)) for reference, ranking in pairs
    ]
    return 8 * float(np.mean(lengths)) / layout.size


def _conditional_entropy(layout: Layout, count: int, reference: Ranking, ranking: Ranking) -> float:
    """Return the empirical entropy, in bits per edge, of the level in `ranking` given that in `reference`."""
    bits = 0.0
    for layer in layout:
        levels = min(count, layer.size)
        theirs, known = (_levels(r[layer.edges], levels) for r in (ranking, reference))
        together = np.bincount(known.astype(np.int64) * levels + theirs, minlength=levels**2)
        table = together.reshape(levels, levels)
        shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
        bits -= float((table * np.log2(np.where(shares > 0, shares, 1))).sum())
    return bits / layout.size


def _levels(ranking: Ranking, count: int) -> NDArray[np.int64]:
    borders = level_borders(ranking.size, count, HALF)
    levels = np.empty(ranking.size, np.int64)
    levels[ranking] = np.repeat(np.arange(count), np.diff(borders))
    return levels


def _speeds(layout: Layout, reference: Ranking, ranking: Ranking) -> Iterator[Row]:
    section = f"ballots of {layout.size:,} edges, one core"
    numbers, ones = np.zeros(layout.size, np.int64), np.ones(layout.size, np.int64)
    order = np.random.default_rng(0).permutation(layout.size)

    def scatter() -> None:
        numbers[order] = ones

    added = cpu_seconds(lambda: np.add(numbers, ones, out=numbers), repeat=5)
    unit = added + cpu_seconds(scatter, repeat=5)
    yield Row(section, "NumPy: adding two arrays, one scatter", 1e3 * unit, "ms", 1.0)
    total: NDArray[Any] = np.zeros(layout.size, np.int64)
    shapes = ("exact", *SPARSE, *(f"levels={count}" for count in LEVELS))
    for coding in ("packed", "coded"):
        for shape in shapes:
            codec = BallotCodec(layout, BallotFormat.parse(f"{shape} {coding}"), reference)
            ballot = codec.encode(ranking)
            counting = cpu_seconds(lambda f=codec, p=ballot: f.add_to(p, 0, total), repeat=3)  # type: ignore[misc]
            writing = cpu_seconds(lambda f=codec: f.encode(ranking), repeat=3)  # type: ignore[misc]
            yield Row(section, f"{shape} {coding}: check and count", 1e3 * counting, "ms", counting / unit)
            yield Row(section, f"{shape} {coding}: write", 1e3 * writing, "ms", writing / unit)
            yield Row(section, f"{shape} {coding}: write by count", writing / counting, "")
