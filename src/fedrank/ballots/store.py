"""The ballot store: all ballots of a vote, for votes that must see them together."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrank.ballots.codec import BallotCodec
from fedrank.ballots.tally import check_sender
from fedrank.errors import BallotError
from fedrank.rank import Layer

ALIGNED = 8  # so many numbers of any width fill whole bytes
CACHED_NUMBERS = 2**19
LEAST_SLICE = 2**12


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
        self.slots: dict[int, int] = {}
        self._file = tempfile.SpooledTemporaryFile(max_size=memory)  # noqa: SIM115
        self._layer_bytes = [codec.checked_bytes(layer) for layer in codec.layout]

    def add(self, sender: int, ballot: bytes) -> None:
        """Keep a ballot. An illegal one raises BallotError and leaves no trace."""
        check_sender(sender, self.asked, self.slots)
        self._append(sender, self.codec.checked(ballot, sender))

    def merge(self, other: BallotStore) -> None:
        """Add the ballots of another store of the same vote."""
        if not self.codec.matches(other.codec):
            raise BallotError("stores of different runs, rounds, layouts or formats cannot be merged")
        if twice := self.slots.keys() & other.slots.keys():
            raise BallotError(f"client {min(twice)} has voted in both of two stores")
        for sender, slot in other.slots.items():
            self._append(sender, other._content(slot * other._stride, other._stride))

    def slices(self, layer: Layer, width: int) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Yield neighboring edges of a layer, at most `width`, and the displacements of all ballots there.

        A displacement is counted in points from what the broadcast has in the ballots' format. Rows are
        sorted by client number, and overwritten by the next slice.
        """
        base = self.base(layer)

        def write(sender: int, content: bytes, some: slice, row: NDArray[np.float64]) -> None:
            self.codec.displacements_of(layer, sender, content, base[some], row)

        return self._slices(layer, width, write)

    def points(self, layer: Layer, width: int) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Yield neighboring edges of a layer, and the points that all ballots give them, as `slices` does."""

        def write(sender: int, content: bytes, _: slice, row: NDArray[np.float64]) -> None:
            self.codec.points_of(layer, sender, content, row)

        return self._slices(layer, width, write)

    def _slices(
        self, layer: Layer, width: int, write: Callable[[int, bytes, slice, NDArray[np.float64]], None]
    ) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        number = self.codec.layout.layers.index(layer)
        before, bits = sum(self._layer_bytes[:number]), self.codec.checked_width(layer)
        voters = sorted(self.slots.items())
        width = layer.size if width >= layer.size else max(ALIGNED, width // ALIGNED * ALIGNED)
        rows = np.empty((len(self.slots), width))
        for begin in range(0, layer.size, width):
            some = slice(begin, min(begin + width, layer.size))
            first, last = begin * bits // 8, (some.stop * bits + 7) // 8
            block = rows[:, : some.stop - begin]
            for row, (sender, slot) in zip(block, voters, strict=True):
                content = self._content(slot * self._stride + before + first, last - first)
                write(sender, content, some, row)
            yield some, block

    def slice_width(self, bytes_per_number: int = 40) -> int:
        """Return how many edges of all ballots to look at together: few enough for caches and memory."""
        fast = max(LEAST_SLICE, CACHED_NUMBERS // len(self.slots))
        return min(fast, self.memory // (bytes_per_number * len(self.slots)))

    def base(self, layer: Layer) -> NDArray[np.int32]:
        """Return the points that a layer's edges have in the broadcast."""
        return broadcast_points(self.codec, layer)

    @property
    def voters(self) -> Collection[int]:
        """Who has voted."""
        return self.slots.keys()

    @property
    def _stride(self) -> int:
        return sum(self._layer_bytes)

    def _append(self, sender: int, content: bytes) -> None:
        slot = len(self.slots)
        self._file.seek(slot * self._stride)
        self._file.write(content)
        self.slots[sender] = slot

    def _content(self, begin: int, length: int) -> bytes:
        self._file.seek(begin)
        return self._file.read(length)

    def __getstate__(self) -> dict[str, Any]:
        content = self._content(0, self._stride * len(self.slots))
        return self.__dict__ | {"codec": replace(self.codec, reference=None), "_file": content}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        content = state["_file"]
        self._file = tempfile.SpooledTemporaryFile(max_size=len(content) + 1)  # noqa: SIM115
        self._file.write(content)


def broadcast_points(codec: BallotCodec, layer: Layer) -> NDArray[np.int32]:
    """Return the points that a layer's edges have in the ranking that was sent to the clients."""
    if codec.reference is None:
        raise BallotError("displacements need the ranking that was sent to the clients")
    points = np.empty(layer.size, np.int32)
    points[codec.reference[layer.edges]] = 2 * np.arange(layer.size, dtype=np.int32)
    return points
