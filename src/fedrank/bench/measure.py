"""Timers, memory measurement and the limits of the machine."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Row:
    """One measurement; `of_limit` is its ratio to the machine's limit."""

    section: str
    name: str
    value: float
    unit: str
    of_limit: float | None = None


@dataclass(frozen=True)
class Limits:
    """The peak performance of one core of this machine."""

    flop_per_second: float
    copied_bytes_per_second: float


def cpu_seconds(function: Callable[[], Any], *, repeat: int, times: int = 3) -> float:
    """Return the CPU time of one call: the best of `times` series of `repeat` calls."""
    function()
    best = float("inf")
    for _ in range(times):
        begin = time.process_time()
        for _ in range(repeat):
            function()
        best = min(best, (time.process_time() - begin) / repeat)
    return best


def peak_bytes(function: Callable[[], Any]) -> int:
    """Return the peak memory that a call allocates."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def measure_limits() -> Limits:
    """Measure matrix multiplication and copying on one thread."""
    size = 1024
    a, b, product = (torch.rand(size, size) for _ in range(3))
    multiplied = cpu_seconds(lambda: torch.mm(a, b, out=product), repeat=20, times=5)
    source, target = torch.rand(16 * 2**20), torch.rand(16 * 2**20)
    copied = cpu_seconds(lambda: target.copy_(source), repeat=5, times=5)
    return Limits(2 * size**3 / multiplied, source.nbytes / copied)
