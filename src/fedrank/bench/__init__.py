"""Benchmarks of speed and memory, relative to the limits of the machine.

No benchmark fails on a slow machine. Times are CPU seconds unless a name says otherwise.
"""

from fedrank.bench.measure import Row
from fedrank.bench.suite import ALL_SECTIONS, SECTIONS, run

__all__ = ["ALL_SECTIONS", "SECTIONS", "Row", "run"]
