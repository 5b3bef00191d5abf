"""Compiled passes over updates."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray


@numba.njit(cache=True)
def column_sums(updates: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the sum of each column in double precision, rows added one after the other.

    Eight rows at a time, so that the sums are read and written an eighth as often.
    """
    n, size = updates.shape
    sums = np.zeros(size)
    row = 0
    while row + 8 <= n:
        a, b, c, d = updates[row], updates[row + 1], updates[row + 2], updates[row + 3]
        e, f, g, h = updates[row + 4], updates[row + 5], updates[row + 6], updates[row + 7]
        for i in range(size):
            sums[i] = (((((((sums[i] + a[i]) + b[i]) + c[i]) + d[i]) + e[i]) + f[i]) + g[i]) + h[i]
        row += 8
    while row < n:
        last = updates[row]
        for i in range(size):
            sums[i] += last[i]
        row += 1
    return sums
