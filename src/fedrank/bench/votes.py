"""Benchmarks of tallies, votes and start-up time."""

from __future__ import annotations

import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator

import numpy as np

from fedrank.aggregators import Aggregator
from fedrank.ballots import BallotCodec, BallotStore, Tally
from fedrank.bench.measure import Row, cpu_seconds, peak_bytes
from fedrank.methods.votes import robust_vote
from fedrank.nn import NETWORKS, supernetwork
from fedrank.rank import Layout, Ranking

MEMORY = 2**30


def votes(*, quick: bool) -> Iterator[Row]:
    """Measure time and memory of tallies with growing numbers of ballots."""
    layout = supernetwork(NETWORKS["lenet"](), seed=7).layout
    rng = np.random.default_rng(0)
    section = f"vote on {layout.size:,} edges"
    rankings = [np.concatenate([rng.permutation(layer.size) for layer in layout]) for _ in range(4)]
    codec = BallotCodec(layout)
    ballots = [codec.encode(ranking.astype(np.int32), client) for client, ranking in enumerate(rankings)]

    def tally(count: int) -> Tally:
        total = Tally(codec)
        for number in range(count):
            total.voters.clear()  # so that a few ballots can stand in for many
            total.add(number % len(ballots), ballots[number % len(ballots)])
        return total

    tally(1)  # warm-up: compiles the kernels
    for count in (25, 100) if quick else (25, 250, 2500):
        begin = time.process_time()
        peak = peak_bytes(lambda count=count: tally(count))  # type: ignore[misc]
        seconds = time.process_time() - begin
        yield Row(section, f"tally of {count} ballots", seconds, "CPU s")
        yield Row(section, f"tally of {count} ballots, each", 1e3 * seconds / count, "ms")
        yield Row(section, f"tally of {count} ballots, peak memory", peak / 2**20, "MiB")
    counted = tally(25)
    yield Row(section, "vote", 1e3 * cpu_seconds(counted.vote, repeat=3), "ms")
    each = cpu_seconds(lambda: tally(1), repeat=3)
    for count in (15,) if quick else (25, 250, 1000):
        yield from robust_votes(section, layout, count, each)


def robust_votes(section: str, layout: Layout, count: int, tallied: float) -> Iterator[Row]:
    """Measure votes that need all ballots at once, relative to a tally plus all inner products."""
    rng = np.random.default_rng(1)
    reference = np.concatenate([rng.permutation(layer.size) for layer in layout]).astype(np.int32)
    codec = BallotCodec(layout, reference=reference)
    columns = 2**12
    block = rng.standard_normal((count, columns))
    products = cpu_seconds(lambda: block @ block.T, repeat=3) * layout.size / columns
    limit = count * tallied + products
    yield Row(section, f"limit: tally and inner products of {count}", limit, "CPU s", 1.0)

    def stored() -> tuple[BallotStore, float]:
        store, seconds = BallotStore(codec, memory=MEMORY // 2), 0.0
        for client in range(count):
            ballot = codec.encode(_turned(reference, layout, client), client)
            begin = time.process_time()
            store.add(client, ballot)
            seconds += time.process_time() - begin
        return store, seconds

    for name in ("screened-mean", "nnm+trimmed-mean"):
        tracemalloc.start()
        store, seconds = stored()
        begin = time.process_time()
        robust_vote(store, Aggregator(name), int(0.4 * count), 1)
        seconds += time.process_time() - begin
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        yield Row(section, f"{name} of {count} ballots", seconds, "CPU s", seconds / limit)
        yield Row(section, f"{name} of {count} ballots, peak memory", peak / 2**20, "MiB")


def _turned(ranking: Ranking, layout: Layout, by: int) -> Ranking:
    """Return another ranking cheaply, by rotating every layer."""
    return np.concatenate([np.roll(ranking[layer.edges], 997 * by) for layer in layout])


def start_up() -> Iterator[Row]:
    """Measure the start-up time that users notice."""
    programs = {
        "import fedrank": "import fedrank",
        "fedrank --help": "import sys; sys.argv[1:] = ['--help']; from fedrank.cli import main; main()",
        "import what training needs": "import fedrank; fedrank.train, fedrank.FRL",
    }
    for name, program in programs.items():
        best = float("inf")
        for _ in range(3):
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], stdout=subprocess.DEVNULL, check=True)
            best = min(best, time.perf_counter() - begin)
        yield Row("start-up", name, best, "wall s")
