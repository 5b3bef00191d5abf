"""The measured mean: clients measure what updates do to the model, and the server keeps those that help.

Rules compare updates with each other, and whoever can simulate a rule can pass it. What an update does to
the loss cannot be faked as long as most of those who measure it are honest.

The server does not ask for the effect of one update alone: the noise of a single client's update is larger
than what it contributes to a mean. It averages random halves of the updates, the *trials*, such that any two
updates meet in as many trials as not, and compares the trials with and without an update. So each
measurement tells something about every update, and a validator sees means, not single updates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Annotated, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedrank.aggregators.base import Aggregator, Updates, Vector, measured
from fedrank.aggregators.kernels import add_squares, moved_points, round_clipped

T = TypeVar("T")
MOST_UNITS = 31
"""More updates than this are put into so many random groups, which are measured as one."""


@dataclass(frozen=True)
class Measuring:
    """The parameters of `measured_mean`."""

    validators: int = 40
    samples: int = 8
    trials: float = 0.25
    keep: float = 0.8
    edges: float = 3.0

    @property
    def runoff_samples(self) -> int:
        """How many samples of each validator are used in the runoff, at most.

        It decides on one candidate, so it can be exact: without an attack, each wrong "no" costs a round.
        """
        return 4 * self.samples


@measured("measured-mean", "fedrank (docs/votes.md)")
def measured_mean(
    updates: Updates,
    _malicious: int,
    *,
    validators: Annotated[  # noqa: ARG001
        int, Field(ge=1, description="clients that measure in a round")
    ] = Measuring.validators,
    samples: Annotated[  # noqa: ARG001
        int, Field(ge=1, description="samples of each for the trials, at most")
    ] = Measuring.samples,
    trials: Annotated[  # noqa: ARG001
        float, Field(gt=0, le=1, description="the share of the trials that each one sees")
    ] = Measuring.trials,
    keep: Annotated[  # noqa: ARG001
        float, Field(gt=0, le=1, description="the share of the updates that is kept")
    ] = Measuring.keep,
    edges: Annotated[
        float, Field(gt=0, description="the most that one coordinate counts, in deviations")
    ] = Measuring.edges,
) -> Vector:
    """Average the updates that lower the loss on the data of most validators; without them, all."""
    n, size = updates.shape

    def read(some: slice, rows: NDArray[np.float64]) -> None:
        rows[:] = updates[:, some]

    sums = clipped_sums(read, size, np.eye(n), edges)
    return np.asarray(sums.mean(np.ones(n, np.bool_)), updates.dtype)


def measuring_of(rule: Aggregator | None) -> Measuring | None:
    """Return how validators measure for an aggregator, if it asks for them."""
    return Measuring(**rule.parameters) if rule is not None and rule.measures else None


@dataclass(frozen=True)
class ClippedSums:
    """Sums of clipped updates, one row for each unit, in whole multiples of `step`."""

    sums: NDArray[np.float32]
    step: float
    sizes: NDArray[np.float64]
    """The number of updates in each unit."""
    farthest: float
    """The most that a mean moves a coordinate."""

    def at(self, coordinates: NDArray[np.intp]) -> ClippedSums:
        """Return the sums of some coordinates."""
        return replace(self, sums=self.sums[:, coordinates])

    def mean(self, units: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the mean update of some units. Sums of whole numbers are exact in any order."""
        total = units.astype(np.float32) @ self.sums
        return total.astype(np.float64) * self._scale(units)

    def moved(self, base: NDArray[np.floating], units: NDArray[np.bool_], grid: float) -> NDArray[np.int64]:
        """Return where the mean update of some units moves coordinates, in parts of a grid."""
        points = np.empty(base.size, np.int64)
        moved_points(base, self.sums, np.flatnonzero(units), self._scale(units), grid, points)
        return points

    def _scale(self, units: NDArray[np.bool_]) -> float:
        return self.step / float(self.sizes[units].sum())


Read = Callable[[slice, NDArray[np.float64]], None]
"""Writes some neighboring coordinates of all updates, a row for each. Threads call it."""
CACHED_NUMBERS = 2**27
BLOCK_NUMBERS = 2**18
ALIGNED = 8
"""Blocks begin at multiples of it, so that packed numbers begin at whole bytes."""


def clipped_sums(read: Read, size: int, members: NDArray[np.float64], edges: float) -> ClippedSums:
    """Sum up the updates of each unit, each clipped by coordinate and then to the median length.

    Long updates come from clients with much data, so clipping would slow training down. All sums are
    stretched by what the lengths lose, each counted up to two medians: nobody gains weight by it.

    Parameters
    ----------
    read : the updates, `size` coordinates of each.
    members : which updates (columns) each unit (row) consists of.
    edges : the most that one coordinate counts, in deviations: the median length by the root of the size.
    """
    units, n = members.shape
    updates = _Updates(read, n, size)
    median = float(np.median(updates.lengths(np.inf)))
    if median == 0.0:
        return ClippedSums(np.zeros((units, size), np.float32), 0.0, members.sum(axis=1), 0.0)
    limit = edges * median / math.sqrt(size)
    lengths = np.maximum(updates.lengths(limit), 1e-300)
    factors = np.minimum(1.0, median / lengths)
    stretch = float(np.minimum(lengths, 2 * median).sum() / np.minimum(lengths, median).sum())
    step = limit / 2 ** (23 - n.bit_length())  # so fine that sums of all updates are exact in 32 bits
    sums = updates.rounded_sums(members.astype(np.float32), limit, factors / step)
    return ClippedSums(sums, stretch * step, members.sum(axis=1), stretch * (limit + step))


class _Updates:
    """The updates of a round in blocks that fit the caches, worked on by several threads.

    The blocks follow from the numbers of updates and coordinates alone, and their sums are added up in their
    order: the result has the same bytes for any number of threads. Updates are read once if they fit into
    memory; they are whole numbers or weights of 32 bits, so nothing is lost.
    """

    def __init__(self, read: Read, n: int, size: int) -> None:
        self.n, self.size = n, size
        width = max(ALIGNED, BLOCK_NUMBERS // n // ALIGNED * ALIGNED)
        self.blocks = [slice(begin, min(begin + width, size)) for begin in range(0, size, width)]
        self.read = read
        self.whole: NDArray[np.float32] | None = None
        if n * size <= CACHED_NUMBERS:
            whole = np.empty((n, size), np.float32)
            self._each(lambda some: whole.__setitem__((slice(None), some), self._block(some)))
            self.whole = whole

    def lengths(self, limit: float) -> NDArray[np.float64]:
        """Return the lengths of the updates, with coordinates clipped."""

        def squares(some: slice) -> NDArray[np.float64]:
            found = np.zeros(self.n)
            add_squares(self._block(some), limit, found)
            return found

        return np.asarray(np.sqrt(np.sum(self._each(squares), axis=0)))

    def rounded_sums(
        self, members: NDArray[np.float32], limit: float, factors: NDArray[np.float64]
    ) -> NDArray[np.float32]:
        """Return the sums of each unit's updates, clipped, multiplied and rounded. They are gone after it."""
        in_place = self.whole is not None and len(members) == self.n  # one update each
        sums = self.whole if in_place else None
        if sums is None:
            sums = np.empty((len(members), self.size), np.float32)

        def add(some: slice) -> None:
            rounded = self._block(some)
            round_clipped(rounded, limit, factors)
            if not in_place:
                np.matmul(members, rounded, out=sums[:, some])

        self._each(add)
        return sums

    def _block(self, some: slice) -> NDArray[np.float32]:
        if self.whole is not None:
            return self.whole[:, some]
        rows = np.empty((self.n, some.stop - some.start))
        self.read(some, rows)
        return rows.astype(np.float32)

    def _each(self, work: Callable[[slice], T]) -> list[T]:
        if len(self.blocks) == 1:
            return [work(self.blocks[0])]
        with ThreadPoolExecutor() as threads:
            return list(threads.map(work, self.blocks))


def random_units(n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return which updates each unit consists of: one each, or random groups if there are many.

    >>> random_units(100, np.random.default_rng(0)).sum(axis=1).astype(int).tolist()[:5]
    [4, 4, 4, 4, 4]
    """
    units = min(n, MOST_UNITS)
    members = np.zeros((units, n))
    members[np.arange(n) % units, rng.permutation(n) if n > units else np.arange(n)] = 1
    return members


def trial_design(units: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return which units (columns) each trial (row) averages: half of them, any two units balanced.

    The columns of a Hadamard matrix are orthogonal, which makes the effects as exact as they can be
    (Plackett and Burman, 1946). The first trial has all units.
    """
    order = 1 << units.bit_length()
    columns = 1 + rng.permutation(order - 1)[:units]
    design = np.bitwise_count(np.arange(order)[:, None] & columns) % 2 == 0  # Sylvester's matrix
    return np.asarray(design[design.any(axis=1)])


def seen_trials(trials: int, share: float, rng: np.random.Generator) -> NDArray[np.intp]:
    """Draw the trials that one validator sees."""
    return np.sort(rng.permutation(trials)[: max(1, round(share * trials))])


def effects(design: NDArray[np.bool_], places: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the effect of each unit: the mean place of trials with it minus that of trials without it.

    Parameters
    ----------
    design : which units each trial averages.
    places : one row per validator: the place of each trial among those that it has measured, from the
        lowest loss to the highest; NaN for the others.

    Each validator judges each unit by its own measurements, and the median over validators decides: a
    minority of liars moves it within what honest ones have found. Places have no unit, so that validators
    whose losses are larger or change more do not count more.
    """
    seen, known = ~np.isnan(places), np.nan_to_num(places)
    inside, outside = design.astype(np.float64), 1.0 - design
    with_it, without = seen @ inside, seen @ outside
    own = (known @ inside) / np.maximum(with_it, 1) - (known @ outside) / np.maximum(without, 1)
    return np.asarray(np.median(np.where((with_it > 0) & (without > 0), own, 0.0), axis=0))


def kept_units(effect: NDArray[np.float64], share: float) -> NDArray[np.bool_]:
    """Return the units that raise the loss least, a share of all."""
    kept = np.zeros(effect.size, np.bool_)
    kept[np.argsort(effect, kind="stable")[: math.ceil(share * effect.size)]] = True
    return kept


def is_worse(change: float, error: float) -> bool:
    """Return whether a median change of the loss is above 0 by more than chance, with its standard error.

    Two standard errors: without any effect, one median in 44 is that large.
    """
    return change > 2 * error


def standard_error(changes: NDArray[np.floating]) -> float:
    """Return the standard error of a median, estimated so that a minority of liars cannot inflate it much.

    That of a normal distribution, with 1.4826 times the median absolute deviation for its deviation.

    >>> round(standard_error(np.array([-2.0, -1.0, 0.0, 1.0, 2.0])), 3)
    0.831
    """
    deviation = 1.4826 * np.median(np.abs(changes - np.median(changes)))
    return float(math.sqrt(math.pi / 2) * deviation / math.sqrt(len(changes)))


def dishonest_majority(clients: int, malicious: int, drawn: int) -> float:
    """Return the probability that at least half of the drawn validators are malicious.

    >>> round(dishonest_majority(1000, 200, 40), 6)
    1.4e-05
    """
    honest = clients - malicious
    ways = sum(
        math.comb(malicious, bad) * math.comb(honest, drawn - bad)
        for bad in range((drawn + 1) // 2, drawn + 1)
    )
    return ways / math.comb(clients, drawn)
