"""Updates as vectors: what attacks on rankings or weights work with.

A change of weights is a vector already. A ranking becomes one as a displacement: each edge's reputation less
its reputation in the broadcast. So one attack on vectors serves both worlds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedrank.ballots import BallotCodec, BallotStore
from fedrank.errors import ConfigError
from fedrank.methods.base import Method
from fedrank.methods.fedavg import FedAvg
from fedrank.methods.frl import FRL, FRLState, RoundInput
from fedrank.methods.signsgd import SignSGD
from fedrank.methods.weights import Floats, WeightState
from fedrank.rank import Ranking, rank, reputation, vote_on


class Space(Protocol):
    """The updates that may follow a broadcast, and what the server makes of them."""

    @property
    def reference(self) -> NDArray[Any]:
        """The global ranking or weights that were broadcast."""
        ...

    def to_vector(self, update: NDArray[Any]) -> Floats:
        """Return an update as a vector."""
        ...

    def from_vector(self, vector: Floats) -> NDArray[Any]:
        """Return the update that is closest to a vector."""
        ...

    def combine(self, updates: list[NDArray[Any]]) -> NDArray[Any]:
        """Return what the server makes of some updates: all who know the algorithm can compute it."""
        ...


@dataclass(frozen=True)
class RankingSpace:
    """Rankings, as displacements from the broadcast."""

    method: FRL
    received: RoundInput

    @property
    def reference(self) -> Ranking:
        """The global ranking."""
        return self.received.ranking

    def to_vector(self, update: Ranking) -> Floats:
        """Return how far each edge has moved from its reputation in the global ranking."""
        layout = self.method.network.layout
        return (reputation(update, layout) - reputation(self.reference, layout)).astype(np.float32)

    def from_vector(self, vector: Floats) -> Ranking:
        """Return the ranking of the global reputations, each moved by a displacement."""
        layout = self.method.network.layout
        return rank((reputation(self.reference, layout) + vector).astype(np.float32), layout)

    def combine(self, updates: list[Ranking]) -> Ranking:
        """Return the vote of some rankings."""
        method, layout = self.method, self.method.network.layout
        if method.rule is None:
            return vote_on(updates, layout)
        codec = BallotCodec(layout, reference=self.reference, round=self.received.round)
        store = BallotStore(codec, memory=method.memory // 2)
        for sender, update in enumerate(updates):
            store.add(sender, codec.encode(update, sender))
        return method.aggregate(FRLState(self.received.round, self.reference), store).ranking


@dataclass(frozen=True)
class WeightSpace:
    """Changes of weights, combined by an aggregator or by the majority of their signs."""

    method: FedAvg | SignSGD
    received: WeightState

    @property
    def reference(self) -> Floats:
        """The global weights."""
        return self.received.weights

    def to_vector(self, update: Floats) -> Floats:
        """Return the update: it is a vector already."""
        return update

    def from_vector(self, vector: Floats) -> Floats:
        """Return the vector: it is an update already."""
        return vector

    def combine(self, updates: list[Floats]) -> Floats:
        """Return the step that some updates lead to."""
        if isinstance(self.method, SignSGD):
            return self.method.step(np.sum([np.where(update >= 0, 1, -1) for update in updates], axis=0))
        return self.method.combine(updates, self.received.round)


def space_of(method: Method[Any], received: Any) -> Space:
    """Return the space of the updates that follow a broadcast.

    A method of one's own can bring its own, as a function `space(received)`.
    """
    if isinstance(method, FRL):
        return RankingSpace(method, received)
    if isinstance(method, FedAvg | SignSGD):
        return WeightSpace(method, received)
    if hasattr(method, "space"):
        own: Space = method.space(received)
        return own
    raise ConfigError(f"{type(method).__name__} has no space: it cannot be attacked")
