"""The tally of a vote: a running sum of points, and the ranking that follows from it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrank.ballots.codec import BallotCodec
from fedrank.errors import BallotError, TooFewUpdatesError
from fedrank.rank import Ranking, rank_points


class Tally:
    """The server's integer sum of reputations (Vote of Algorithm 2), counted in points of half a position.

    Adding a ballot is one pass and keeps nothing of it, so memory does not grow with the number
    of clients. Integers add up to the same bits in any order and any grouping.

    Parameters
    ----------
    codec : for the ballots that are accepted.
    asked : clients that may vote; all by default. No client votes twice.
    """

    def __init__(self, codec: BallotCodec, asked: Collection[int] | None = None) -> None:
        self.codec = codec
        self.asked = asked
        self.total: NDArray[np.int64] = np.zeros(codec.layout.size, np.int64)
        self.voters: set[int] = set()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"codec": replace(self.codec, reference=None)}  # merging needs none

    def add(self, sender: int, ballot: bytes) -> None:
        """Count a ballot. An illegal one raises BallotError and leaves the tally untouched."""
        check_sender(sender, self.asked, self.voters)
        self.codec.add_to(ballot, sender, self.total)
        self.voters.add(sender)

    def merge(self, other: Tally) -> None:
        """Add the ballots that another tally of the same vote has counted."""
        if not self.codec.matches(other.codec):
            raise BallotError("tallies of different runs, rounds, layouts or formats cannot be merged")
        if twice := self.voters & other.voters:
            raise BallotError(f"client {min(twice)} has voted in both of two tallies")
        self.total += other.total
        self.voters |= other.voters

    def vote(self) -> Ranking:
        """Return the ranking of all edges by their points, ties by edge number."""
        if not self.voters:
            raise TooFewUpdatesError("nobody voted: no legal ballots")
        return rank_points(self.total, self.codec.layout)


def check_sender(sender: int, asked: Collection[int] | None, voters: Collection[int]) -> None:
    """Raise BallotError if the sender may not vote or has already voted."""
    if not 0 <= sender < 2**64:
        raise BallotError(f"{sender} is not a client number: expected 64 bits")
    if asked is not None and sender not in asked:
        raise BallotError(f"client {sender} was not asked to vote in this round")
    if sender in voters:
        raise BallotError(f"client {sender} has already voted in this round")
