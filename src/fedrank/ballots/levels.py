"""Levels: how the positions of a layer's ranking are rounded, and what each level is worth."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedrank.ballots.format import BallotFormat, Shape
from fedrank.rank import top_count

HALF = 2**15
"""The shift of borders that are not dithered, in 2^16ths of a level."""
MOST_GROUPS = 256
LEAST_PER_GROUP = 64


@dataclass(frozen=True, eq=False)
class Levels:
    """The levels of one layer, from low to high.

    Level `l` holds the positions from `borders[l]` to before `borders[l + 1]`. Neighboring levels form
    a group, which is what the entropy coder tells apart first: group `g` begins with level `groups[g]`.
    """

    borders: NDArray[np.int32]
    points: NDArray[np.int32]
    groups: NDArray[np.int32]
    distinct: bool
    """Whether no two edges share a level, except in a group of one level."""

    def rounded(self, positions: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the points of the levels that hold some positions."""
        return self.points[np.searchsorted(self.borders, positions, side="right") - 1]


def levels_of(ballot_format: BallotFormat, size: int, shift: int) -> Levels:
    """Return the levels of a layer with `size` edges; the shift counts only for a dithered format."""
    return (
        _levels(ballot_format, size, shift) if ballot_format.dithered else _fixed_levels(ballot_format, size)
    )


@lru_cache(maxsize=64)
def _fixed_levels(ballot_format: BallotFormat, size: int) -> Levels:
    return _levels(ballot_format, size, HALF)


def _levels(ballot_format: BallotFormat, size: int, shift: int) -> Levels:
    match ballot_format.shape:
        case Shape.EXACT:
            borders = np.arange(size + 1)
            groups = _spread(size, _group_count(size))
        case Shape.TOP:
            unsent = size - top_count(size, ballot_format.share)
            borders = np.arange(unsent, size + 1)
            groups = _spread(size - unsent, _group_count(size - unsent))
            if unsent:
                borders = np.concatenate(([0], borders))
                groups = np.concatenate(([0], groups + 1))
        case Shape.LEVELS:
            count = min(ballot_format.levels, size)
            borders = level_borders(size, count, shift)
            groups = _spread(count, min(count, MOST_GROUPS))
    points = borders[:-1] + borders[1:] - 1
    if ballot_format.shape is Shape.TOP and borders[1] > 1:
        points[0] = 0
    return Levels(
        borders.astype(np.int32),
        points.astype(np.int32),
        groups.astype(np.int32),
        distinct=ballot_format.shape is not Shape.LEVELS,
    )


def level_borders(size: int, count: int, shift: int) -> NDArray[np.int64]:
    """Return where levels begin: border q lies at (q - 1/2 + shift / 2^16) * size / count, rounded down.

    >>> level_borders(12, 4, HALF).tolist()
    [0, 3, 6, 9, 12]
    >>> level_borders(12, 4, 0).tolist()
    [0, 1, 4, 7, 12]
    """
    halves, rest = np.divmod((2 * np.arange(1, count) - 1) * size, 2 * count)
    inner = halves + ((rest << 16) + 2 * shift * size) // (count << 17)
    return np.concatenate(([0], inner, [size]))


def _group_count(singles: int) -> int:
    return max(1, min(MOST_GROUPS - 1, singles // LEAST_PER_GROUP))


def _spread(levels: int, groups: int) -> NDArray[np.int64]:
    return np.arange(groups + 1) * levels // groups
