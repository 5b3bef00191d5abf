"""Rankings and reputations: two views of one permutation, layer by layer.

A *ranking* lists the edges of each layer from least to most important: the paper's `R`, what
ArgSort returns. A *reputation* is an edge's position in it: the inverse permutation, the form
that sums. Both are flat int32 arrays in the order of the layout; edge numbers count within a layer.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from fedrank.errors import BallotError
from fedrank.rank.kernels import (
    count_repeated,
    first_places,
    pack_scores,
    pack_totals,
    scatter,
    scatter_numbers,
)
from fedrank.rank.layout import Layout, top_count

Ranking = NDArray[np.int32]
Reputation = NDArray[np.int32]


def argsort_scores(scores: NDArray[np.float32]) -> NDArray[np.int32]:
    """Return the order that sorts scores, ties by edge number."""
    number_bits = _number_bits(scores.size)
    words = np.empty(scores.size, np.uint64)
    pack_scores(scores.astype(np.float32, copy=False).view(np.uint32), number_bits, words)
    return _sorted_numbers(words, number_bits, 32)


def argsort_totals(totals: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the order that sorts nonnegative totals, ties by edge number."""
    number_bits, key_bits = _number_bits(totals.size), int(totals.max()).bit_length()
    if key_bits + number_bits > 64:  # not before there are more than a million voters
        return np.argsort(totals, kind="stable").astype(np.int32)
    words = np.empty(totals.size, np.uint64)
    pack_totals(totals, number_bits, words)
    return _sorted_numbers(words, number_bits, key_bits)


def _sorted_numbers(words: NDArray[np.uint64], number_bits: int, key_bits: int) -> NDArray[np.int32]:
    """Return the numbers of words, each a key above a number, by key; the words are lost.

    A radix sort: digits of 8 bits from the lowest to the highest, which takes the same time on every
    processor. Numbers rise from word to word and are not compared: each pass keeps the order of equal digits.
    """
    other, numbers = np.empty_like(words), np.empty(words.size, np.int32)
    *lower, highest = range(number_bits, number_bits + max(1, key_bits), 8)
    for shift in map(np.uint64, lower):
        scatter(words, shift, first_places(words, shift), other)
        words, other = other, words
    shift = np.uint64(highest)
    scatter_numbers(words, shift, first_places(words, shift), number_bits, numbers)
    return numbers


def _number_bits(size: int) -> int:
    return max(1, (size - 1).bit_length())


def rank(scores: NDArray[np.float32], layout: Layout) -> Ranking:
    """Return the ranking of `scores` in each layer, ties by edge number (ArgSort of Algorithm 2)."""
    ranking = np.empty(layout.size, np.int32)
    for layer in layout:
        ranking[layer.edges] = argsort_scores(scores[layer.edges])
    return ranking


def rank_points(points: NDArray[np.int64], layout: Layout) -> Ranking:
    """Return the ranking of `points` in each layer, ties by edge number."""
    ranking = np.empty(layout.size, np.int32)
    for layer in layout:
        ranking[layer.edges] = argsort_totals(points[layer.edges])
    return ranking


def vote_on(rankings: Iterable[Ranking], layout: Layout) -> Ranking:
    """Return the vote on rankings that are all in memory (Vote of Algorithm 2)."""
    points = np.zeros(layout.size, np.int64)
    for ranking in rankings:
        points += reputation(ranking, layout)
    return rank_points(points, layout)


def reputation(ranking: Ranking, layout: Layout) -> Reputation:
    """Return each edge's position in `ranking`: the inverse permutation of every layer."""
    positions = np.empty(layout.size, np.int32)
    for layer in layout:
        positions[layer.edges][ranking[layer.edges]] = np.arange(layer.size, dtype=np.int32)
    return positions


def assign_scores(sorted_scores: NDArray[np.float32], by: Ranking, layout: Layout) -> NDArray[np.float32]:
    """Give the i-th smallest score to the i-th edge of the ranking (Algorithm 2, line 10)."""
    scores = np.empty(layout.size, np.float32)
    for layer in layout:
        scores[layer.edges][by[layer.edges]] = sorted_scores[layer.edges]
    return scores


def top_mask(ranking: Ranking, layout: Layout, share: float) -> NDArray[np.bool_]:
    """Mark the top `share` of the edges of every layer of `ranking`."""
    mask = np.zeros(layout.size, np.bool_)
    for layer in layout:
        top = ranking[layer.edges][layer.size - top_count(layer.size, share) :]
        mask[layer.edges][top] = True
    return mask


def check_ranking(ranking: Ranking, layout: Layout) -> None:
    """Raise BallotError unless each layer names each of its edges once."""
    if ranking.dtype != np.int32 or ranking.shape != (layout.size,):
        raise BallotError(
            f"expected an int32 ranking of {layout.size} edges, got {ranking.dtype} of shape {ranking.shape}"
        )
    for layer in layout:
        repeated = count_repeated(ranking[layer.edges], layer.size)
        if repeated:
            what = "edges that do not exist" if repeated < 0 else f"{repeated} edges more than once"
            raise BallotError(f"layer {layer.name!r}: the ranking names {what}")
