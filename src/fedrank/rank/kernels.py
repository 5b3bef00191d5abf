"""Compiled passes over the edges of a layer."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray


@numba.njit(cache=True)
def pack_scores(scores: NDArray[np.float32], number_bits: int) -> NDArray[np.uint64]:
    """Return one sortable word per edge: its score's bits, then its number.

    The bits of positive floats sort as they are, those of negative floats in reverse; adding 0 turns
    -0 into +0.
    """
    words = np.empty(scores.size, np.uint64)
    bits = (scores + np.float32(0)).view(np.uint32)
    for i in range(bits.size):
        negative = bits[i] >> np.uint32(31)
        ordered = bits[i] ^ (np.uint32(0xFFFFFFFF) if negative else np.uint32(0x80000000))
        words[i] = (np.uint64(ordered) << np.uint64(number_bits)) | np.uint64(i)
    return words


@numba.njit(cache=True)
def unpack_numbers(words: NDArray[np.uint64], number_bits: int) -> NDArray[np.int32]:
    """Return the edge number of each word."""
    lowest = (np.uint64(1) << np.uint64(number_bits)) - np.uint64(1)
    numbers = np.empty(words.size, np.int32)
    for i in range(words.size):
        numbers[i] = np.int32(words[i] & lowest)
    return numbers


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
