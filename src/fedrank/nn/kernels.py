"""Compiled passes over the edges of a layer, for what torch would do in several passes.

Each touches every array once and none reorders a sum: results are the same on every machine. Where
a score's magnitude decides on the mask, `sign` is -1 and importance is |score|, otherwise `sign` is
1 and importance is the score: in both cases a negative score counts `sign` times.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

BLOCK = 128  # edges that stay in the nearest cache from one loop to the next
_NONE, _ONE = np.float32(0), np.float32(1)
_NOBODY, _SOMEBODY = np.int32(0), np.int32(1)


@numba.njit(cache=True)
def mask(
    scores: Floats,
    weights: Floats,
    sign: np.float32,
    border: tuple[np.float32, np.float32, np.float32],
    masked: Floats,
    band: NDArray[np.int64],
) -> tuple[int, int]:
    """Write the weights of edges of at least the border's importance, and 0 for the others.

    `border` is a guess between the two ends of a band that holds the true one. The edges inside the
    band are noted in `band`, as many as fit. Return how many lie below the band and how many inside.
    """
    below = 0
    inside = 0
    for begin in range(0, scores.size, BLOCK):
        block = slice(begin, begin + BLOCK)
        counts = _mask_block(scores[block], weights[block], sign, border, masked[block], band, inside, begin)
        below += counts[0]
        inside += counts[1]
    return below, inside


@numba.njit(cache=True)
def descend(
    scores: Floats,
    velocity: Floats,
    gradient: Floats,
    weights: Floats,
    sign: np.float32,
    sgd: tuple[np.float32, np.float32, np.float32],
    border: tuple[np.float32, np.float32, np.float32],
    masked: Floats,
    band: NDArray[np.int64],
) -> tuple[int, int]:
    """Take a step of SGD (rate, momentum, decay) on the scores, then `mask` by the new ones.

    The straight-through gradient of a score is gradient * weight, times the slope of importance.
    """
    rate, momentum, decay = sgd
    middle, outer = np.float32(0.5) * (_ONE + sign), np.float32(0.5) * (_ONE - sign)
    below = 0
    inside = 0
    for begin in range(0, scores.size, BLOCK):
        block = slice(begin, begin + BLOCK)
        s, v, g, w = scores[block], velocity[block], gradient[block], weights[block]
        for i in range(s.size):
            side = (_ONE if s[i] > _NONE else _NONE) - (_ONE if s[i] < _NONE else _NONE)
            slope = g[i] * w[i] * (middle + outer * side) + decay * s[i]
            v[i] = momentum * v[i] + slope
            s[i] -= rate * v[i]
        counts = _mask_block(s, w, sign, border, masked[block], band, inside, begin)
        below += counts[0]
        inside += counts[1]
    return below, inside


@numba.njit(cache=True, inline="always")
def _mask_block(
    scores: Floats,
    weights: Floats,
    sign: np.float32,
    border: tuple[np.float32, np.float32, np.float32],
    masked: Floats,
    band: NDArray[np.int64],
    noted: int,
    begin: int,
) -> tuple[int, int]:
    low, guess, high = border
    for i in range(scores.size):
        importance = scores[i] if scores[i] > _NONE else sign * scores[i]
        masked[i] = weights[i] if importance >= guess else _NONE
    below = _NOBODY
    not_above = _NOBODY
    for i in range(scores.size):
        importance = scores[i] if scores[i] > _NONE else sign * scores[i]
        below += _SOMEBODY if importance < low else _NOBODY
        not_above += _SOMEBODY if importance <= high else _NOBODY
    inside = int(not_above - below)
    if inside > 0 and noted + scores.size <= band.size:
        # Writing always and moving on only sometimes avoids a branch that nobody could predict.
        for i in range(scores.size):
            importance = scores[i] if scores[i] > _NONE else sign * scores[i]
            band[noted] = begin + i
            noted += int(low <= importance) & int(importance <= high)
    return int(below), inside
