"""Federated Rank Learning."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedrank.aggregators import Chain
from fedrank.data import Samples
from fedrank.errors import BallotError, ConfigError, RunError
from fedrank.methods.base import Learned, Traffic
from fedrank.methods.votes import robust_vote, slice_width
from fedrank.nn import LocalTraining, MaskedNetwork, Supernetwork, edge_popup
from fedrank.randomness import Purpose as Randomness
from fedrank.randomness import keyed_generator
from fedrank.rank import (
    Box,
    Form,
    Kind,
    Layout,
    Purpose,
    Ranking,
    Shape,
    Tally,
    check_ranking,
    rank,
    reputation,
    vote_on,
)
from fedrank.rank.audit import Audit, audit_box, audit_tally
from fedrank.rank.form import round_of
from fedrank.rank.traffic import packed_bits

BORDA = "borda"
"""The paper's vote, a sum of reputations, which needs no ballot once it is counted."""


@dataclass(frozen=True)
class FRLState:
    """The global ranking after `round` rounds."""

    round: int
    ranking: Ranking


@dataclass(frozen=True, eq=False)
class Opened:
    """A broadcast that a client has read: the round, its ranking, and the scores that follow it."""

    message: bytes
    round: int
    ranking: Ranking
    scores: NDArray[np.float32]


@dataclass(frozen=True)
class FRL:
    """Federated Rank Learning (Mozaffari et al., 2023, Algorithm 2).

    Parameters
    ----------
    network : the supernetwork whose edges the clients rank.
    local : how a client trains; the learning rate is that of the first round.
    ballots : the kind of ballots, as words that `Kind.parse` reads; "top=50%" is Sparse-FRL.
    broadcasts : the kind of broadcasts.
    rate_decay : what the learning rate is multiplied with after every round.
    run : 16 bytes that tell runs apart, so that no ballot of one can be counted in another.
    vote : "borda", the paper's vote, or the aggregation rule that takes its place (docs/votes.md).
    expected : the share of malicious ballots that such a rule is to withstand.
    memory : how many bytes it may use.
    """

    network: Supernetwork
    local: LocalTraining = field(default_factory=LocalTraining)
    ballots: str = "exact packed"
    broadcasts: str = "exact packed"
    rate_decay: float = 0.999
    run: bytes = bytes(16)
    vote: str = "screened-mean"
    expected: float = 0.4
    memory: int = 2**30

    def __post_init__(self) -> None:
        if self.vote != BORDA:
            Chain(self.vote)
        Kind.parse(self.ballots)
        if Kind.parse(self.broadcasts).shape is Shape.TOP:
            raise ConfigError(f"broadcasts is {self.broadcasts!r}: clients need the whole ranking")

    @property
    def seed(self) -> int:
        """The seed of the supernetwork, from which all other randomness is derived too."""
        return self.network.seed

    @property
    def layout(self) -> Layout:
        """The layers whose edges are ranked."""
        return self.network.layout

    def init(self) -> FRLState:
        """Return the ranking of the initial scores (line 4)."""
        return FRLState(0, self._seed_ranking)

    def broadcast(self, state: FRLState) -> bytes:
        """Write down the global ranking."""
        return self._broadcast_form(state.round).fill_in(state.ranking)

    def state_of(self, broadcast: bytes) -> FRLState:
        """Return the state that a broadcast tells of."""
        opened = self._open(broadcast)
        return FRLState(opened.round, opened.ranking)

    def reference(self, broadcast: bytes) -> Ranking:
        """Read the global ranking."""
        return self._open(broadcast).ranking

    def learn(
        self, broadcast: bytes, samples: Samples, rng: np.random.Generator, device: torch.device
    ) -> Learned:
        """Rank the edges on a client's data (lines 9 to 12)."""
        opened = self._open(broadcast)
        rate = self.local.learning_rate * self.rate_decay**opened.round
        local = replace(self.local, learning_rate=rate)
        trained = edge_popup(self._masked_network(device), opened.scores, samples, rng, local)
        return Learned(self.network.rank(trained.scores), trained.loss)

    def write(self, broadcast: bytes, update: Ranking, sender: int) -> bytes:
        """Fill in a client's ballot."""
        return self.form(broadcast).fill_in(update, sender)

    def form(self, broadcast: bytes) -> Form:
        """Return the form of the ballots that follow a broadcast."""
        opened = self._open(broadcast)
        kind = Kind.parse(self.ballots)
        return Form(self.layout, kind, opened.ranking, self.run, opened.round)

    def collector(self, broadcast: bytes, asked: Collection[int]) -> Tally | Box:
        """Return an empty tally, or an empty box for a vote that must see all ballots together."""
        form = self.form(broadcast)
        return Tally(form, asked) if self.vote == BORDA else Box(form, asked, self.memory // 2)

    def combined(
        self,
        reference: Ranking,
        updates: list[Ranking],
        malicious: int,  # noqa: ARG002
        round_number: int,
    ) -> Ranking:
        """Return the vote of some rankings."""
        if self.vote == BORDA:
            return vote_on(updates, self.layout)
        form = Form(self.layout, reference=reference, round=round_number)
        box = Box(form, memory=self.memory // 2)
        for sender, update in enumerate(updates):
            box.add(sender, form.fill_in(update, sender))
        return self._vote(box)

    def displacement(self, reference: Ranking, update: Ranking) -> NDArray[np.float32]:
        """Return how far each edge has moved from its reputation in the global ranking."""
        moved = reputation(update, self.layout) - reputation(reference, self.layout)
        return moved.astype(np.float32)

    def displaced(self, reference: Ranking, displacement: NDArray[np.float32]) -> Ranking:
        """Return the ranking of the global reputations, each moved by a displacement."""
        moved = reputation(reference, self.layout) + displacement
        return rank(moved.astype(np.float32), self.layout)

    def most_expected(self, clients: int) -> int:
        """Return the most malicious ballots that the vote can bear."""
        return clients if self.vote == BORDA else Chain(self.vote).most(clients)

    def aggregate(self, state: FRLState, collected: Tally | Box, malicious: int = 0) -> FRLState:  # noqa: ARG002
        """Let the ballots decide on the next ranking (line 15). A vote is not told who is malicious."""
        ranking = collected.vote() if isinstance(collected, Tally) else self._vote(collected)
        return FRLState(state.round + 1, ranking)

    def _vote(self, box: Box) -> Ranking:
        chain, ballots = Chain(self.vote), len(box.voters)
        malicious = min(math.ceil(self.expected * ballots), chain.most(ballots))
        rng = keyed_generator(self.seed, Randomness.AGGREGATION, box.form.round)
        return robust_vote(box, chain, malicious, rng, self.memory // 2)

    def audit(self, before: FRLState, collected: Tally | Box, after: FRLState) -> Audit:
        """Return what is to be said about the vote that led from one state to the next."""
        keep = self.network.keep
        if isinstance(collected, Tally):
            return audit_tally(collected, before.ranking, after.ranking, keep)
        width = slice_width(collected, self.memory // 2)
        return audit_box(collected, before.ranking, after.ranking, keep, width)

    def model(self, state: FRLState) -> nn.Module:
        """Return the subnetwork of the global ranking."""
        return self.network.subnetwork(state.ranking)

    def traffic(self) -> Traffic:
        """Return what a client sends and receives: its ballot, and the whole global ranking."""
        kinds = (Kind.parse(self.ballots), Kind.parse(self.broadcasts))
        upload, download = (packed_bits(self.layout, kind) for kind in kinds)
        return Traffic(upload / 8, download / 8)

    def pack(self, state: FRLState) -> dict[str, NDArray[Any]]:
        """Return the state as arrays for a checkpoint."""
        return {"round": np.array(state.round), "ranking": state.ranking}

    def unpack(self, arrays: Mapping[str, NDArray[Any]]) -> FRLState:
        """Return the state that `pack` turned into arrays."""
        try:
            state = FRLState(int(arrays["round"]), arrays["ranking"])
            check_ranking(state.ranking, self.layout)
        except (KeyError, TypeError, BallotError) as error:
            raise RunError(f"the checkpoint does not hold a ranking of this network ({error})") from error
        return state

    def _open(self, broadcast: bytes) -> Opened:
        """Read a broadcast and place the scores by its ranking (line 10), once for all clients of a round."""
        if self._last_opened is None or self._last_opened.message is not broadcast:
            number = round_of(broadcast)
            ranking = self._broadcast_form(number).read(broadcast)
            self.__dict__["_last_opened"] = Opened(broadcast, number, ranking, self.network.place(ranking))
        assert self._last_opened is not None
        return self._last_opened

    @cached_property
    def _last_opened(self) -> Opened | None:
        return None

    def _broadcast_form(self, round_number: int) -> Form:
        kind = Kind.parse(self.broadcasts)
        reference = self._seed_ranking if kind.coded else None
        return Form(self.layout, kind, reference, self.run, round_number, Purpose.BROADCAST)

    @cached_property
    def _seed_ranking(self) -> Ranking:
        return self.network.initial_ranking()

    def _masked_network(self, device: torch.device) -> MaskedNetwork:
        """Return the network to train in: one for each device, since its buffers serve all clients."""
        if device not in self._masked_networks:
            self._masked_networks[device] = MaskedNetwork(self.network, device)
        return self._masked_networks[device]

    @cached_property
    def _masked_networks(self) -> dict[torch.device, MaskedNetwork]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}
