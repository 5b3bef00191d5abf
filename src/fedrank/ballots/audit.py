"""The audit of a vote: how safe its result is, and which ballots are outliers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedrank.ballots.format import Shape
from fedrank.ballots.kernels import add_moments
from fedrank.ballots.store import BallotStore, Read, in_slices
from fedrank.ballots.tally import Tally
from fedrank.rank import Layer, Ranking, top_count

LISTED_COUNTS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 200, 300, 500, 700, 1000)
"""Numbers of extra ballots for which an audit reports how many edges they could flip."""


@dataclass(frozen=True)
class LayerAudit:
    """The effect of a vote on one layer."""

    name: str
    edges: int
    changed: int
    """The number of edges that entered or left the subnetwork."""
    agreement: float
    """The mean rank correlation of the ballots with the vote."""
    flippable: dict[int, int] | None
    """The most edges that so many extra ballots could flip; None if the vote is not a sum."""


@dataclass(frozen=True)
class BallotAudit:
    """One ballot compared with the others."""

    client: int | str
    """Its number, or its name if clients have names."""
    length: float
    """The root mean square displacement, in shares of a layer."""
    agreement: float
    """The rank correlation of the ballot with the vote, the mean over layers."""


@dataclass(frozen=True)
class Audit:
    """The audit of one vote. Single ballots are known only if they were kept."""

    layers: tuple[LayerAudit, ...]
    ballots: tuple[BallotAudit, ...] = ()


def audit_vote(collected: object, before: Ranking, after: Ranking, keep: float) -> Audit | None:
    """Audit the vote between two rankings; return None if no ballots were collected."""
    match collected:
        case Tally():
            return audit_tally(collected, before, after, keep)
        case BallotStore():
            return audit_store(collected, before, after, keep, collected.slice_width())
        case _:
            return None


def audit_tally(tally: Tally, before: Ranking, after: Ranking, keep: float) -> Audit:
    """Audit a vote by sums: everything but single ballots, which a tally does not keep."""
    layers = []
    for layer in tally.codec.layout:
        total, voters = tally.total[layer.edges], len(tally.voters)
        margins = ballots_to_flip(total, after[layer.edges], keep)
        counts = [m for m in LISTED_COUNTS if m <= voters]
        spread = tally.codec.deviation(layer) * _deviation(layer)
        ranked = (total / voters)[after[layer.edges]]
        agreement = float(_from_middle(layer) @ ranked) / layer.size / spread if spread else 1.0
        layers.append(
            LayerAudit(
                name=layer.name,
                edges=layer.size,
                changed=_changed(before[layer.edges], after[layer.edges], keep),
                agreement=agreement,
                flippable={m: int(np.count_nonzero(margins <= m)) for m in counts},
            )
        )
    return Audit(tuple(layers))


def audit_store(store: BallotStore, before: Ranking, after: Ranking, keep: float, width: int) -> Audit:
    """Audit a vote whose ballots were kept, `width` edges at a time."""
    layout = store.codec.layout
    clients = sorted(store.voters)
    squares = np.zeros(len(clients))
    agreements = np.zeros((len(layout), len(clients)))
    layers = []
    for number, layer in enumerate(layout):
        middle = np.empty(layer.size)
        middle[after[layer.edges]] = _from_middle(layer)
        exact = store.codec.ballot_format.shape is Shape.EXACT
        base = store.base(layer)
        found = _moments(store.displacements(layer), base, middle, len(clients), width)
        squares += found[:, 0] / (2 * layer.size) ** 2
        if not exact:  # the points of a short ballot are not the broadcast's and its displacement
            found = _moments(store.points(layer), np.zeros_like(base), middle, len(clients), width)
        total, of_squares, with_vote = found[:, 1:].T / layer.size
        spreads = np.sqrt(of_squares - total**2) * _deviation(layer)
        agreements[number] = np.where(spreads > 0, with_vote / np.maximum(spreads, 1e-300), 1.0)
        changed = _changed(before[layer.edges], after[layer.edges], keep)
        layers.append(LayerAudit(layer.name, layer.size, changed, float(agreements[number].mean()), None))
    lengths = np.sqrt(squares / layout.size)
    means = agreements.mean(axis=0)
    ballots = zip(clients, lengths.tolist(), means.tolist(), strict=True)
    return Audit(tuple(layers), tuple(BallotAudit(*ballot) for ballot in ballots))


def _moments(
    read: Read, base: NDArray[np.int32], middle: NDArray[np.float64], ballots: int, width: int
) -> NDArray[np.float64]:
    """Return the sums of `add_moments` over a layer, added up in the order of its slices."""

    def add(some: slice, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        moments = np.zeros((ballots, 4))
        add_moments(rows, base[some], middle[some], moments)
        return moments

    return np.asarray(sum(in_slices(read, ballots, base.size, width, add)))


def ballots_to_flip(total: NDArray[np.int64], ranking: Ranking, keep: float) -> NDArray[np.int64]:
    """Return, for each edge of a layer, the fewest extra ballots that could flip it.

    A ballot gives an edge up to 2 (size - 1) points more than another. So flipping an edge takes enough
    ballots to close the gap to the nearest edge on the other side; fewer can never flip it.
    """
    border = ranking.size - top_count(ranking.size, keep)
    margins = np.full(ranking.size, np.iinfo(np.int64).max)
    if not 0 < border < ranking.size:
        return margins
    most = 2 * (ranking.size - 1)
    below, above = ranking[:border], ranking[border:]
    margins[above] = total[above] - total[below[-1]]
    margins[below] = total[above[0]] - total[below]
    return np.asarray(np.maximum(1, -(-margins // most)), np.int64)


def _changed(before: Ranking, after: Ranking, keep: float) -> int:
    """Return how many edges entered or left the subnetwork."""
    border = before.size - top_count(before.size, keep)
    inside = np.zeros(before.size, np.bool_)
    inside[before[border:]] = True
    return 2 * int(np.count_nonzero(~inside[after[border:]]))


def _from_middle(layer: Layer) -> NDArray[np.float64]:
    """Return the reputations of a layer in their order, less their mean."""
    return np.arange(layer.size, dtype=np.float64) - (layer.size - 1) / 2


def _deviation(layer: Layer) -> float:
    """Return the standard deviation of a layer's reputations."""
    return math.sqrt((layer.size**2 - 1) / 12)
