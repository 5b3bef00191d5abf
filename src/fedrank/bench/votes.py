"""Tallies and votes, and how long the program takes to start."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np

from fedrank.bench.measure import Row, cpu_seconds, peak_bytes
from fedrank.nn import NETWORKS, supernetwork
from fedrank.rank import Form, Tally


def votes(*, quick: bool) -> Iterator[Row]:
    """Measure time and memory of tallies of more and more ballots."""
    layout = supernetwork(NETWORKS["lenet"](), seed=7).layout
    rng = np.random.default_rng(0)
    section = f"vote on {layout.size:,} edges"
    rankings = [np.concatenate([rng.permutation(layer.size) for layer in layout]) for _ in range(4)]
    form = Form(layout)
    ballots = [form.fill_in(ranking.astype(np.int32), client) for client, ranking in enumerate(rankings)]

    def tally(count: int) -> Tally:
        total = Tally(form)
        for number in range(count):
            total.voters.clear()  # so that few ballots can stand for many
            total.add(number % len(ballots), ballots[number % len(ballots)])
        return total

    tally(1)  # so that everything is compiled
    for count in (25, 100) if quick else (25, 250, 2500):
        begin = time.process_time()
        peak = peak_bytes(lambda count=count: tally(count))  # type: ignore[misc]
        seconds = time.process_time() - begin
        yield Row(section, f"tally of {count} ballots", seconds, "CPU s")
        yield Row(section, f"tally of {count} ballots, each", 1e3 * seconds / count, "ms")
        yield Row(section, f"tally of {count} ballots, peak memory", peak / 2**20, "MiB")
    counted = tally(25)
    yield Row(section, "vote", 1e3 * cpu_seconds(counted.vote, repeat=3), "ms")


def start_up() -> Iterator[Row]:
    """Measure how long a person waits before anything happens."""
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
