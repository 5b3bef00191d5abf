"""Compiled passes over the edges of a layer."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray


@numba.njit(cache=True)
def add_in_order(total: NDArray[np.int64], order: NDArray[np.int32], values: NDArray[np.int32]) -> None:
    """Add the i-th value to the i-th edge of `order`."""
    for i in range(order.size):
        total[order[i]] += values[i]


@numba.njit(cache=True)
def note_levels(ranking: NDArray[np.int32], borders: NDArray[np.int32], out: NDArray[Any]) -> None:
    """Write the level of each edge."""
    for level in range(borders.size - 1):
        for position in range(borders[level], borders[level + 1]):
            out[ranking[position]] = level


@numba.njit(cache=True, nogil=True)
def add_moments(
    displacements: NDArray[np.float64],
    base: NDArray[np.int32],
    middle: NDArray[np.float64],
    moments: NDArray[np.float64],
) -> None:
    """Add up for each ballot: squared displacements, points, squared points, products with the vote."""
    for i in range(len(displacements)):
        row = displacements[i]
        length = total = squares = products = 0.0
        for j in range(row.size):
            point = row[j] + base[j]
            length += row[j] * row[j]
            total += point
            squares += point * point
            products += point * middle[j]
        moments[i, 0] += length
        moments[i, 1] += total
        moments[i, 2] += squares
        moments[i, 3] += products
