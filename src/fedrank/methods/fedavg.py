"""Federated averaging, with the mean or a robust rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrank.aggregators import Aggregator, AssumedMalicious, RuleFunction
from fedrank.aggregators.measured import Measuring, measuring_of
from fedrank.ballots.candidates import Inquiry, question_round
from fedrank.data import Samples
from fedrank.errors import ConfigError
from fedrank.methods.base import check_assumed_malicious
from fedrank.methods.message import Content
from fedrank.methods.proposals import Proposals, WeightProposals, weights_report
from fedrank.methods.weights import Floats, UpdateStore, WeightMethod, WeightState, aggregated, moved
from fedrank.nn import Workspace


@dataclass(frozen=True, repr=False)
class FedAvg(WeightMethod):
    """Federated averaging (McMahan et al., 2017).

    Parameters
    ----------
    aggregator : the rule that turns the clients' updates into one: `mean`, a robust one, or a function of
        your own.
    assumed_malicious : how many malicious clients it assumes; by default, as in the paper, the actual
        number of the round, which only a simulation knows.
    weighted : weigh clients by their numbers of training samples, as published; by default all weigh the
        same. True takes the numbers from the federation; else give them, by client. Only for `mean`.
    """

    aggregator: str | Mapping[str, Any] | Aggregator | RuleFunction = "mean"
    assumed_malicious: AssumedMalicious = "actual"
    weighted: bool | Mapping[int, int] = field(default=False, kw_only=True)

    def __post_init__(self, seed: int | None) -> None:
        super().__post_init__(seed)
        check_assumed_malicious(self.assumed_malicious)
        rule = self.rule
        if not isinstance(self.weighted, bool):
            samples = {int(client): count for client, count in self.weighted.items()}
            for client, count in samples.items():
                if not count > 0:
                    raise ConfigError(f"weighted must be more than 0 for each client, got {client}: {count}")
            object.__setattr__(self, "weighted", samples)  # keys read from a file are strings
        if self.weighted and rule.name != "mean":
            raise ConfigError(
                f"only the aggregator 'mean' can be weighted, got {rule.name!r}: "
                "a robust rule gives all clients equal weight"
            )

    @property
    def rule(self) -> Aggregator:
        """The aggregator."""
        return Aggregator.of(self.aggregator)

    def encode(self, received: WeightState, update: Floats, sender: int) -> bytes:
        """Send the whole update."""
        return self._envelope(Content.UPDATE, received.round).close(update.astype("<f4").tobytes(), sender)

    def decode(self, message: bytes, sender: int, round_number: int) -> Floats:
        """Return the update that a message tells of."""
        envelope = self._envelope(Content.UPDATE, round_number)
        payload = envelope.open(message, sender, 4 * self.network.layout.size)
        return np.frombuffer(payload, "<f4").astype(np.float32)

    def aggregate(self, state: WeightState, collected: UpdateStore) -> WeightState:
        """Move the weights by the aggregate of the updates."""
        if self.rule.measures:
            raise ConfigError(f"the aggregator {self.rule.name!r} needs validators")
        if self.weighted:
            return moved(state, self._weighted_mean(collected.by_client))
        return moved(state, self.combine(collected.in_order(), state.round))

    def _weighted_mean(self, updates: Mapping[int, Floats]) -> Floats:
        if isinstance(self.weighted, bool):
            raise ConfigError(
                "weighted=True needs a federation to count samples in; give them: {client: samples}"
            )
        if missing := updates.keys() - self.weighted.keys():
            raise ConfigError(f"weighted does not say how many samples client {min(missing)} has")
        total = np.zeros(self.network.layout.size)
        for client in sorted(updates):
            total += self.weighted[client] * updates[client].astype(np.float64)
        return np.asarray(total / sum(self.weighted[client] for client in updates), np.float32)

    @property
    def measuring(self) -> Measuring | None:
        """How validators measure, if the aggregator asks for them."""
        return measuring_of(self.rule)

    def inquiry(self, round_number: int) -> Inquiry:
        """Return what the server and the validators of a round agree on."""
        return Inquiry(self.run, self.network.layout.digest, round_number)

    def proposals(
        self, state: WeightState, collected: UpdateStore, members: NDArray[np.float64]
    ) -> Proposals:
        """Return the weights that units of updates lead to."""
        assert self.measuring is not None
        return WeightProposals(self.network, state.weights, collected, self.measuring.edges, members)

    def adopt(self, state: WeightState, step: Floats) -> WeightState:
        """Return the next state after a step that validators have chosen."""
        return moved(state, step)

    def measure(self, question: bytes, samples: Samples, workspace: Workspace) -> bytes:
        """Report what candidates do to the loss on a validator's data."""
        return weights_report(question, self.inquiry(question_round(question)), samples, workspace)

    def combine(self, updates: list[Floats], round_number: int) -> Floats:
        """Return the aggregate of the updates of a round."""
        malicious = self.rule.assumed(self.assumed_malicious, len(updates))
        return aggregated(self.rule, updates, malicious, self.network.seed, round_number)
