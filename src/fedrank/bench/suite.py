"""Runs all benchmarks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedrank.bench.ballots import ballots
from fedrank.bench.clients import fixed_costs, rankings
from fedrank.bench.fuzz import fuzzing
from fedrank.bench.measure import Row, measure_limits
from fedrank.bench.training import rounds, steps
from fedrank.bench.votes import start_up, votes
from fedrank.engine.task import one_thread
from fedrank.processor import instruction_sets, processor_name

SECTIONS = ("step", "client", "round", "vote", "ballot", "start")
"""The default sections; "fuzz" takes long and runs only on request."""
ALL_SECTIONS = (*SECTIONS, "fuzz")


def run(data_dir: Path, *, only: Sequence[str] = SECTIONS, quick: bool = False) -> Iterator[Row]:
    """Measure the machine's limits, then run the requested sections."""
    with one_thread():
        limits = measure_limits()
    yield Row(f"{processor_name()} ({', '.join(instruction_sets())})", "cores", os.cpu_count() or 1, "")
    yield Row("limits of one core", "matrix multiplication", limits.flop_per_second / 1e9, "GFLOP/s")
    yield Row("limits of one core", "copying", limits.copied_bytes_per_second / 1e9, "GB/s")
    if "step" in only:
        yield from steps(limits, quick=quick)
    if "client" in only:
        yield from rankings(quick=quick)
        yield from fixed_costs()
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
