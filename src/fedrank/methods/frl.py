"""Federated Rank Learning: the paper's Algorithm 2."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedrank.aggregators import RULES, Aggregator, AssumedMalicious, RuleFunction
from fedrank.aggregators.measured import Measuring, measuring_of
from fedrank.arguments import check_kind, whole_number
from fedrank.ballots import BallotCodec, BallotFormat, BallotStore, MessageType, Shape, Tally
from fedrank.ballots.candidates import Inquiry, question_round
from fedrank.ballots.codec import round_of
from fedrank.data import Samples
from fedrank.errors import BallotError, ConfigError, RunError
from fedrank.methods.base import ClientUpdate, check_assumed_malicious, check_settings, method_repr
from fedrank.methods.proposals import Proposals, RankingProposals, rankings_report
from fedrank.methods.votes import Ballots, robust_vote
from fedrank.nn import LocalTraining, Supernetwork, Workspace, check_supernetwork, edge_popup
from fedrank.parameters import did_you_mean
from fedrank.rank import Ranking, check_ranking

BORDA = "borda"
"""The paper's vote, a sum of reputations, which needs no ballot once it is counted."""


@dataclass(frozen=True)
class FRLState:
    """The global ranking after `round` rounds."""

    round: int
    ranking: Ranking


@dataclass(frozen=True, eq=False)
class RoundInput:
    """What a client reads from a broadcast: the round, the global ranking, and the scores that follow it."""

    round: int
    ranking: Ranking
    scores: NDArray[np.float32]


def check_format(name: str, text: Any) -> BallotFormat:
    """Return a ballot format; raise ConfigError for a text that is none."""
    check_kind(name, text, str, "a ballot format, such as 'top=50%'")
    try:
        return BallotFormat.parse(text)
    except ConfigError as error:
        raise ConfigError(f"{name} = {text!r}: {error}") from error


def check_vote(vote: Any) -> None:
    """Raise ConfigError for a vote that does not exist."""
    rules = [name for name, rule in RULES.items() if not rule.is_preaggregator]
    if isinstance(vote, str) and "+" not in vote and vote not in (*rules, BORDA):
        raise ConfigError(f"unknown vote {vote!r}{did_you_mean(vote, [*rules, BORDA])}")
    if vote != BORDA:
        Aggregator.of(vote)


@dataclass(frozen=True, repr=False)
class FRL:
    """Federated Rank Learning (Mozaffari et al., 2023, Algorithm 2).

    Parameters
    ----------
    network : the supernetwork whose edges the clients rank.
    local : how a client trains; the learning rate is that of the first round.
    ballots : the ballot format, as `BallotFormat.parse` reads it; "top=50%" is Sparse-FRL.
    broadcasts : the format of broadcasts.
    rate_decay : what the learning rate is multiplied by after every round.
    run : 16 bytes that tell runs apart, so that no ballot of one can be counted in another.
    vote : "borda", the paper's vote, or the aggregator that takes its place (docs/votes.md), which may be a
        function of your own.
    assumed_malicious : the share of malicious ballots that such an aggregator is to withstand, or their
        number if it is a whole one.
    memory : how many bytes it may use.
    """

    network: Supernetwork
    local: LocalTraining = field(default_factory=LocalTraining)
    ballots: str = "exact packed"
    broadcasts: str = "exact packed"
    rate_decay: float = 0.999
    run: bytes = bytes(16)
    vote: str | Mapping[str, Any] | Aggregator | RuleFunction = "measured-mean"
    assumed_malicious: AssumedMalicious = 0.4
    memory: int = 2**30

    def __post_init__(self) -> None:
        check_supernetwork(self.network)
        check_vote(self.vote)
        check_settings(self.local, self.rate_decay, self.run)
        check_assumed_malicious(self.assumed_malicious)
        whole_number("memory", self.memory, least=1)
        check_format("ballots", self.ballots)
        if check_format("broadcasts", self.broadcasts).shape is Shape.TOP:
            raise ConfigError(f"broadcasts is {self.broadcasts!r}, but clients need the whole ranking")

    def __repr__(self) -> str:
        return method_repr(self)

    @property
    def rule(self) -> Aggregator | None:
        """The aggregator that votes, if it is not the paper's sum."""
        return None if self.vote == BORDA else Aggregator.of(self.vote)

    def init(self) -> FRLState:
        """Rank the initial scores (line 4)."""
        return FRLState(0, self.network.initial_ranking)

    def broadcast(self, state: FRLState) -> bytes:
        """Send the global ranking to the clients of a round (lines 6 and 7)."""
        return self._broadcast_codec(state.round).encode(state.ranking)

    def receive(self, broadcast: bytes) -> RoundInput:
        """Assign the sorted initial scores to the edges by the global ranking (lines 9 and 10)."""
        number = round_of(broadcast)
        ranking = self._broadcast_codec(number).decode(broadcast)
        return RoundInput(number, ranking, self.network.assign_scores(ranking))

    def client_update(
        self, received: RoundInput, samples: Samples, rng: np.random.Generator, workspace: Workspace
    ) -> ClientUpdate:
        """Train the scores and rank them (lines 11 and 12)."""
        rate = self.local.learning_rate * self.rate_decay**received.round
        local = replace(self.local, learning_rate=rate)
        trained = edge_popup(workspace.masked(local.precision), received.scores, samples, rng, local)
        return ClientUpdate(self.network.rank(trained.scores), trained.loss)

    def encode(self, received: RoundInput, update: Ranking, sender: int) -> bytes:
        """Send the ranking to the server as a ballot (line 13)."""
        return self.ballot_codec(received).encode(update, sender)

    def collector(self, received: RoundInput, asked: Collection[int]) -> Tally | BallotStore:
        """Return an empty tally, or an empty store for a vote that must see all ballots together."""
        codec = self.ballot_codec(received)
        return Tally(codec, asked) if self.vote == BORDA else BallotStore(codec, asked, self.memory // 2)

    def aggregate(self, state: FRLState, collected: Tally | Ballots) -> FRLState:
        """Let the ballots vote on the next ranking (line 15).

        A measured vote needs validators: `proposals` makes what they choose from.
        """
        if isinstance(collected, Tally):
            return FRLState(state.round + 1, collected.vote())
        assert self.rule is not None
        if self.rule.measures:
            raise ConfigError(f"the vote {self.rule.name!r} needs validators")
        malicious = self.rule.assumed(self.assumed_malicious, len(collected.voters))
        return FRLState(state.round + 1, robust_vote(collected, self.rule, malicious, self.network.seed))

    @property
    def measuring(self) -> Measuring | None:
        """How validators measure, if the vote asks for them."""
        return measuring_of(self.rule)

    def inquiry(self, round_number: int) -> Inquiry:
        """Return what the server and the validators of a round agree on."""
        return Inquiry(self.run, self.network.layout.digest, round_number)

    def proposals(self, state: FRLState, collected: Ballots, members: NDArray[np.float64]) -> Proposals:
        """Return the rankings that units of ballots vote for."""
        assert self.measuring is not None
        return RankingProposals(self.network, state.ranking, collected, self.measuring.edges, members)

    def unmeasured(self, state: FRLState, collected: Ballots) -> Ranking:
        """Return what all ballots of a measured vote make together, if nobody measures them."""
        members = np.eye(len(collected.voters))
        made = self.proposals(state, collected, members).result(np.ones(len(members), np.bool_))
        return np.asarray(made, np.int32)

    def adopt(self, state: FRLState, ranking: Ranking) -> FRLState:
        """Return the next state with a ranking that validators have chosen."""
        return FRLState(state.round + 1, ranking)

    def measure(self, question: bytes, samples: Samples, workspace: Workspace) -> bytes:
        """Report what candidates do to the loss on a validator's data."""
        return rankings_report(question, self.inquiry(question_round(question)), samples, workspace)

    def model(self, state: FRLState) -> nn.Module:
        """Return the subnetwork of the global ranking."""
        return self.network.subnetwork(state.ranking)

    def pack(self, state: FRLState) -> dict[str, NDArray[Any]]:
        """Return the state as arrays for a checkpoint."""
        return {"round": np.array(state.round), "ranking": state.ranking}

    def unpack(self, arrays: Mapping[str, NDArray[Any]]) -> FRLState:
        """Return the state that `pack` turned into arrays."""
        try:
            state = FRLState(int(arrays["round"]), arrays["ranking"])
            check_ranking(state.ranking, self.network.layout)
        except (KeyError, TypeError, BallotError) as error:
            raise RunError(f"the checkpoint does not hold a ranking of this network ({error})") from error
        return state

    def ballot_codec(self, received: RoundInput) -> BallotCodec:
        """Return the codec of a round's ballots."""
        ballot_format = BallotFormat.parse(self.ballots)
        return BallotCodec(self.network.layout, ballot_format, received.ranking, self.run, received.round)

    def _broadcast_codec(self, round_number: int) -> BallotCodec:
        ballot_format = BallotFormat.parse(self.broadcasts)
        reference = self.network.initial_ranking if ballot_format.coded else None
        layout, sent = self.network.layout, MessageType.BROADCAST
        return BallotCodec(layout, ballot_format, reference, self.run, round_number, sent)
