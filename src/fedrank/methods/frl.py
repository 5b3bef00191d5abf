"""Federated Rank Learning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedrank.data import Samples
from fedrank.errors import BallotError, ConfigError, RunError
from fedrank.methods.base import Traffic, Update
from fedrank.nn import LocalTraining, MaskedNetwork, Supernetwork, edge_popup
from fedrank.rank import Ballot, Ranking, Tally
from fedrank.rank.traffic import packed_bits


@dataclass(frozen=True)
class FRLState:
    """The global ranking after `round` rounds."""

    round: int
    ranking: Ranking


@dataclass(frozen=True)
class FRL:
    """Federated Rank Learning (Mozaffari et al., 2023, Algorithm 2).

    Parameters
    ----------
    network : the supernetwork whose edges the clients rank.
    local : how a client trains; the learning rate is that of the first round.
    top : the share of a ranking that a client sends; below 1 this is Sparse-FRL.
    rate_decay : what the learning rate is multiplied with after every round.
    """

    network: Supernetwork
    local: LocalTraining = field(default_factory=LocalTraining)
    top: float = 1.0
    rate_decay: float = 0.999

    def __post_init__(self) -> None:
        if not 0 < self.top <= 1:
            raise ConfigError(
                f"top is {self.top}: a ballot holds more than 0 and at most all (1) of a ranking"
            )

    @property
    def seed(self) -> int:
        """The seed of the supernetwork, from which all other randomness is derived too."""
        return self.network.seed

    def init(self) -> FRLState:
        """Return the ranking of the initial scores (line 4)."""
        return FRLState(0, self.network.initial_ranking())

    def client_update(
        self, state: FRLState, samples: Samples, rng: np.random.Generator, device: torch.device
    ) -> Update:
        """Rank the edges on a client's data (lines 9 to 12)."""
        rate = self.local.learning_rate * self.rate_decay**state.round
        scores = self._placed_scores(state.ranking)
        local = replace(self.local, learning_rate=rate)
        trained = edge_popup(self._masked_network(device), scores, samples, rng, local)
        ranking = self.network.rank(trained.scores)
        return Update(Ballot.of(ranking, self.network.layout, self.top), trained.loss)

    def collector(self) -> Tally:
        """Return an empty tally."""
        return Tally(self.network.layout, self.top)

    def aggregate(self, state: FRLState, collected: Tally) -> FRLState:
        """Let the ballots decide on the next ranking (line 15)."""
        return FRLState(state.round + 1, collected.vote())

    def model(self, state: FRLState) -> nn.Module:
        """Return the subnetwork of the global ranking."""
        return self.network.subnetwork(state.ranking)

    def traffic(self) -> Traffic:
        """Return what a client sends and receives: its ballot, and the whole global ranking."""
        layout = self.network.layout
        return Traffic(upload_bytes=packed_bits(layout, self.top) / 8, download_bytes=packed_bits(layout) / 8)

    def pack(self, state: FRLState) -> dict[str, NDArray[Any]]:
        """Return the state as arrays for a checkpoint."""
        return {"round": np.array(state.round), "ranking": state.ranking}

    def unpack(self, arrays: Mapping[str, NDArray[Any]]) -> FRLState:
        """Return the state that `pack` turned into arrays."""
        try:
            state = FRLState(int(arrays["round"]), arrays["ranking"])
            Ballot(state.ranking).validate(self.network.layout)
        except (KeyError, TypeError, BallotError) as error:
            raise RunError(f"the checkpoint does not hold a ranking of this network ({error})") from error
        return state

    def _placed_scores(self, ranking: Ranking) -> NDArray[np.float32]:
        """Return the scores that follow a ranking: the same for all clients of a round."""
        if self._last_placed.get("ranking") is not ranking:
            self._last_placed.update(ranking=ranking, scores=self.network.place(ranking))
        return self._last_placed["scores"]

    @cached_property
    def _last_placed(self) -> dict[str, NDArray[Any]]:
        return {}

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
