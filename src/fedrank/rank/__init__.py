"""Layouts, rankings, ballots, tallies and votes. Knows NumPy and numba only."""

from fedrank.rank.ballot import Ballot
from fedrank.rank.layout import Layer, Layout, top_count
from fedrank.rank.ranking import Ranking, Reputation, place, rank, reputation, top_mask
from fedrank.rank.tally import Tally

__all__ = [
    "Ballot",
    "Layer",
    "Layout",
    "Ranking",
    "Reputation",
    "Tally",
    "place",
    "rank",
    "reputation",
    "top_count",
    "top_mask",
]
