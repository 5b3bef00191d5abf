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
def round_clipped(updates: NDArray[np.float32], limit: float, factors: NDArray[np.float64]) -> None:
    """Clip all values, multiply each row by its factor and round it."""
    for i in range(len(updates)):
        row, factor = updates[i], factors[i]
        for j in range(row.size):
            value = min(max(np.float64(row[j]), -limit), limit)
            row[j] = np.float32(np.rint(value * factor))


@numba.njit(cache=True, nogil=True)
def moved_points(
    base: NDArray[np.floating],
    sums: NDArray[np.float32],
    units: NDArray[np.intp],
    scale: float,
    grid: float,
    points: NDArray[np.int64],
) -> None:
    """Write the points of each coordinate, moved by the scaled sum of some rows and rounded to a grid."""
    total = np.empty(WIDTH, np.float32)
    for begin in range(0, base.size, WIDTH):
        width = min(WIDTH, base.size - begin)
        total[:width] = 0
        for unit in units:
            row = sums[unit, begin : begin + width]
            for i in range(width):
                total[i] += row[i]
        for i in range(width):
            points[begin + i] = np.int64(np.rint((base[begin + i] + np.float64(total[i]) * scale) * grid))
