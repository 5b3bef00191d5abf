"""The ballot store: all ballots of a vote, for votes that must see them together."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedrank.ballots.codec import BallotCodec
from fedrank.ballots.tally import check_sender
from fedrank.errors import BallotError
from fedrank.randomness import entropy_of
from fedrank.rank import Layer

ALIGNED = 8  # so many numbers of any width fill whole bytes
CACHED_NUMBERS = 2**19
LEAST_SLICE = 2**12
Bytes = NDArray[np.uint8]
Rows = NDArray[np.float64]
Read = Callable[[slice, Rows], None]
"""Writes some neighboring numbers, a row for each ballot."""
THREADS = os.cpu_count() or 1
T = TypeVar("T")


class BallotStore:
    """Legal ballots in compact form, read back in slices of edges.

    Ballots that exceed the memory limit go to a temporary file.

    Parameters
    ----------
    codec : for the ballots that are accepted.
    asked : clients that may vote; all by default. No client votes twice.
    memory : bytes that the ballots may use.
    """

    def __init__(self, codec: BallotCodec, asked: Collection[int] | None = None, memory: int = 2**30) -> None:
        self.codec = codec
        self.asked = asked
        self.memory = memory
        self._ballots: dict[int, Bytes | int] = {}  # the content, or its position in the file
        self._filed = 0
        self._file: IO[bytes] | None = None
        self._entropy: int | None = None
        self._layer_bytes = [codec.checked_bytes(layer) for layer in codec.layout]

    def add(self, sender: int, ballot: bytes) -> None:
        """Keep a ballot. An illegal one raises BallotError and leaves no trace."""
        check_sender(sender, self.asked, self.voters)
        content = np.frombuffer(self.codec.checked(ballot, sender), np.uint8)
        self._keep(sender, content)

    def merge(self, other: BallotStore) -> None:
        """Add the ballots of another store of the same vote."""
        if not self.codec.matches(other.codec):
            raise BallotError("stores of different runs, rounds, layouts or formats cannot be merged")
        if twice := self._ballots.keys() & other._ballots.keys():
            raise BallotError(f"client {min(twice)} has voted in both of two stores")
        for sender in other.voters:
            self._keep(sender, other._content(sender, 0, other._ballot_bytes))

    @property
    def entropy(self) -> int:
        """Follows from all ballots: draws that no voter may foresee are keyed by it."""
        if self._entropy is None:

            def of(sender: int) -> int:
                return entropy_of(sender, self._content(sender, 0, self._ballot_bytes))

            with ThreadPoolExecutor(THREADS) as threads:
                self._entropy = sum(threads.map(of, self.voters))
        return self._entropy

    def points(self, layer: Layer) -> Read:
        """Return what writes the points that ballots give to neighboring edges, as `displacements` does."""

        def read(sender: int, content: Bytes, _: slice, row: NDArray[np.float64]) -> None:
            self.codec.points_of(layer, sender, content, row)

        return self._reader(layer, read)

    def displacements(self, layer: Layer) -> Read:
        """Return what writes the displacements of some neighboring edges, a row for each ballot.

        A displacement is counted in points from what the broadcast has in the ballots' format. Rows are
        sorted by client number. Slices begin at a multiple of 8. Threads may call it.
        """
        base = self.base(layer)

        def read(sender: int, content: Bytes, some: slice, row: NDArray[np.float64]) -> None:
            self.codec.displacements_of(layer, sender, content, base[some], row)

        return self._reader(layer, read)

    def _reader(self, layer: Layer, read: Callable[[int, Bytes, slice, NDArray[np.float64]], None]) -> Read:
        number = self.codec.layout.layers.index(layer)
        before, bits = sum(self._layer_bytes[:number]), self.codec.checked_width(layer)
        voters = sorted(self.voters)

        def write(some: slice, rows: Rows) -> None:
            first, last = some.start * bits // 8, (some.stop * bits + 7) // 8
            for row, sender in zip(rows, voters, strict=True):
                read(sender, self._content(sender, before + first, last - first), some, row)

        return write

    def slice_width(self, bytes_per_number: int = 40) -> int:
        """Return how many edges of all ballots to look at together: few enough for caches and memory."""
        fast = max(LEAST_SLICE, CACHED_NUMBERS // len(self.voters))
        return min(fast, self.memory // (bytes_per_number * len(self.voters)))

    def base(self, layer: Layer) -> NDArray[np.int32]:
        """Return the points that a layer's edges have in the broadcast."""
        return broadcast_points(self.codec, layer)

    @property
    def voters(self) -> Collection[int]:
        """Who has voted."""
        return self._ballots.keys()

    @property
    def _ballot_bytes(self) -> int:
        return sum(self._layer_bytes)

    def _keep(self, sender: int, content: Bytes) -> None:
        self._entropy = None
        if (len(self._ballots) - self._filed + 1) * self._ballot_bytes <= self.memory:
            self._ballots[sender] = content
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the store lives)
        position = self._filed * self._ballot_bytes
        self._file.seek(position)
        self._file.write(content.tobytes())
        self._file.flush()
        self._ballots[sender] = position
        self._filed += 1

    def _content(self, sender: int, begin: int, length: int) -> Bytes:
        kept = self._ballots[sender]
        if not isinstance(kept, int):
            return kept[begin : begin + length]
        assert self._file is not None
        return np.frombuffer(os.pread(self._file.fileno(), length, kept + begin), np.uint8)

    def __getstate__(self) -> dict[str, Any]:
        ballots = {sender: self._content(sender, 0, self._ballot_bytes) for sender in self.voters}
        codec = replace(self.codec, reference=None)
        return self.__dict__ | {"codec": codec, "_ballots": ballots, "_filed": 0, "_file": None}


def broadcast_points(codec: BallotCodec, layer: Layer) -> NDArray[np.int32]:
    """Return the points that a layer's edges have in the ranking that was sent to the clients."""
    if codec.reference is None:
        raise BallotError("displacements need the ranking that was sent to the clients")
    points = np.empty(layer.size, np.int32)
    points[codec.reference[layer.edges]] = 2 * np.arange(layer.size, dtype=np.int32)
    return points


def in_slices(
    read: Read, ballots: int, size: int, width: int, work: Callable[[slice, Rows], T]
) -> Iterator[T]:
    """Yield what `work` makes of `width` neighboring numbers of all ballots; threads share the slices."""
    if width < size:
        width = max(ALIGNED, width // ALIGNED * ALIGNED)

    def one(begin: int) -> T:
        some = slice(begin, min(begin + width, size))
        rows = np.empty((ballots, some.stop - begin))
        read(some, rows)
        return work(some, rows)

    with ThreadPoolExecutor(THREADS) as threads:
        yield from threads.map(one, range(0, size, width))
