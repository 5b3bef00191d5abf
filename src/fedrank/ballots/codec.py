"""The ballot codec: encodes, decodes and checks ballots.

docs/wire-format.md specifies every byte. A broadcast is the server's own ballot: the same codec, applied to
the global ranking.
"""

from __future__ import annotations

import enum
import hashlib
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrank.ballots import packing, rans
from fedrank.ballots.format import BallotFormat, Shape
from fedrank.ballots.frame import CHECKSUM, Frame
from fedrank.ballots.kernels import add_in_order, note_levels
from fedrank.ballots.levels import Levels, levels_of
from fedrank.ballots.packing import Fault
from fedrank.errors import BallotError
from fedrank.rank import Layer, Layout, Ranking, rank_points

Section = NDArray[np.uint8]
EXACT = BallotFormat()

FRAME = Frame(
    magic=b"FRLB",
    version=1,
    fields="BBBIIQ16s16s",
    names=("message type", "shape", "coding", "number of levels", "round", "sender", "run", "layout"),
)
LENGTH = struct.Struct("<I")
_SENDER = slice(12, 40)  # round, sender and run: what the dither is drawn from

REASONS = {
    Fault.OUT_OF_RANGE: "holds a number that is out of range",
    Fault.OVERFULL: "names an edge twice, or puts too many edges into one level",
    Fault.PADDING: "has bits set behind its last number",
    Fault.TOO_SHORT: "ends too early",
    Fault.TOO_LONG: "does not end where it should",
}


class MessageType(enum.IntEnum):
    """Who sends a ranking."""

    BALLOT = 1
    BROADCAST = 2


@dataclass(frozen=True, eq=False)
class BallotCodec:
    """The ballots of one round of one run.

    Parameters
    ----------
    layout : the layers whose edges are ranked.
    ballot_format : what of a ranking is sent, and how.
    reference : the ranking that coded ballots are coded against: the broadcast for ballots, the
        seed's ranking for broadcasts. Packed ballots need none.
    run : 16 bytes that identify the run.
    round : the number of completed rounds.
    message_type : ballots by default.
    """

    layout: Layout
    ballot_format: BallotFormat = EXACT
    reference: Ranking | None = None
    run: bytes = bytes(16)
    round: int = 0
    message_type: MessageType = MessageType.BALLOT

    def encode(self, ranking: Ranking, sender: int = 0) -> bytes:
        """Return the bytes of a ballot with this ranking."""
        header = self._header(sender)
        shift = _shift(header)
        sections = [self._section(layer, ranking[layer.edges], shift) for layer in self.layout]
        return FRAME.close(header, *(LENGTH.pack(len(part)) for part in sections), *sections)

    def add_to(self, ballot: bytes, sender: int, total: NDArray[np.int64]) -> None:
        """Add a ballot's points to a tally: twice its reputations, since a level's middle may be half-way.

        Raises BallotError for anything but a legal ballot of this sender, and leaves the tally unchanged.
        """
        sections = self._open(ballot, sender)
        shift = _shift(ballot)
        if self.ballot_format.coded:
            self._count_coded(sections, shift, total)
        else:
            self._count_packed(sections, shift, total)

    def decode(self, ballot: bytes, sender: int = 0) -> Ranking:
        """Return the ranking of a ballot; edges of one level are ordered by edge number."""
        points = np.zeros(self.layout.size, np.int64)
        self.add_to(ballot, sender, points)
        return rank_points(points, self.layout)

    def checked(self, ballot: bytes, sender: int) -> bytes:
        """Check a ballot and return the level of each edge, layer by layer in numbers of a fixed width.

        `displacements_of` reads any part of them. Packed levels and exact rankings are such numbers already.
        """
        points = np.zeros(self.layout.size, np.int64)
        self.add_to(ballot, sender, points)
        if not self.ballot_format.coded and self.ballot_format.shape is not Shape.TOP:
            return ballot[FRAME.header_bytes + len(self.layout) * LENGTH.size : -CHECKSUM.size]
        sections = []
        for layer in self.layout:
            levels = self._levels(layer, sender)
            number_of = np.zeros(2 * layer.size, np.int32)
            number_of[levels.points] = np.arange(levels.points.size, dtype=np.int32)
            words = packing.pack(number_of[points[layer.edges]], self.checked_width(layer))
            sections.append(words.astype("<u4", copy=False).tobytes()[: self.checked_bytes(layer)])
        return b"".join(sections)

    def checked_width(self, layer: Layer) -> int:
        """Return the bits of a number in what `checked` returns."""
        return (self._levels(layer, 0).points.size - 1).bit_length()

    def checked_bytes(self, layer: Layer) -> int:
        """Return the length of a layer of what `checked` returns."""
        return (layer.size * self.checked_width(layer) + 7) // 8

    def points_of(self, layer: Layer, sender: int, content: Section, out: NDArray[np.float64]) -> None:
        """Write the points of some neighboring edges, from their part of what `checked` returns."""
        width, levels = self.checked_width(layer), self._levels(layer, sender)
        packing.read_points(content, width, levels.points, np.zeros(out.size, np.int32), out)

    def displacements_of(
        self, layer: Layer, sender: int, content: Section, base: NDArray[np.int32], out: NDArray[np.float64]
    ) -> None:
        """Write how far a ballot moves some neighboring edges, from their part of what `checked` returns.

        `base` are their points in the broadcast. A ballot is compared with the ballot of the same format
        that asks for no change: what all ballots lose by rounding is no displacement. Of a ballot that
        names only the top edges it is the smallest move that agrees with it.
        """
        width = self.checked_width(layer)
        match self.ballot_format.shape:
            case Shape.EXACT:
                packing.read_positions(content, width, base, out)
            case Shape.LEVELS:
                levels = self._levels(layer, sender)
                packing.read_points(content, width, levels.points, levels.rounded(base // 2), out)
            case Shape.TOP:
                self.points_of(layer, sender, content, out)
                border = 2 * (layer.size - self.ballot_format.named(layer.size))
                unnamed = (out == 0) & (border > 0)
                np.subtract(out, base, out=out, where=~unnamed)
                np.subtract(border - 2, base, out=out, where=unnamed & (base >= border))

    def deviation(self, layer: Layer) -> float:
        """Return the standard deviation of the points that a ballot gives to a layer's edges."""
        levels = self._levels(layer, 0)
        shares = np.diff(levels.borders) / layer.size
        mean = shares @ levels.points
        return float(np.sqrt(shares @ (levels.points - mean) ** 2))

    def matches(self, other: BallotCodec) -> bool:
        """Return whether ballots of another codec may be counted together with this one's."""
        return self._header(0) == other._header(0)

    def _header(self, sender: int) -> bytes:
        told = self.ballot_format
        flags = told.coded | told.dithered << 1
        return FRAME.header(
            self.message_type,
            told.shape,
            flags,
            told.header_number,
            self.round,
            sender,
            self.run,
            self.layout.digest,
        )

    def _levels(self, layer: Layer, sender: int) -> Levels:
        shift = _shift(self._header(sender)) if self.ballot_format.dithered else 0
        return levels_of(self.ballot_format, layer.size, shift)

    def _open(self, ballot: bytes, sender: int) -> list[Section]:
        """Check everything about a ballot but its sections, and return those."""
        if not isinstance(ballot, bytes):
            raise BallotError(f"expected a ballot as bytes, got {type(ballot).__name__}")
        around = FRAME.header_bytes + len(self.layout) * LENGTH.size + CHECKSUM.size
        largest = around + sum(self._longest(layer) for layer in self.layout)
        smallest = around if self.ballot_format.coded else largest
        if not smallest <= len(ballot) <= largest:
            raise BallotError(
                f"a ballot of this layout in the format '{self.ballot_format}' has {smallest} to {largest} "
                f"bytes, got {len(ballot)}"
            )
        payload = FRAME.open(ballot, self._header(sender))
        lengths = struct.unpack_from(f"<{len(self.layout)}I", payload)
        if around + sum(lengths) != len(ballot):
            raise BallotError(
                f"the layers' sections have {sum(lengths)} bytes together, "
                f"but the ballot has room for {len(ballot) - around}"
            )
        content = np.frombuffer(payload, np.uint8, offset=len(self.layout) * LENGTH.size)
        ends = np.cumsum(lengths)
        return [content[end - length : end] for end, length in zip(ends, lengths, strict=True)]

    def _longest(self, layer: Layer) -> int:
        return (
            rans.most_bytes(layer.size)
            if self.ballot_format.coded
            else self.ballot_format.packed_bytes(layer.size)
        )

    def _section(self, layer: Layer, ranking: Ranking, shift: int) -> bytes:
        if self.ballot_format.shape is Shape.TOP and not self.ballot_format.coded:
            numbers: NDArray[Any] = ranking[layer.size - self.ballot_format.named(layer.size) :]
        else:
            levels = levels_of(self.ballot_format, layer.size, shift)
            numbers = np.zeros(layer.size, np.uint8 if levels.points.size <= 256 else np.int32)
            note_levels(ranking, levels.borders, numbers)
        if self.ballot_format.coded:
            words = rans.encode(
                numbers[self._reference(layer)], levels.borders, levels.groups, levels.distinct
            )
        else:
            words = packing.pack(numbers, self.ballot_format.width(layer.size))
        section: bytes = words.astype("<u4", copy=False).tobytes()
        return section if self.ballot_format.coded else section[: self.ballot_format.packed_bytes(layer.size)]

    def _count_packed(self, sections: list[Section], shift: int, total: NDArray[np.int64]) -> None:
        counted: list[int] = []
        for layer, section in zip(self.layout, sections, strict=True):
            if (surplus := section.size - self.ballot_format.packed_bytes(layer.size)) != 0:
                numbers, fault = 0, int(Fault.TOO_LONG if surplus > 0 else Fault.TOO_SHORT)
            else:
                named = self.ballot_format.named(layer.size)
                numbers, fault = self._count_section(layer, section, shift, total, 1, named)
            counted.append(numbers)
            if fault:
                for before, ballot, stop in zip(self.layout, sections, counted, strict=False):
                    self._count_section(before, ballot, shift, total, -1, stop)
                raise _refusal(layer, fault)

    def _count_section(
        self, layer: Layer, section: Section, shift: int, total: NDArray[np.int64], sign: int, stop: int
    ) -> tuple[int, int]:
        width, points = self.ballot_format.width(layer.size), total[layer.edges]
        match self.ballot_format.shape:
            case Shape.EXACT:
                return packing.count_positions(section, width, points, sign, stop)
            case Shape.LEVELS:
                levels = levels_of(self.ballot_format, layer.size, shift)
                return packing.count_levels(section, width, levels.borders, levels.points, points, sign, stop)
            case Shape.TOP:
                unsent = layer.size - self.ballot_format.named(layer.size)
                return packing.count_top(section, width, unsent, points, sign, stop)

    def _count_coded(self, sections: list[Section], shift: int, total: NDArray[np.int64]) -> None:
        values = np.empty(self.layout.size, np.int32)
        for layer, section in zip(self.layout, sections, strict=True):
            levels = levels_of(self.ballot_format, layer.size, shift)
            if section.size % 4:
                raise _refusal(layer, Fault.TOO_LONG)
            words = np.frombuffer(section.tobytes(), "<u4").astype(np.uint32, copy=False)
            fault = rans.decode(
                words, levels.borders, levels.points, levels.groups, levels.distinct, values[layer.edges]
            )
            if fault:
                raise _refusal(layer, fault)
        for layer in self.layout:
            add_in_order(total[layer.edges], self._reference(layer), values[layer.edges])

    def _reference(self, layer: Layer) -> Ranking:
        if self.reference is None:
            raise BallotError("a coded ballot needs its reference ranking")
        return self.reference[layer.edges]


def round_of(message: bytes) -> int:
    """Return the round that a ballot or broadcast claims to belong to; decoding it checks the claim."""
    return int(FRAME.claims(message)["round"])


def _shift(header: bytes) -> int:
    """Return the shift of dithered borders in 2^16ths of a level, from the round, the sender and the run."""
    return int.from_bytes(hashlib.sha256(header[_SENDER]).digest()[:2], "little")


def _refusal(layer: Layer, fault: int) -> BallotError:
    return BallotError(f"layer {layer.name!r} {REASONS[Fault(fault)]}")
