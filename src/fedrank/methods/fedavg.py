"""Federated averaging, with the mean or a robust rule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedrank.aggregators import Chain
from fedrank.methods.base import Traffic
from fedrank.methods.message import Content, round_of
from fedrank.methods.weights import Floats, Updates, WeightMethod, WeightState, aggregated, moved


@dataclass(frozen=True)
class FedAvg(WeightMethod):
    """Federated averaging (McMahan et al., 2017); every client counts the same.

    Parameters
    ----------
    aggregator : the rule that turns the clients' updates into one: `mean`, or a robust one.
    """

    aggregator: str = "mean"

    def __post_init__(self) -> None:
        Chain(self.aggregator)

    def write(self, broadcast: bytes, update: Floats, sender: int) -> bytes:
        """Send the whole update."""
        envelope = self._envelope(Content.UPDATE, round_of(broadcast))
        return envelope.close(update.astype("<f4").tobytes(), sender)

    def read(self, message: bytes, sender: int, round_number: int) -> Floats:
        """Return the update that a message tells of."""
        envelope = self._envelope(Content.UPDATE, round_number)
        payload = envelope.open(message, sender, 4 * self.layout.size)
        return np.frombuffer(payload, "<f4").astype(np.float32)

    def most_expected(self, clients: int) -> int:
        """Return the most malicious clients that the rule can bear."""
        return Chain(self.aggregator).most(clients)

    def combined(
        self,
        reference: Floats,  # noqa: ARG002
        updates: list[Floats],
        malicious: int,
        round_number: int,
    ) -> Floats:
        """Return the aggregate of some updates."""
        return aggregated(self.aggregator, updates, malicious, self.seed, round_number)

    def aggregate(self, state: WeightState, collected: Updates, malicious: int = 0) -> WeightState:
        """Move the weights by the aggregate of the updates."""
        updates = collected.in_order()
        return moved(state, aggregated(self.aggregator, updates, malicious, self.seed, state.round))

    def traffic(self) -> Traffic:
        """Return 32 bits for each weight, both ways."""
        return Traffic(4.0 * self.layout.size, 4.0 * self.layout.size)
