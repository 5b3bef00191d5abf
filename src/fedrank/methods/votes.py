"""Votes that see all ballots together: any aggregator becomes one.

A ballot is a displacement: its reputations less those of the broadcast. The paper's vote is exactly
rank(broadcast + mean of the displacements). A robust rule in the place of the mean makes a robust vote.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedrank.aggregators import Aggregator
from fedrank.aggregators.measured import Read
from fedrank.ballots import BallotCodec
from fedrank.ballots.store import THREADS, in_slices
from fedrank.errors import ConfigError
from fedrank.randomness import Purpose, keyed_generator
from fedrank.rank import Layer, Ranking
from fedrank.rank.ranking import argsort_totals

T = TypeVar("T")
Matrix = NDArray[np.float64]
BYTES_PER_NUMBER = 40
"""A displacement, its mixture, and what the rules copy for sorting."""


class Ballots(Protocol):
    """All ballots of a vote, as a `BallotStore` keeps them."""

    @property
    def codec(self) -> BallotCodec: ...

    @property
    def memory(self) -> int: ...

    @property
    def voters(self) -> Collection[int]: ...

    def slice_width(self, bytes_per_number: int = 40) -> int: ...

    def displacements(self, layer: Layer) -> Read: ...

    def base(self, layer: Layer) -> NDArray[np.int32]: ...


def robust_vote(store: Ballots, rule: Aggregator, malicious: int, seed: int) -> Ranking:
    """Return rank(broadcast + aggregate(displacements)), each layer by itself.

    A layer is judged by itself because it is ranked by itself: in distances over the whole network a large
    layer would hide what a ballot does to a small one.
    """
    layout = store.codec.layout
    ranking = np.empty(layout.size, np.int32)
    rng = keyed_generator(seed, Purpose.AGGREGATION, store.codec.round)
    for layer in layout:
        width = store.slice_width(BYTES_PER_NUMBER * THREADS)
        if not rule.sliceable:
            needed = layer.size * BYTES_PER_NUMBER * len(store.voters)
            if needed > store.memory:
                raise ConfigError(
                    f"the aggregator {rule.name!r} needs layer {layer.name!r} of all {len(store.voters)} "
                    f"ballots at once: {needed / 2**20:,.0f} MiB of memory"
                )
            width = layer.size
        limit = edge_limit(store, layer, width, rule) if rule.clips else math.inf
        products = inner_products(store, layer, width, limit) if rule.needs_inner_products else None
        step = rule.step(len(store.voters), products, malicious, rng)
        points = _points(store, layer, width, limit, step, rule.name)
        ranking[layer.edges] = argsort_totals(points - points.min())
    return ranking


def _points(
    store: Ballots,
    layer: Layer,
    width: int,
    limit: float,
    step: Callable[[Matrix], NDArray[np.floating]],
    name: str,
) -> NDArray[np.int64]:
    """Return where a rule moves the edges of a layer, in parts of a point."""
    points, base = np.empty(layer.size, np.int64), store.base(layer)
    # Fine enough to tell n-ths of a point apart, coarse enough to round equal sums to equal numbers.
    grid = 2.0 ** max(12, len(store.voters).bit_length())

    def move(some: slice, displacements: Matrix) -> None:
        moved = base[some] + step(displacements)
        if not np.isfinite(moved).all():
            raise ConfigError(f"the aggregator {name!r} returned infinity")
        points[some] = np.rint(moved * grid)

    for _ in clipped_slices(store, layer, width, limit, move):
        pass
    return points


def clipped_slices(
    store: Ballots, layer: Layer, width: int, limit: float, work: Callable[[slice, Matrix], T]
) -> Iterator[T]:
    """Yield what `work` makes of neighboring edges of all ballots, clipped."""

    def clipped(some: slice, rows: Matrix) -> T:
        return work(some, rows if limit == math.inf else rows.clip(-limit, limit, rows))

    return in_slices(store.displacements(layer), len(store.voters), layer.size, width, clipped)


def edge_limit(store: Ballots, layer: Layer, width: int, rule: Aggregator) -> float:
    """Return the most that one edge's displacement counts: whole points, so that sums stay exact."""
    scale = exact_scale(layer)

    def squares(_: slice, displacements: Matrix) -> Matrix:
        rounded = np.rint(displacements * scale)
        return np.asarray(np.einsum("ij,ij->i", rounded, rounded))

    total = sum(clipped_slices(store, layer, width, math.inf, squares))
    return max(1.0, math.floor(rule.limit(np.sqrt(total) / scale, layer.size)))


def exact_scale(layer: Layer) -> float:
    """Return by what displacements are multiplied, and then rounded, so that sums of products are exact."""
    spare = (53 - layer.size.bit_length()) // 2
    return 2.0 ** -max(0, (2 * layer.size).bit_length() - spare)


def inner_products(store: Ballots, layer: Layer, width: int, limit: float = math.inf) -> NDArray[np.float64]:
    """Return the inner products of all pairs of displacements in a layer.

    They are rounded to so few bits that sums of products of any order are exact in double precision.
    """
    scale = exact_scale(layer)

    def products(_: slice, displacements: Matrix) -> Matrix:
        if scale < 1:
            displacements *= scale
            np.rint(displacements, out=displacements)
        return np.asarray(displacements @ displacements.T)

    return np.asarray(sum(clipped_slices(store, layer, width, limit, products)))
