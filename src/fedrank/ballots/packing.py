"""Packed ballots: numbers of fixed width, one after the other, lowest bit first.

Each `count_...` adds the points of a layer to the tally while it checks them, so nothing is copied. It
returns how many numbers it has counted and a fault, 0 if there is none. What a faulty layer has added
is taken back by calling it again with `sign` -1 and `stop` at that number.
"""

from __future__ import annotations

import enum

import numba
import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


class Fault(enum.IntEnum):
    """Why a layer of a ballot is not legal."""

    NONE = 0
    OUT_OF_RANGE = 1
    OVERFULL = 2
    PADDING = 3
    TOO_SHORT = 4
    TOO_LONG = 5


_OUT_OF_RANGE, _OVERFULL, _PADDING = (
    int(fault) for fault in (Fault.OUT_OF_RANGE, Fault.OVERFULL, Fault.PADDING)
)


@numba.njit(cache=True)
def pack(numbers: NDArray[np.int32], width: int) -> NDArray[np.uint32]:
    """Return the lowest `width` bits of each number as words of 32 bits."""
    words = np.empty((numbers.size * width + 31) // 32, np.uint32)
    held = np.uint64(0)
    bits = 0
    at = 0
    for number in numbers:
        held |= np.uint64(number) << np.uint64(bits)
        bits += width
        if bits >= 32:
            words[at] = np.uint32(held & np.uint64(0xFFFFFFFF))
            at += 1
            held >>= np.uint64(32)
            bits -= 32
    if bits > 0:
        words[at] = np.uint32(held)
    return words


@numba.njit(cache=True, inline="always")
def _read(data: Bytes, width: int, held: np.uint64, bits: int, at: int) -> tuple[np.uint64, int, int]:
    """Hold at least one number's bits."""
    while bits < width:
        held |= np.uint64(data[at]) << np.uint64(bits)
        at += 1
        bits += 8
    return held, bits, at


@numba.njit(cache=True)
def count_positions(
    data: Bytes, width: int, total: NDArray[np.int64], sign: int, stop: int
) -> tuple[int, int]:
    """Count the position of each edge. Every position must occur once."""
    taken = np.zeros(total.size, np.bool_)
    lowest = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    held = np.uint64(0)
    bits = 0
    at = 0
    for edge in range(stop):
        held, bits, at = _read(data, width, held, bits, at)
        position = np.int64(held & lowest)
        held >>= np.uint64(width)
        bits -= width
        if position >= total.size:
            return edge, _OUT_OF_RANGE
        if taken[position]:
            return edge, _OVERFULL
        taken[position] = True
        total[edge] += sign * 2 * position
    return stop, _PADDING if held != np.uint64(0) else 0


@numba.njit(cache=True)
def count_levels(
    data: Bytes,
    width: int,
    borders: NDArray[np.int32],
    points: NDArray[np.int32],
    total: NDArray[np.int64],
    sign: int,
    stop: int,
) -> tuple[int, int]:
    """Count the level of each edge. Every level must occur as often as it has positions."""
    room = borders[1:] - borders[:-1]
    lowest = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    held = np.uint64(0)
    bits = 0
    at = 0
    for edge in range(stop):
        held, bits, at = _read(data, width, held, bits, at)
        level = np.int64(held & lowest)
        held >>= np.uint64(width)
        bits -= width
        if level >= points.size:
            return edge, _OUT_OF_RANGE
        if room[level] == 0:
            return edge, _OVERFULL
        room[level] -= 1
        total[edge] += sign * points[level]
    return stop, _PADDING if held != np.uint64(0) else 0


@numba.njit(cache=True)
def count_top(
    data: Bytes, width: int, first: int, total: NDArray[np.int64], sign: int, stop: int
) -> tuple[int, int]:
    """Count the top edges, which are named from position `first` upwards. Each must be named once."""
    named = np.zeros(total.size, np.bool_)
    lowest = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    held = np.uint64(0)
    bits = 0
    at = 0
    for number in range(stop):
        held, bits, at = _read(data, width, held, bits, at)
        edge = np.int64(held & lowest)
        held >>= np.uint64(width)
        bits -= width
        if edge >= total.size:
            return number, _OUT_OF_RANGE
        if named[edge]:
            return number, _OVERFULL
        named[edge] = True
        total[edge] += sign * 2 * (first + number)
    return stop, _PADDING if held != np.uint64(0) else 0


@numba.njit(cache=True, nogil=True)
def read_points(
    data: Bytes, width: int, points: NDArray[np.int32], base: NDArray[np.int32], out: NDArray[np.float64]
) -> None:
    """Write the points of the first levels in `data`, less those of `base`; the data is already checked."""
    lowest = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    held = np.uint64(0)
    bits = 0
    at = 0
    for edge in range(out.size):
        held, bits, at = _read(data, width, held, bits, at)
        out[edge] = points[np.int64(held & lowest)] - base[edge]
        held >>= np.uint64(width)
        bits -= width


@numba.njit(cache=True, nogil=True)
def read_positions(data: Bytes, width: int, base: NDArray[np.int32], out: NDArray[np.float64]) -> None:
    """Do what `read_points` does for exact positions, whose points need not be looked up."""
    lowest = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    held = np.uint64(0)
    bits = 0
    at = 0
    for edge in range(out.size):
        held, bits, at = _read(data, width, held, bits, at)
        out[edge] = 2 * np.int64(held & lowest) - base[edge]
        held >>= np.uint64(width)
        bits -= width
