"""Votes that see all ballots together: any aggregation rule becomes one.

A ballot is a displacement: its reputations less those of the broadcast. The paper's vote is exactly
rank(broadcast + mean of the displacements). A robust rule in the place of the mean makes a robust vote.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedrank.aggregators import Chain
from fedrank.errors import ConfigError
from fedrank.rank import Box, Layer, Ranking
from fedrank.rank.ranking import argsort_totals

BYTES_A_NUMBER = 40
"""A displacement, its mixture, and what the rules copy for sorting."""
CACHED_NUMBERS = 2**19
LEAST_SLICE = 2**12


def robust_vote(box: Box, chain: Chain, malicious: int, rng: np.random.Generator, memory: int) -> Ranking:
    """Return rank(broadcast + aggregate(displacements)), each layer by itself.

    A layer is judged by itself because it is ranked by itself: in distances over the whole network a large
    layer would hide what a ballot does to a small one.
    """
    layout = box.form.layout
    ranking = np.empty(layout.size, np.int32)
    for layer in layout:
        width = slice_width(box, memory)
        if not chain.sliceable:
            needed = layer.size * BYTES_A_NUMBER * len(box.voters)
            if needed > memory:
                raise ConfigError(
                    f"the rule {chain.name!r} needs layer {layer.name!r} of all {len(box.voters)} ballots at "
                    f"once: {needed / 2**20:,.0f} MiB of memory"
                )
            width = layer.size
        products = inner_products(box, layer, width) if chain.compares else None
        step = chain.step(len(box.voters), products, malicious, rng)
        points = np.empty(layer.size, np.int64)
        base = box.base(layer)
        # Fine enough to tell n-ths of a point apart, coarse enough to round equal sums to equal numbers.
        grid = 2.0 ** max(12, len(box.voters).bit_length())
        for some, displacements in box.slices(layer, width):
            points[some] = np.rint((base[some] + step(displacements)) * grid)
        ranking[layer.edges] = argsort_totals(points - points.min())
    return ranking


def slice_width(box: Box, memory: int) -> int:
    """Return how many edges of all ballots are looked at together: few enough for caches and memory."""
    quick = max(LEAST_SLICE, CACHED_NUMBERS // len(box.voters))
    return min(quick, memory // (BYTES_A_NUMBER * len(box.voters)))


def inner_products(box: Box, layer: Layer, width: int) -> NDArray[np.float64]:
    """Return the inner products of all pairs of displacements in a layer.

    They are rounded to so few bits that sums of products of any order are exact in double precision.
    """
    spare = (53 - layer.size.bit_length()) // 2
    scale = 2.0 ** -max(0, (2 * layer.size).bit_length() - spare)
    products = np.zeros((len(box.voters), len(box.voters)))
    for _, displacements in box.slices(layer, width):
        if scale < 1:
            displacements *= scale
            np.rint(displacements, out=displacements)
        products += displacements @ displacements.T
    return products
