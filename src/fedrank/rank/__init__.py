"""Layouts, rankings, ballots, tallies and votes. Knows NumPy and numba only."""

from fedrank.rank.box import Box
from fedrank.rank.form import Form, Purpose
from fedrank.rank.kind import Kind, Shape
from fedrank.rank.layout import Layer, Layout, top_count
from fedrank.rank.ranking import (
    Ranking,
    Reputation,
    check_ranking,
    place,
    rank,
    rank_points,
    reputation,
    top_mask,
    vote_on,
)
from fedrank.rank.tally import Tally

__all__ = [
    "Box",
    "Form",
    "Kind",
    "Layer",
    "Layout",
    "Purpose",
    "Ranking",
    "Reputation",
    "Shape",
    "Tally",
    "check_ranking",
    "place",
    "rank",
    "rank_points",
    "reputation",
    "top_count",
    "top_mask",
    "vote_on",
]
