"""The form: what server and clients agree on about a ballot, and its bytes.

docs/wire-format.md specifies every byte. A broadcast is the server's own ballot: the same form, filled
in with the global ranking.
"""

from __future__ import annotations

import enum
import hashlib
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrank.errors import BallotError
from fedrank.rank import coding, packing
from fedrank.rank.kernels import add_in_order, note_levels
from fedrank.rank.kind import Kind, Shape
from fedrank.rank.layout import Layer, Layout
from fedrank.rank.levels import Levels, levels_of
from fedrank.rank.packing import Fault
from fedrank.rank.ranking import Ranking, rank_points

Section = NDArray[np.uint8]
EXACT = Kind()

MAGIC = b"FRLB"
VERSION = 1
HEADER = struct.Struct("<4sBBBBIIQ16s16s")
FIELDS = (
    "magic number",
    "version",
    "purpose",
    "shape",
    "coding",
    "number of levels",
    "round",
    "sender",
    "run",
    "layout",
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


class Purpose(enum.IntEnum):
    """Who fills in the form."""

    BALLOT = 1
    BROADCAST = 2


@dataclass(frozen=True, eq=False)
class Form:
    """The ballots of one round of one run.

    Parameters
    ----------
    layout : the layers whose edges are ranked.
    kind : what of a ranking is sent, and how.
    reference : the ranking that coded ballots are coded against: the broadcast for ballots, the
        seed's ranking for broadcasts. Packed ones need none.
    run : 16 bytes that tell runs apart.
    round : the number of rounds that were finished before.
    purpose : ballots by default.
    """

    layout: Layout
    kind: Kind = EXACT
    reference: Ranking | None = None
    run: bytes = bytes(16)
    round: int = 0
    purpose: Purpose = Purpose.BALLOT

    def fill_in(self, ranking: Ranking, sender: int = 0) -> bytes:
        """Return the bytes of a ballot with this ranking."""
        header = self._header(sender)
        shift = _shift(header)
        sections = [self._section(layer, ranking[layer.edges], shift) for layer in self.layout]
        body = b"".join([header, *(LENGTH.pack(len(part)) for part in sections), *sections])
        return body + LENGTH.pack(zlib.crc32(body))

    def count(self, paper: bytes, sender: int, total: NDArray[np.int64]) -> None:
        """Add a ballot's points to a tally: twice its reputations, since a level's middle may be half-way.

        Anything but a legal ballot of this sender raises BallotError and leaves the tally as it was.
        """
        sections = self._open(paper, sender)
        shift = _shift(paper)
        if self.kind.coded:
            self._count_coded(sections, shift, total)
        else:
            self._count_packed(sections, shift, total)

    def read(self, paper: bytes, sender: int = 0) -> Ranking:
        """Return the ranking that a ballot tells of; edges of one level in the order of their numbers."""
        points = np.zeros(self.layout.size, np.int64)
        self.count(paper, sender, points)
        return rank_points(points, self.layout)

    def checked(self, paper: bytes, sender: int) -> bytes:
        """Check a ballot and return the level of each edge, layer by layer in numbers of a fixed width.

        `points_of` reads any part of them. Packed levels and exact rankings are such numbers already.
        """
        points = np.zeros(self.layout.size, np.int64)
        self.count(paper, sender, points)
        if not self.kind.coded and self.kind.shape is not Shape.TOP:
            return paper[HEADER.size + len(self.layout) * LENGTH.size : -LENGTH.size]
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

    def points_of(
        self, layer: Layer, sender: int, content: bytes, base: NDArray[np.int32], out: NDArray[np.float64]
    ) -> None:
        """Write the points of some neighbouring edges, less those of `base`, from their part of a layer."""
        numbers, width = np.frombuffer(content, np.uint8), self.checked_width(layer)
        if self.kind.shape is Shape.EXACT:
            packing.read_positions(numbers, width, base, out)
        else:
            packing.read_points(numbers, width, self._levels(layer, sender).points, base, out)

    def deviation(self, layer: Layer) -> float:
        """Return the standard deviation of the points that a ballot gives to a layer's edges."""
        levels = self._levels(layer, 0)
        shares = np.diff(levels.borders) / layer.size
        mean = shares @ levels.points
        return float(np.sqrt(shares @ (levels.points - mean) ** 2))

    def matches(self, other: Form) -> bool:
        """Tell whether the ballots of another form may be counted together with those of this one."""
        return self._header(0) == other._header(0)

    def _header(self, sender: int) -> bytes:
        flags = self.kind.coded | self.kind.dithered << 1
        kind = (int(self.kind.shape), flags, self.kind.number)
        return HEADER.pack(
            MAGIC, VERSION, self.purpose, *kind, self.round, sender, self.run, self.layout.digest
        )

    def _levels(self, layer: Layer, sender: int) -> Levels:
        shift = _shift(self._header(sender)) if self.kind.dithered else 0
        return levels_of(self.kind, layer.size, shift)

    def _open(self, paper: bytes, sender: int) -> list[Section]:
        """Check everything about a ballot but its sections, and return those."""
        if not isinstance(paper, bytes):
            raise BallotError(f"a ballot is a string of bytes, this one is {type(paper).__name__}")
        around = HEADER.size + (len(self.layout) + 1) * LENGTH.size
        largest = around + sum(self._longest(layer) for layer in self.layout)
        smallest = around if self.kind.coded else largest
        if not smallest <= len(paper) <= largest:
            raise BallotError(
                f"a ballot of this kind ({self.kind}) and layout has {smallest} to {largest} bytes, "
                f"this one has {len(paper)}"
            )
        self._check_header(paper, sender)
        if zlib.crc32(memoryview(paper)[: -LENGTH.size]) != LENGTH.unpack(paper[-LENGTH.size :])[0]:
            raise BallotError("the checksum is wrong: the ballot was damaged on its way")
        lengths = struct.unpack_from(f"<{len(self.layout)}I", paper, HEADER.size)
        if around + sum(lengths) != len(paper):
            raise BallotError(
                f"the sections of the layers have {sum(lengths)} bytes together, "
                f"but the ballot has room for {len(paper) - around}"
            )
        content = np.frombuffer(paper, np.uint8, offset=around - LENGTH.size)
        ends = np.cumsum(lengths)
        return [content[end - length : end] for end, length in zip(ends, lengths, strict=True)]

    def _check_header(self, paper: bytes, sender: int) -> None:
        expected = self._header(sender)
        if paper[: HEADER.size] == expected:
            return
        found = HEADER.unpack_from(paper)
        for name, theirs, ours in zip(FIELDS, found, HEADER.unpack(expected), strict=True):
            if theirs != ours:
                shown = (item.hex() if isinstance(item, bytes) else item for item in (theirs, ours))
                raise BallotError("the {} is {}, but {} was asked for".format(name, *shown))

    def _longest(self, layer: Layer) -> int:
        return coding.most_bytes(layer.size) if self.kind.coded else self.kind.packed_bytes(layer.size)

    def _section(self, layer: Layer, ranking: Ranking, shift: int) -> bytes:
        if self.kind.shape is Shape.TOP and not self.kind.coded:
            numbers: NDArray[Any] = ranking[layer.size - self.kind.named(layer.size) :]
        else:
            levels = levels_of(self.kind, layer.size, shift)
            numbers = np.zeros(layer.size, np.uint8 if levels.points.size <= 256 else np.int32)
            note_levels(ranking, levels.borders, numbers)
        if self.kind.coded:
            words = coding.encode(
                numbers[self._reference(layer)], levels.borders, levels.groups, levels.distinct
            )
        else:
            words = packing.pack(numbers, self.kind.width(layer.size))
        section: bytes = words.astype("<u4", copy=False).tobytes()
        return section if self.kind.coded else section[: self.kind.packed_bytes(layer.size)]

    def _count_packed(self, sections: list[Section], shift: int, total: NDArray[np.int64]) -> None:
        counted: list[int] = []
        for layer, section in zip(self.layout, sections, strict=True):
            if (surplus := section.size - self.kind.packed_bytes(layer.size)) != 0:
                numbers, fault = 0, int(Fault.TOO_LONG if surplus > 0 else Fault.TOO_SHORT)
            else:
                named = self.kind.named(layer.size)
                numbers, fault = self._count_section(layer, section, shift, total, 1, named)
            counted.append(numbers)
            if fault:
                for before, paper, stop in zip(self.layout, sections, counted, strict=False):
                    self._count_section(before, paper, shift, total, -1, stop)
                raise _refusal(layer, fault)

    def _count_section(
        self, layer: Layer, section: Section, shift: int, total: NDArray[np.int64], sign: int, stop: int
    ) -> tuple[int, int]:
        width, points = self.kind.width(layer.size), total[layer.edges]
        match self.kind.shape:
            case Shape.EXACT:
                return packing.count_positions(section, width, points, sign, stop)
            case Shape.LEVELS:
                levels = levels_of(self.kind, layer.size, shift)
                return packing.count_levels(section, width, levels.borders, levels.points, points, sign, stop)
            case Shape.TOP:
                unsent = layer.size - self.kind.named(layer.size)
                return packing.count_top(section, width, unsent, points, sign, stop)

    def _count_coded(self, sections: list[Section], shift: int, total: NDArray[np.int64]) -> None:
        values = np.empty(self.layout.size, np.int32)
        for layer, section in zip(self.layout, sections, strict=True):
            levels = levels_of(self.kind, layer.size, shift)
            if section.size % 4:
                raise _refusal(layer, Fault.TOO_LONG)
            words = np.frombuffer(section.tobytes(), "<u4").astype(np.uint32, copy=False)
            fault = coding.decode(
                words, levels.borders, levels.points, levels.groups, levels.distinct, values[layer.edges]
            )
            if fault:
                raise _refusal(layer, fault)
        for layer in self.layout:
            add_in_order(total[layer.edges], self._reference(layer), values[layer.edges])

    def _reference(self, layer: Layer) -> Ranking:
        if self.reference is None:
            raise BallotError("a coded ballot needs the ranking that it is coded against")
        return self.reference[layer.edges]


def round_of(paper: bytes) -> int:
    """Return the round that a ballot or broadcast claims to belong to; reading it checks the claim."""
    if len(paper) < HEADER.size:
        raise BallotError(f"this is no ballot: it has {len(paper)} bytes, the header alone has {HEADER.size}")
    return int(HEADER.unpack_from(paper)[6])


def _shift(header: bytes) -> int:
    """Return the shift of dithered borders in 2^16ths of a level, from the round, the sender and the run."""
    return int.from_bytes(hashlib.sha256(header[_SENDER]).digest()[:2], "little")


def _refusal(layer: Layer, fault: int) -> BallotError:
    return BallotError(f"layer {layer.name!r} {REASONS[Fault(fault)]}")
