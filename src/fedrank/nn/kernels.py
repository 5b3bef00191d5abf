"""Compiled single passes over the edges of a layer, where torch would need several.

Each kernel touches every array once and reorders no sum, so results are the same on every machine.
Weights and their gradients are 32-bit floats, or the bits of bfloat16, which is such a float without its
lower half; what is computed has 32 bits. If the mask depends on the score's magnitude, `sign` is -1 and
importance is |score|; otherwise `sign` is 1 and importance is the score. In both cases a negative score is
multiplied by `sign`.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bits = NDArray[np.uint16]
"""Numbers in bfloat16."""

BLOCK = 128  # small enough to stay in the L1 cache between the loops
_NONE, _ONE = np.float32(0), np.float32(1)
_NOBODY, _SOMEBODY = np.int32(0), np.int32(1)
_HALF = np.uint32(16)


def _widened(values: Floats | Bits, scratch: Floats) -> Floats:
    """Return a block of numbers as floats, which `scratch` may hold."""
    bits = values.view(np.uint32) if values.dtype == scratch.dtype else values.astype(np.uint32) << _HALF
    return bits.view(np.float32)


@overload(_widened, inline="always")
def _compile_widened(values: Any, scratch: Any) -> Any:
    def same(values: Any, scratch: Any) -> Any:  # noqa: ARG001
        return values

    def lengthened(values: Any, scratch: Any) -> Any:
        bits = scratch.view(np.uint32)
        for i in range(values.size):
            bits[i] = np.uint32(values[i]) << _HALF
        return scratch[: values.size]

    return same if scratch.dtype == values.dtype else lengthened


@numba.njit(cache=True)
def mask(
    scores: Floats,
    weights: Floats | Bits,
    sign: np.float32,
    border: tuple[np.float32, np.float32, np.float32],
    masked: Floats | Bits,
    band: NDArray[np.int64],
) -> tuple[int, int]:
    """Write the weights of edges whose importance reaches the threshold, and 0 for the others.

    `border` holds the lower end of a band, a guess of the threshold, and the upper end. Records the edges
    inside the band in `band`, as many as fit. Returns how many edges lie below and inside the band.
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
    gradient: Floats | Bits,
    weights: Floats | Bits,
    sign: np.float32,
    sgd: tuple[np.float32, np.float32, np.float32],
    border: tuple[np.float32, np.float32, np.float32],
    masked: Floats | Bits,
    band: NDArray[np.int64],
) -> tuple[int, int]:
    """Take one SGD step (rate, momentum, decay) on the scores, then `mask` by the new scores.

    The straight-through gradient of a score is gradient * weight * d(importance)/d(score).
    """
    rate, momentum, decay = sgd
    middle, outer = np.float32(0.5) * (_ONE + sign), np.float32(0.5) * (_ONE - sign)
    below = 0
    inside = 0
    slopes, values = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    for begin in range(0, scores.size, BLOCK):
        block = slice(begin, begin + BLOCK)
        s, v = scores[block], velocity[block]
        g, w = _widened(gradient[block], slopes), _widened(weights[block], values)
        for i in range(s.size):
            side = (_ONE if s[i] > _NONE else _NONE) - (_ONE if s[i] < _NONE else _NONE)
            slope = g[i] * w[i] * (middle + outer * side) + decay * s[i]
            v[i] = momentum * v[i] + slope
            s[i] -= rate * v[i]
        counts = _mask_block(s, weights[block], sign, border, masked[block], band, inside, begin)
        below += counts[0]
        inside += counts[1]
    return below, inside


@numba.njit(cache=True, inline="always")
def _mask_block(
    scores: Floats,
    weights: Floats | Bits,
    sign: np.float32,
    border: tuple[np.float32, np.float32, np.float32],
    masked: Floats | Bits,
    band: NDArray[np.int64],
    noted: int,
    begin: int,
) -> tuple[int, int]:
    low, guess, high = border
    nothing = masked.dtype.type(0)
    for i in range(scores.size):
        importance = scores[i] if scores[i] > _NONE else sign * scores[i]
        masked[i] = weights[i] if importance >= guess else nothing
    below = _NOBODY
    not_above = _NOBODY
    for i in range(scores.size):
        importance = scores[i] if scores[i] > _NONE else sign * scores[i]
        below += _SOMEBODY if importance < low else _NOBODY
        not_above += _SOMEBODY if importance <= high else _NOBODY
    inside = int(not_above - below)
    if inside > 0 and noted + scores.size <= band.size:
        # Always writing but only sometimes advancing avoids an unpredictable branch.
        for i in range(scores.size):
            importance = scores[i] if scores[i] > _NONE else sign * scores[i]
            band[noted] = begin + i
            noted += int(low <= importance) & int(importance <= high)
    return int(below), inside
