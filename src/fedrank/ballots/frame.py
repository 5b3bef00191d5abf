"""The frame of all messages: a magic number, a header, a payload, a CRC-32.

All numbers are little-endian.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any

from fedrank.errors import BallotError

CHECKSUM = struct.Struct("<I")


@dataclass(frozen=True)
class Frame:
    """A kind of message. Its first two header fields are always the magic number and the version.

    Parameters
    ----------
    magic : four bytes that a message begins with.
    version : of the format.
    fields : struct codes of the further header fields, such as "BB2xI".
    names : what error messages call these fields.
    """

    magic: bytes
    version: int
    fields: str
    names: tuple[str, ...]

    @property
    def header_bytes(self) -> int:
        """The length of a header."""
        return self._struct.size

    def header(self, *values: Any) -> bytes:
        """Return the header with these values."""
        return self._struct.pack(self.magic, self.version, *values)

    def close(self, header: bytes, *payload: bytes) -> bytes:
        """Return the message."""
        body = b"".join([header, *payload])
        return body + CHECKSUM.pack(zlib.crc32(body))

    def open(self, message: bytes, expected: bytes) -> memoryview:
        """Return the payload of a message that has the expected header; anything else raises BallotError."""
        if message[: self.header_bytes] != expected:
            found, wanted = self._struct.unpack_from(message), self._struct.unpack(expected)
            names = ("magic number", "version", *self.names)
            for name, theirs, ours in zip(names, found, wanted, strict=True):
                if theirs != ours:
                    shown = (item.hex() if isinstance(item, bytes) else item for item in (theirs, ours))
                    raise BallotError("the {} is {}, expected {}".format(name, *shown))
            raise BallotError("the header has bytes set that must be 0")
        return self.verified(message)[self.header_bytes :]

    def verified(self, message: bytes) -> memoryview:
        """Check a message's checksum and return the message without it."""
        body = memoryview(message)[: -CHECKSUM.size]
        if zlib.crc32(body) != CHECKSUM.unpack_from(message, len(body))[0]:
            raise BallotError("wrong checksum: the message was damaged in transit")
        return body

    def claims(self, message: bytes) -> dict[str, Any]:
        """Return what a header claims; opening the message checks it."""
        if len(message) < self.header_bytes:
            raise BallotError(
                f"the message has {len(message)} bytes, but its header alone has {self.header_bytes}"
            )
        return dict(zip(self.names, self._struct.unpack_from(message)[2:], strict=True))

    @property
    def _struct(self) -> struct.Struct:
        return struct.Struct(f"<4sB{self.fields}")
