"""Rice codes: sorted positions as gaps, near the entropy if they are spread evenly (Rice, 1979)."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

WIDEST = 30
"""The largest number of bits of a remainder."""


@numba.njit(cache=True)
def rice_encode(positions: NDArray[np.int32], width: int) -> NDArray[np.uint8]:
    """Return the gaps between positions: each quotient by 2^width in ones and a zero, then the remainder."""
    bits = 0
    last = -1
    for position in positions:
        bits += ((position - last - 1) >> width) + 1 + width
        last = position
    out = np.zeros((bits + 7) // 8, np.uint8)
    at = 0
    last = -1
    for position in positions:
        gap = position - last - 1
        last = position
        for _ in range(gap >> width):
            out[at >> 3] |= np.uint8(1 << (at & 7))
            at += 1
        at += 1
        for bit in range(width):
            if gap >> bit & 1:
                out[at >> 3] |= np.uint8(1 << (at & 7))
            at += 1
    return out


@numba.njit(cache=True)
def rice_decode(data: NDArray[np.uint8], width: int, size: int, positions: NDArray[np.int32]) -> bool:
    """Write the positions that `data` tells, all below `size`; return whether it is exactly that."""
    end = 8 * data.size
    at = 0
    last = np.int64(-1)
    for number in range(positions.size):
        quotient = np.int64(0)
        while at < end and data[at >> 3] >> (at & 7) & 1:
            quotient += 1
            at += 1
        at += 1
        if at + width > end:
            return False
        gap = quotient << width
        for bit in range(width):
            gap |= np.int64(data[at >> 3] >> (at & 7) & 1) << bit
            at += 1
        last += gap + 1
        if last >= size:
            return False
        positions[number] = last
    if end - at >= 8:
        return False
    while at < end:
        if data[at >> 3] >> (at & 7) & 1:
            return False
        at += 1
    return True


def best_width(count: int, size: int) -> int:
    """Return the width of remainders that suits so many positions among `size`.

    >>> best_width(10, 1000), best_width(0, 1000)
    (6, 0)
    """
    if count == 0:
        return 0
    return min(WIDEST, max(0, int(0.6931 * size / count).bit_length() - 1))
