"""The tally of a vote: a running sum of reputations, and the ranking that follows from it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedrank.errors import BallotError
from fedrank.rank.ballot import Ballot
from fedrank.rank.kernels import add_positions
from fedrank.rank.layout import Layout, top_count
from fedrank.rank.ranking import Ranking, argsort_totals


class Tally:
    """The server's integer sum of reputations (Vote of Algorithm 2).

    Adding a ballot is one pass and keeps nothing of it, so memory does not grow with the number
    of clients. Integers add up to the same bits in any order and any grouping. Every ballot must
    name the same share `top` of each layer's edges; below 1 this is Sparse-FRL.
    """

    def __init__(self, layout: Layout, top: float = 1.0) -> None:
        self.layout = layout
        self.top = top
        self.total: NDArray[np.int64] = np.zeros(layout.size, np.int64)
        self.ballots = 0

    def add(self, ballot: Ballot) -> None:
        """Count a ballot. An illegal one raises BallotError and leaves the tally untouched."""
        ballot.validate(self.layout, self.top)
        begin = 0
        for layer in self.layout:
            sent = top_count(layer.size, self.top)
            add_positions(self.total[layer.edges], ballot.edges[begin : begin + sent], layer.size - sent)
            begin += sent
        self.ballots += 1

    def merge(self, other: Tally) -> None:
        """Add the ballots that another tally of the same vote has counted."""
        if (other.layout, other.top) != (self.layout, self.top):
            raise BallotError("two tallies of different layouts or kinds of ballots cannot be merged")
        self.total += other.total
        self.ballots += other.ballots

    def vote(self) -> Ranking:
        """Return the ranking of all edges by total reputation, ties by edge number."""
        if self.ballots == 0:
            raise BallotError("nobody voted: there is no ballot to count")
        ranking = np.empty(self.layout.size, np.int32)
        for layer in self.layout:
            ranking[layer.edges] = argsort_totals(self.total[layer.edges])
        return ranking
