"""Ballots: what one client sends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedrank.errors import BallotError
from fedrank.rank.kernels import count_repeated
from fedrank.rank.layout import Layout, top_count
from fedrank.rank.ranking import Ranking


@dataclass(frozen=True, eq=False)
class Ballot:
    """The top edges of a client's ranking, layer by layer, from less to most important.

    In FRL that is the whole ranking. In Sparse-FRL a client sends only the top x% and the server
    counts every other edge as reputation 0.
    """

    edges: NDArray[np.int32]

    @classmethod
    def of(cls, ranking: Ranking, layout: Layout, top: float = 1.0) -> Ballot:
        """Fill in the ballot of a client with this ranking.

        >>> layout = Layout.of([("paper", (6,))])
        >>> Ballot.of(np.array([4, 0, 2, 3, 5, 1], np.int32), layout, top=0.5).edges.tolist()
        [3, 5, 1]
        """
        if top == 1.0:
            return cls(ranking)
        parts = []
        for layer in layout:
            sent = top_count(layer.size, top)
            parts.append(ranking[layer.edges][layer.size - sent :])
        return cls(np.concatenate(parts))

    def validate(self, layout: Layout, top: float = 1.0) -> None:
        """Raise BallotError unless each layer names exactly its top share of edges, each of them once."""
        expected = sum(top_count(layer.size, top) for layer in layout)
        if not isinstance(self.edges, np.ndarray):
            raise BallotError(
                f"a ballot holds an array of edge numbers, this one {type(self.edges).__name__}"
            )
        if self.edges.dtype != np.int32 or self.edges.shape != (expected,):
            raise BallotError(
                f"a ballot of the top {top:.0%} needs {expected} int32 edge numbers, "
                f"this one has {self.edges.dtype} numbers of shape {self.edges.shape}"
            )
        begin = 0
        for layer in layout:
            sent = top_count(layer.size, top)
            edges = self.edges[begin : begin + sent]
            begin += sent
            repeated = count_repeated(edges, layer.size)
            if repeated < 0:
                raise BallotError(
                    f"layer {layer.name!r} has edges 0 to {layer.size - 1}, "
                    f"the ballot names {edges.min()} to {edges.max()}"
                )
            if repeated:
                raise BallotError(f"layer {layer.name!r}: the ballot names {repeated} edges more than once")
