"""The layout: the position of each layer's edges in one flat array."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from fedrank.errors import ModelError


def top_count(edges: int, share: float) -> int:
    """Return how many edges the top `share` of a layer holds: all but `int((1 - share) * edges)`.

    Source: the threshold `t` of Algorithm 1.
    """
    return edges - int((1 - share) * edges)


LARGEST_LAYER = 2**30
"""Twice a position must fit into 32 bits."""


@dataclass(frozen=True)
class Layer:
    """One maskable layer: `size` edges that begin at `offset` of the flat array."""

    name: str
    shape: tuple[int, ...]
    offset: int

    @cached_property
    def size(self) -> int:
        return math.prod(self.shape)

    @cached_property
    def edges(self) -> slice:
        """The layer's slice of the flat array."""
        return slice(self.offset, self.offset + self.size)


@dataclass(frozen=True)
class Layout:
    """The ordered maskable layers of a network. All layer-wise operations work on its slices."""

    layers: tuple[Layer, ...]

    @classmethod
    def of(cls, shapes: Iterable[tuple[str, tuple[int, ...]]]) -> Layout:
        """Lay out the named shapes one after the other.

        >>> [layer.offset for layer in Layout.of([("conv", (2, 3)), ("linear", (4,))])]
        [0, 6]
        """
        layers: list[Layer] = []
        offset = 0
        for name, shape in shapes:
            layer = Layer(name, tuple(shape), offset)
            if layer.size == 0:
                raise ModelError(
                    f"layer {name!r} has shape {layer.shape}, but a layer needs at least one edge"
                )
            if layer.size > LARGEST_LAYER:
                raise ModelError(f"layer {name!r} has {layer.size} edges: more than 2^30 cannot be ranked")
            layers.append(layer)
            offset += layer.size
        if not layers:
            raise ModelError("the network has no layer whose edges can be ranked")
        return cls(tuple(layers))

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    @cached_property
    def digest(self) -> bytes:
        """16 bytes that identify a layout: a hash of all layer names and shapes (docs/wire-format.md)."""
        parts = []
        for layer in self.layers:
            name = layer.name.encode()
            parts += [struct.pack("<I", len(name)), name]
            parts.append(struct.pack(f"<{1 + len(layer.shape)}I", len(layer.shape), *layer.shape))
        return hashlib.sha256(b"".join(parts)).digest()[:16]

    @cached_property
    def size(self) -> int:
        """The number of edges of the whole network."""
        last = self.layers[-1]
        return last.offset + last.size
