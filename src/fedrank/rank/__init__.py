"""Layouts and rankings. Knows NumPy and numba only."""

from fedrank.rank.layout import Layer, Layout, top_count
from fedrank.rank.ranking import (
    Ranking,
    Reputation,
    assign_scores,
    check_ranking,
    rank,
    rank_points,
    reputation,
    top_mask,
    vote_on,
)

__all__ = [
    "Layer",
    "Layout",
    "Ranking",
    "Reputation",
    "assign_scores",
    "check_ranking",
    "rank",
    "rank_points",
    "reputation",
    "top_count",
    "top_mask",
    "vote_on",
]
