"""Updates as vectors: what attacks on rankings or weights work with.

A change of weights is a vector already. A ranking becomes one as a displacement: each edge's reputation less
its reputation in the broadcast. So one attack on vectors serves both worlds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedrank.aggregators.measured import Read
from fedrank.ballots import BallotCodec, BallotStore, Shape
from fedrank.ballots.candidates import Stage
from fedrank.ballots.store import broadcast_points
from fedrank.errors import ConfigError
from fedrank.methods.base import Method
from fedrank.methods.fedavg import FedAvg
from fedrank.methods.frl import FRL, FRLState, RoundInput
from fedrank.methods.laboratory import Laboratory
from fedrank.methods.measured import Panel, TrialPlan, measured_vote
from fedrank.methods.signsgd import SignSGD
from fedrank.methods.votes import Ballots
from fedrank.methods.weights import Floats, WeightState
from fedrank.rank import Layer, Ranking, Reputation, rank, reputation, vote_on

SIMULATED_VALIDATORS = 20
SIMULATED_SAMPLES = 16
"""How an adversary simulates a measured vote."""


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

    def combine(self, updates: list[NDArray[Any]], malicious: int = 0) -> NDArray[Any]:
        """Return what the server makes of some updates: all who know the algorithm can compute it.

        The last ones are those of malicious clients, whose validators lie for them.
        """
        ...

    @property
    def measured(self) -> bool:
        """Whether validators measure what updates do."""
        ...

    @property
    def edge_limit(self) -> float:
        """How many deviations of a coordinate count at most."""
        ...


@dataclass(frozen=True, eq=False)
class DenseBallots:
    """Exact ballots as displacements in memory: a store for simulations, without writing and reading."""

    codec: BallotCodec
    rows: list[Floats]
    memory: int = 2**62

    @property
    def voters(self) -> range:
        """Who has voted."""
        return range(len(self.rows))

    def slice_width(self, bytes_per_number: int = 40) -> int:  # noqa: ARG002
        """Return how many edges of all ballots to look at together."""
        return max(2**12, 2**19 // len(self.rows))

    def displacements(self, layer: Layer) -> Read:
        """Return what writes the displacements of some edges of a layer, in points."""

        def read(some: slice, rows: NDArray[np.float64]) -> None:
            for row, displacement in zip(rows, self.rows, strict=True):
                np.multiply(displacement[layer.offset + some.start : layer.offset + some.stop], 2.0, out=row)

        return read

    def base(self, layer: Layer) -> NDArray[np.int32]:
        """Return the points that a layer's edges have in the broadcast."""
        return broadcast_points(self.codec, layer)


@dataclass(frozen=True)
class RankingSpace:
    """Rankings, as displacements from the broadcast."""

    method: FRL
    received: RoundInput
    laboratory: Laboratory | None = None

    @property
    def reference(self) -> Ranking:
        """The global ranking."""
        return self.received.ranking

    @cached_property
    def start(self) -> Reputation:
        """The reputations in the global ranking."""
        return reputation(self.reference, self.method.network.layout)

    def to_vector(self, update: Ranking) -> Floats:
        """Return how far each edge has moved from its reputation in the global ranking."""
        return (reputation(update, self.method.network.layout) - self.start).astype(np.float32)

    def from_vector(self, vector: Floats) -> Ranking:
        """Return the ranking of the global reputations, each moved by a displacement."""
        return rank((self.start + vector).astype(np.float32), self.method.network.layout)

    def combine(self, updates: list[Ranking], malicious: int = 0) -> Ranking:
        """Return the vote of some rankings."""
        method, state = self.method, FRLState(self.received.round, self.reference)
        if method.rule is None:
            return vote_on(updates, method.network.layout)
        ballots = self._ballots(updates)
        if not method.rule.measures:
            return method.aggregate(state, ballots).ranking
        if self.laboratory is None:
            return method.unmeasured(state, ballots)
        return self._measured(state, ballots, malicious)

    @property
    def measured(self) -> bool:
        """Whether validators measure what ballots do."""
        return self.method.measuring is not None

    @property
    def edge_limit(self) -> float:
        """How many deviations of an edge's displacement count at most."""
        rule, measuring = self.method.rule, self.method.measuring
        if rule is None or measuring is not None:
            return math.inf if measuring is None else measuring.edges
        return rule.limit(np.ones(1), 1)

    def _ballots(self, updates: list[Ranking]) -> Ballots:
        codec = self.method.ballot_codec(self.received)
        if codec.ballot_format.shape is Shape.EXACT:
            different = {id(update): update for update in updates}  # colluders often send the same ballot
            made = {number: self.to_vector(update) for number, update in different.items()}
            return DenseBallots(codec, [made[id(update)] for update in updates])
        store = BallotStore(codec, memory=self.method.memory // 2)
        for sender, update in enumerate(updates):
            store.add(sender, codec.encode(update, sender))
        return store

    def _measured(self, state: FRLState, ballots: Ballots, malicious: int) -> Ranking:
        """Simulate a measured vote: malicious clients' data is the validators', and a fifth of those lie."""
        laboratory = self.laboratory
        assert laboratory is not None
        voters = len(ballots.voters)
        plan = TrialPlan.of(self.method, state.round, voters, entropy=0)
        mine = np.arange(voters) >= voters - malicious
        clients = laboratory.clients[:SIMULATED_VALIDATORS]
        liars = math.ceil(len(clients) / 4) if malicious else 0

        def ask(stage: Stage, questions: Mapping[int, bytes]) -> dict[int, bytes]:
            inquiry, answers = self.method.inquiry(state.round), {}
            for number, question in questions.items():
                if number < len(clients):
                    some = clients[number].some(np.arange(min(len(clients[number]), SIMULATED_SAMPLES)))
                    answers[number] = self.method.measure(question, some, laboratory.workspace)
                else:
                    lies = plan.lies(stage, number, mine, push=True)
                    answers[number] = inquiry.report(stage, number, lies)
            return answers

        panel = Panel(range(len(clients) + liars), ask)
        chosen: FRLState = measured_vote(self.method, state, ballots, panel, plan)[0]
        return chosen.ranking


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

    @property
    def measured(self) -> bool:
        """Whether validators measure what updates do."""
        return getattr(self.method, "measuring", None) is not None

    @property
    def edge_limit(self) -> float:
        """How many deviations of a coordinate count at most."""
        return math.inf

    def combine(self, updates: list[Floats], malicious: int = 0) -> Floats:  # noqa: ARG002
        """Return the step that some updates lead to."""
        if isinstance(self.method, SignSGD):
            return self.method.step(np.sum([np.where(update >= 0, 1, -1) for update in updates], axis=0))
        return self.method.combine(updates, self.received.round)


def space_of(method: Method[Any], received: Any, laboratory: Laboratory | None = None) -> Space:
    """Return the space of the updates that follow a broadcast.

    A method of one's own can bring its own, as a function `space(received)`.
    """
    if isinstance(method, FRL):
        return RankingSpace(method, received, laboratory)
    if isinstance(method, FedAvg | SignSGD):
        return WeightSpace(method, received)
    if hasattr(method, "space"):
        own: Space = method.space(received)
        return own
    raise ConfigError(f"{type(method).__name__} has no space: it cannot be attacked")
