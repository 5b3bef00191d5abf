"""Rankings and reputations: two views of one permutation, layer by layer.

A *ranking* lists the edges of each layer from least to most important: the paper's `R`, what
ArgSort returns. A *reputation* is an edge's position in it: the inverse permutation, the form
that sums. Both are flat int32 arrays in the order of the layout; edge numbers count within a layer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedrank.rank.layout import Layout, top_count

Ranking = NDArray[np.int32]
Reputation = NDArray[np.int32]


def stable_argsort(keys: NDArray[np.unsignedinteger]) -> NDArray[np.int32]:
    """Return the order that sorts unsigned `keys`, equal keys by their number.

    The key and its number are packed into one 64-bit word where they fit: words sort several times
    faster than indices, and no two words are equal, so any sort of them is stable.
    """
    number_bits = max(1, (keys.size - 1).bit_length())
    if int(keys.max()).bit_length() + number_bits > 64:
        return np.argsort(keys, kind="stable").astype(np.int32)
    words = keys.astype(np.uint64)
    words <<= np.uint64(number_bits)
    words |= np.arange(keys.size, dtype=np.uint64)
    words.sort()
    words &= np.uint64((1 << number_bits) - 1)
    return words.astype(np.int32)


def ordered_bits(scores: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Map floats to unsigned integers of the same order; both zeros map to the same integer."""
    bits = (scores + np.float32(0)).view(np.uint32)  # -0.0 + 0.0 is 0.0
    sign = np.uint32(1 << 31)
    flip = np.where(bits & sign, np.uint32(0xFFFFFFFF), sign)
    return np.bitwise_xor(bits, flip)


def rank(scores: NDArray[np.float32], layout: Layout) -> Ranking:
    """Return the ranking of `scores` in each layer, ties by edge number (ArgSort of Algorithm 2)."""
    ranking = np.empty(layout.size, np.int32)
    for layer in layout:
        ranking[layer.edges] = stable_argsort(ordered_bits(scores[layer.edges]))
    return ranking


def reputation(ranking: Ranking, layout: Layout) -> Reputation:
    """Return each edge's position in `ranking`: the inverse permutation of every layer."""
    positions = np.empty(layout.size, np.int32)
    for layer in layout:
        positions[layer.edges][ranking[layer.edges]] = np.arange(layer.size, dtype=np.int32)
    return positions


def place(sorted_scores: NDArray[np.float32], by: Ranking, layout: Layout) -> NDArray[np.float32]:
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
