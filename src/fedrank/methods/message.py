"""Messages of the methods that send weights.

Like a ballot they name the run, the round, the sender and the layout, so that nothing can be replayed.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from fedrank.ballots.frame import CHECKSUM, Frame
from fedrank.errors import BallotError

FRAME = Frame(
    magic=b"FRLW",
    version=1,
    fields="B2xIQ16s16s",
    names=("content", "round", "sender", "run", "layout"),
)


class Content(enum.IntEnum):
    """What a message carries."""

    WEIGHTS = 1
    """From the server: all weights, 32-bit floats."""
    UPDATE = 2
    """The change of all weights, 32-bit floats."""
    SIGNS = 3
    """One bit for each weight: 1 where it is to grow."""
    SPARSE = 4
    """One bit for each weight that says whether it is sent, then the sent ones' changes, 32-bit floats."""


@dataclass(frozen=True)
class Envelope:
    """What sender and receiver agree on about the messages of a round."""

    content: Content
    run: bytes
    round: int
    layout: bytes

    def close(self, payload: bytes, sender: int) -> bytes:
        """Return the message."""
        return FRAME.close(self._header(sender), payload)

    def open(self, message: bytes, sender: int, length: int) -> memoryview:
        """Return what a message of this sender carries; anything else raises BallotError."""
        expected = FRAME.header_bytes + length + CHECKSUM.size
        if not isinstance(message, bytes) or len(message) != expected:
            what = f"{len(message)} bytes" if isinstance(message, bytes) else type(message).__name__
            raise BallotError(f"expected a message of {expected} bytes, this is {what}")
        return FRAME.open(message, self._header(sender))

    def _header(self, sender: int) -> bytes:
        return FRAME.header(self.content, self.round, sender, self.run, self.layout)


def round_of(message: bytes) -> int:
    """Return the round that a message claims to belong to; opening it checks the claim."""
    return int(FRAME.claims(message)["round"])
