"""The ballot box: all ballots of a vote, for votes that must see them together."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrank.errors import BallotError
from fedrank.rank.form import Form
from fedrank.rank.layout import Layer
from fedrank.rank.tally import check_sender

ALIGNED = 8  # so many numbers of any width fill whole bytes


class Box:
    """Ballots that were found legal, as compact as they came, read back by slices of edges.

    Ballots that do not fit into their share of the memory wait in a temporary file.

    Parameters
    ----------
    form : the ballots that are accepted.
    asked : who may vote; everybody, if it is left out. Nobody votes twice.
    memory : how many bytes the ballots may take.
    """

    def __init__(self, form: Form, asked: Collection[int] | None = None, memory: int = 2**30) -> None:
        self.form = form
        self.asked = asked
        self.places: dict[int, int] = {}
        self._file = tempfile.SpooledTemporaryFile(max_size=memory)  # noqa: SIM115
        self._layer_bytes = [form.checked_bytes(layer) for layer in form.layout]

    def add(self, sender: int, ballot: bytes) -> None:
        """Keep a ballot. An illegal one raises BallotError and leaves no trace."""
        check_sender(sender, self.asked, self.places)
        self._append(sender, self.form.checked(ballot, sender))

    def merge(self, other: Box) -> None:
        """Add the ballots of another box of the same vote."""
        if not self.form.matches(other.form):
            raise BallotError("two boxes of different runs, rounds, layouts or kinds cannot be merged")
        if twice := self.places.keys() & other.places.keys():
            raise BallotError(f"client {min(twice)} has voted in both of two boxes")
        for sender, place in other.places.items():
            self._append(sender, other._content(place * other._stride, other._stride))

    def slices(self, layer: Layer, width: int) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Yield neighbouring edges of a layer, at most `width`, and the displacements of all ballots there.

        A displacement is counted in points from those of the broadcast. Rows are in the order of the
        clients' numbers. They are overwritten by the next slice.
        """
        number = self.form.layout.layers.index(layer)
        before, bits = sum(self._layer_bytes[:number]), self.form.checked_width(layer)
        base, voters = self.base(layer), sorted(self.places.items())
        width = layer.size if width >= layer.size else max(ALIGNED, width // ALIGNED * ALIGNED)
        rows = np.empty((len(self.places), width))
        for begin in range(0, layer.size, width):
            some = slice(begin, min(begin + width, layer.size))
            first, last = begin * bits // 8, (some.stop * bits + 7) // 8
            block = rows[:, : some.stop - begin]
            for row, (sender, place) in zip(block, voters, strict=True):
                content = self._content(place * self._stride + before + first, last - first)
                self.form.points_of(layer, sender, content, base[some], row)
            yield some, block

    def base(self, layer: Layer) -> NDArray[np.int32]:
        """Return the points that a layer's edges have in the broadcast."""
        if self.form.reference is None:
            raise BallotError("displacements need the ranking that was sent to the clients")
        points = np.empty(layer.size, np.int32)
        points[self.form.reference[layer.edges]] = 2 * np.arange(layer.size, dtype=np.int32)
        return points

    @property
    def voters(self) -> Collection[int]:
        """Who has voted."""
        return self.places.keys()

    @property
    def _stride(self) -> int:
        return sum(self._layer_bytes)

    def _append(self, sender: int, content: bytes) -> None:
        place = len(self.places)
        self._file.seek(place * self._stride)
        self._file.write(content)
        self.places[sender] = place

    def _content(self, begin: int, length: int) -> bytes:
        self._file.seek(begin)
        return self._file.read(length)

    def __getstate__(self) -> dict[str, Any]:
        content = self._content(0, self._stride * len(self.places))
        return self.__dict__ | {"form": replace(self.form, reference=None), "_file": content}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        content = state["_file"]
        self._file = tempfile.SpooledTemporaryFile(max_size=len(content) + 1)  # noqa: SIM115
        self._file.write(content)
