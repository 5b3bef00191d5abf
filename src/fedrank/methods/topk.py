"""TopK: only the largest changes are sent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedrank.arguments import check_number
from fedrank.errors import BallotError
from fedrank.methods.fedavg import FedAvg
from fedrank.methods.message import Content
from fedrank.methods.weights import Floats, WeightState
from fedrank.rank import top_count


@dataclass(frozen=True, repr=False)
class TopK(FedAvg):
    """Sparsified averaging (Aji and Heafield, 2017; Alistarh et al., 2018).

    Parameters
    ----------
    share : how many of its changes a client sends, those of the largest magnitude; the others count as 0.
    """

    share: float = 0.1

    def __post_init__(self, seed: int | None) -> None:
        super().__post_init__(seed)
        check_number("share", self.share, above=0, most=1)

    def encode(self, received: WeightState, update: Floats, sender: int) -> bytes:
        """Send where the largest changes are, and what they are."""
        kept = np.zeros(update.size, np.bool_)
        kept[np.argsort(-np.abs(update), kind="stable")[: self.sent]] = True
        payload = np.packbits(kept, bitorder="little").tobytes() + update[kept].astype("<f4").tobytes()
        return self._envelope(Content.SPARSE, received.round).close(payload, sender)

    def decode(self, message: bytes, sender: int, round_number: int) -> Floats:
        """Return the update that a message tells of, with 0 for what was not sent."""
        size = self.network.layout.size
        flags = (size + 7) // 8
        payload = self._envelope(Content.SPARSE, round_number).open(message, sender, flags + 4 * self.sent)
        kept = np.unpackbits(np.frombuffer(payload[:flags], np.uint8), bitorder="little").astype(np.bool_)
        if kept[size:].any() or np.count_nonzero(kept) != self.sent:
            raise BallotError(f"the message does not name exactly {self.sent} of {size} weights")
        update = np.zeros(size, np.float32)
        update[kept[:size]] = np.frombuffer(payload[flags:], "<f4")
        return update

    @property
    def sent(self) -> int:
        """How many changes a client sends."""
        return top_count(self.network.layout.size, self.share)
