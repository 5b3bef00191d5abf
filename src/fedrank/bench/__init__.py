"""Measurements of speed and memory, beside the limits of the machine they run on.

Nothing here fails because a machine is slow. Times are CPU seconds unless a name says otherwise.
"""

from fedrank.bench.measure import Row
from fedrank.bench.suite import ALL_SECTIONS, SECTIONS, run

__all__ = ["ALL_SECTIONS", "SECTIONS", "Row", "run"]
