"""Compiled passes over updates. Sums are taken in double precision, one value after the other."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

WIDTH = 2**15
"""Columns whose sums stay in the caches."""


@numba.njit(cache=True)
def column_means(updates: NDArray[np.floating], means: NDArray[np.floating]) -> None:
    """Write down the mean of each column.

    Four rows at a time, so that the sums are read and written a quarter as often. Rows are cut one by
    one, so that the compiler knows that they are not strided.
    """
    n, size = updates.shape
    sums = np.empty(WIDTH)
    for begin in range(0, size, WIDTH):
        width = min(WIDTH, size - begin)
        some = slice(begin, begin + width)
        sums[:width] = 0.0
        row = 0
        while row + 4 <= n:
            a, b = updates[row, some], updates[row + 1, some]
            c, d = updates[row + 2, some], updates[row + 3, some]
            for i in range(width):
                sums[i] = (((sums[i] + a[i]) + b[i]) + c[i]) + d[i]
            row += 4
        while row < n:
            last = updates[row, some]
            for i in range(width):
                sums[i] += last[i]
            row += 1
        for i in range(width):
            means[begin + i] = sums[i] / n


@numba.njit(cache=True)
def row_means(values: NDArray[np.floating], first: int, last: int) -> NDArray[np.float64]:
    """Return the mean of each row from column `first` up to, not including, column `last`."""
    means = np.empty(len(values))
    for i in range(len(values)):
        total = 0.0
        for j in range(first, last):
            total += values[i, j]
        means[i] = total / (last - first)
    return means


@numba.njit(cache=True, nogil=True)
def add_squares(updates: NDArray[np.floating], limit: float, squares: NDArray[np.float64]) -> None:
    """Add the squared length of each row, with values clipped."""
    for i in range(len(updates)):
        row = updates[i]
        total = 0.0
        for j in range(row.size):
            value = min(max(np.float64(row[j]), -limit), limit)
            total += value * value
        squares[i] += total


@numba.njit(cache=True, nogil=True)
def add_clipped(
    updates: NDArray[np.floating],
    limit: float,
    factors: NDArray[np.float64],
    unit_of: NDArray[np.intp],
    sums: NDArray[np.float32],
) -> None:
    """Add each row, clipped, multiplied by its factor and rounded, to the sum of its unit."""
    for i in range(len(updates)):
        row, total, factor = updates[i], sums[unit_of[i]], factors[i]
        for j in range(row.size):
            value = min(max(np.float64(row[j]), -limit), limit)
            total[j] += np.float32(np.rint(value * factor))
