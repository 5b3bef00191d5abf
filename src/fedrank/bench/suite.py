"""Runs all benchmarks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from fedrank.bench.ballots import ballots
from fedrank.bench.fuzz import fuzzing
from fedrank.bench.measure import Row, measure_limits
from fedrank.bench.training import rounds, steps
from fedrank.bench.votes import start_up, votes
from fedrank.engine.task import one_thread

SECTIONS = ("step", "round", "vote", "ballot", "start")
"""The default sections; "fuzz" takes long and runs only on request."""
ALL_SECTIONS = (*SECTIONS, "fuzz")


def run(data_dir: Path, *, only: Sequence[str] = SECTIONS, quick: bool = False) -> Iterator[Row]:
    """Measure the machine's limits, then run the requested sections."""
    with one_thread():
        limits = measure_limits()
    yield Row("limits of one core", "matrix multiplication", limits.flop_per_second / 1e9, "GFLOP/s")
    yield Row("limits of one core", "copying", limits.copied_bytes_per_second / 1e9, "GB/s")
    if "step" in only:
        yield from steps(limits, quick=quick)
    if "round" in only:
        yield from rounds(limits, data_dir, quick=quick)
    if "vote" in only:
        yield from votes(quick=quick)
    if "ballot" in only:
        yield from ballots(data_dir, quick=quick)
    if "fuzz" in only:
        yield from fuzzing(quick=quick)
    if "start" in only:
        yield from start_up()
