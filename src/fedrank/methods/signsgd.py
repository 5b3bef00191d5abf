"""SignSGD with majority vote."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrank.arguments import check_number
from fedrank.errors import BallotError, ModelError, TooFewUpdatesError
from fedrank.methods.message import Content
from fedrank.methods.weights import Floats, WeightMethod, WeightState, moved
from fedrank.nn.plain import running_statistics


class SignTally:
    """The sum of signs: like a tally of rankings it keeps no message, and any order gives the same."""

    def __init__(self, method: SignSGD, round_number: int, asked: Collection[int]) -> None:
        self.method = method
        self.round = round_number
        self.asked = asked
        self.total = np.zeros(method.network.layout.size, np.int32)
        self.voters: set[int] = set()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"method": None}  # who merges it has one

    def add(self, sender: int, message: bytes) -> None:
        """Count the signs of a message. Anything else raises BallotError and leaves the tally untouched."""
        if sender not in self.asked or sender in self.voters:
            raise BallotError(f"client {sender} was not asked in this round, or has sent its signs already")
        self.total += self.method.decode(message, sender, self.round).astype(np.int32)
        self.voters.add(sender)

    def merge(self, other: SignTally) -> None:
        """Add what another worker has counted."""
        if twice := self.voters & other.voters:
            raise BallotError(f"client {min(twice)} has sent its signs to both of two workers")
        self.total += other.total
        self.voters |= other.voters


@dataclass(frozen=True, repr=False)
class SignSGD(WeightMethod):
    """SignSGD with majority vote (Bernstein et al., 2019), on the updates of local training.

    Parameters
    ----------
    server_rate : by how much the server moves each weight in the direction of the majority.
    """

    server_rate: float = 3e-3

    def __post_init__(self, seed: int | None) -> None:
        super().__post_init__(seed)
        if statistic := next(running_statistics(self.network.skeleton), None):
            layer = statistic[0].rpartition(".")[0] or "the model"
            raise ModelError(
                f"{layer}: signs cannot carry running statistics; "
                "use GroupNorm instead of BatchNorm, or FedAvg, which averages them"
            )
        check_number("server_rate", self.server_rate, above=0)

    def encode(self, received: WeightState, update: Floats, sender: int) -> bytes:
        """Send the signs of the update; 0 counts as growth."""
        payload = np.packbits(update >= 0, bitorder="little").tobytes()
        return self._envelope(Content.SIGNS, received.round).close(payload, sender)

    def decode(self, message: bytes, sender: int, round_number: int) -> Floats:
        """Return +1 or -1 for each weight."""
        size = self.network.layout.size
        payload = self._envelope(Content.SIGNS, round_number).open(message, sender, (size + 7) // 8)
        bits = np.unpackbits(np.frombuffer(payload, np.uint8), bitorder="little")
        if bits[size:].any():
            raise BallotError("the message has bits set behind its last sign")
        return bits[:size].astype(np.float32) * 2 - 1

    def collector(self, received: WeightState, asked: Collection[int]) -> SignTally:  # type: ignore[override]
        """Return an empty tally of signs."""
        return SignTally(self, received.round, asked)

    def aggregate(self, state: WeightState, collected: SignTally) -> WeightState:
        """Move every weight by `server_rate` in the direction of the majority."""
        if not collected.voters:
            raise TooFewUpdatesError("no client has sent its signs")
        return moved(state, self.step(collected.total))

    def step(self, total: NDArray[np.int32]) -> Floats:
        """Return by how much the weights are moved, given the sums of signs."""
        return np.float32(self.server_rate) * np.sign(total).astype(np.float32)
