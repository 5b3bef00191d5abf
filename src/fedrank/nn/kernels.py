"""Compiled passes over the edges of a layer, for what torch would do in several passes.

Each touches every array once and none reorders a sum: results are the same on every machine.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

_BLOCK = 64  # edges whose place relative to a band is counted at once, in vector registers
_ZERO, _ONE = np.int32(0), np.int32(1)


@numba.njit(cache=True)
def descend(
    scores: Floats,
    velocity: Floats,
    gradient: Floats,
    weights: Floats,
    rate: np.float32,
    momentum: np.float32,
    decay: np.float32,
) -> None:
    """Take a step of SGD along the straight-through gradient, which is gradient * weight."""
    for i in range(scores.size):
        slope = gradient[i] * weights[i] + decay * scores[i]
        velocity[i] = momentum * velocity[i] + slope
        scores[i] -= rate * velocity[i]


@numba.njit(cache=True)
def write_masked(importance: Floats, weights: Floats, border: np.float32, out: Floats) -> None:
    """Write the weights of edges at or above the border, and 0 for the others."""
    nothing = np.float32(0)
    for i in range(importance.size):
        out[i] = weights[i] if importance[i] >= border else nothing


@numba.njit(cache=True)
def gather_band(values: Floats, low: np.float32, high: np.float32, band: Floats) -> tuple[int, int]:
    """Copy the values from `low` to `high` into `band`; return how many lie below and how many inside.

    Those that do not fit are counted but not copied.
    """
    below = 0
    inside = 0
    for begin in range(0, values.size, _BLOCK):
        block = values[begin : begin + _BLOCK]
        smaller = _ZERO
        not_larger = _ZERO
        for i in range(block.size):
            smaller += _ONE if block[i] < low else _ZERO
            not_larger += _ONE if block[i] <= high else _ZERO
        below += int(smaller)
        if not_larger > smaller:
            for i in range(block.size):
                if low <= block[i] <= high:
                    if inside < band.size:
                        band[inside] = block[i]
                    inside += 1
    return below, inside
