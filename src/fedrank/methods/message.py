"""Messages of the methods that send weights: a header, what is sent, a checksum.

Like a ballot they name the run, the round, the sender and the layout, so that nothing can be replayed.
All numbers are little-endian.
"""

from __future__ import annotations

import enum
import struct
import zlib
from dataclasses import dataclass

from fedrank.errors import BallotError

MAGIC = b"FRLW"
VERSION = 1
HEADER = struct.Struct("<4sBB2xIQ16s16s")
CHECKSUM = struct.Struct("<I")
FIELDS = ("magic number", "version", "content", "round", "sender", "run", "layout")


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
        body = self._header(sender) + payload
        return body + CHECKSUM.pack(zlib.crc32(body))

    def open(self, message: bytes, sender: int, length: int) -> memoryview:
        """Return what a message of this sender carries; anything else raises BallotError."""
        expected = HEADER.size + length + CHECKSUM.size
        if not isinstance(message, bytes) or len(message) != expected:
            what = f"{len(message)} bytes" if isinstance(message, bytes) else type(message).__name__
            raise BallotError(f"a message of {expected} bytes was asked for, this is {what}")
        if message[: HEADER.size] != self._header(sender):
            found, ours = HEADER.unpack_from(message), HEADER.unpack(self._header(sender))
            wrong = [name for name, a, b in zip(FIELDS, found, ours, strict=True) if a != b]
            raise BallotError(f"the {(*wrong, 'header')[0]} of the message is not what was asked for")
        body = memoryview(message)[: -CHECKSUM.size]
        if zlib.crc32(body) != CHECKSUM.unpack_from(message, len(body))[0]:
            raise BallotError("the checksum is wrong: the message was damaged on its way")
        return body[HEADER.size :]

    def _header(self, sender: int) -> bytes:
        return HEADER.pack(MAGIC, VERSION, self.content, self.round, sender, self.run, self.layout)


def round_of(message: bytes) -> int:
    """Return the round that a message claims to belong to; opening it checks the claim."""
    if len(message) < HEADER.size:
        raise BallotError(f"this is no message: it has {len(message)} bytes, the header alone {HEADER.size}")
    return int(HEADER.unpack_from(message)[3])
