"""Compiled passes over the edges of a layer."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray


@numba.njit(cache=True, nogil=True)
def pack_scores(bits: NDArray[np.uint32], number_bits: int, words: NDArray[np.uint64]) -> None:
    """Write one sortable word per edge: its score's bits, then its number.

    The bits of positive floats sort as they are, those of negative floats in reverse; -0 is +0.
    """
    for i in range(bits.size):
        plain = np.uint32(0) if bits[i] == np.uint32(0x80000000) else bits[i]
        negative = plain >> np.uint32(31)
        ordered = plain ^ (np.uint32(0xFFFFFFFF) if negative else np.uint32(0x80000000))
        words[i] = (np.uint64(ordered) << np.uint64(number_bits)) | np.uint64(i)


@numba.njit(cache=True, nogil=True)
def first_places(words: NDArray[np.uint64], shift: np.uint64) -> NDArray[np.int64]:
    """Return where the words with each value of a digit of 8 bits begin."""
    counts = np.zeros(257, np.int64)
    for i in range(words.size):
        counts[((words[i] >> shift) & np.uint64(255)) + np.uint64(1)] += 1
    return np.cumsum(counts)


@numba.njit(cache=True, nogil=True)
def scatter(
    words: NDArray[np.uint64], shift: np.uint64, places: NDArray[np.int64], out: NDArray[np.uint64]
) -> None:
    """Sort words by a digit of 8 bits; equal digits keep their order."""
    for i in range(words.size):
        word = words[i]
        digit = (word >> shift) & np.uint64(255)
        out[places[digit]] = word
        places[digit] += 1


@numba.njit(cache=True, nogil=True)
def scatter_numbers(
    words: NDArray[np.uint64],
    shift: np.uint64,
    places: NDArray[np.int64],
    number_bits: int,
    out: NDArray[np.int32],
) -> None:
    """Sort words by a digit of 8 bits, and keep nothing but their numbers."""
    lowest = (np.uint64(1) << np.uint64(number_bits)) - np.uint64(1)
    for i in range(words.size):
        word = words[i]
        digit = (word >> shift) & np.uint64(255)
        out[places[digit]] = word & lowest
        places[digit] += 1


@numba.njit(cache=True, nogil=True)
def pack_totals(totals: NDArray[np.int64], number_bits: int, words: NDArray[np.uint64]) -> None:
    """Write one sortable word per edge: its total, then its number."""
    for i in range(totals.size):
        words[i] = (np.uint64(totals[i]) << np.uint64(number_bits)) | np.uint64(i)


@numba.njit(cache=True)
def count_repeated(edges: NDArray[np.int32], size: int) -> int:
    """Return how many edges are named more than once, or -1 if one is not an edge of the layer."""
    named = np.zeros(size, np.bool_)
    repeated = 0
    for edge in edges:
        if edge < 0 or edge >= size:
            return -1
        repeated += named[edge]
        named[edge] = True
    return repeated
