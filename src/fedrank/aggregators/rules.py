"""The rules."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedrank.aggregators.base import (
    Matrix,
    Updates,
    Vector,
    aggregator,
    clipping,
    grouping,
    inner_products,
    minority,
    need,
    preaggregator,
    weighting,
)
from fedrank.aggregators.kernels import column_means, row_means

DEVIATIONS = 3.0
TIE = 1e-9
"""Sums of distances that differ by less, relatively, are equal but for rounding."""


def krum_minority(clients: int) -> int:
    """Return the largest m with n > 2 m + 2."""
    return (clients - 3) // 2


@aggregator("mean", "McMahan et al., 2017", by_coordinate=True)
def mean(updates: Updates, _malicious: int) -> Vector:
    """The mean. One malicious update moves it anywhere."""
    means = np.empty(updates.shape[1], updates.dtype)
    column_means(np.ascontiguousarray(updates), means)
    return means


@aggregator("trimmed-mean", "Yin et al., 2018", minority, by_coordinate=True)
def trimmed_mean(updates: Updates, malicious: int) -> Vector:
    """The mean of each coordinate without its m largest and m smallest values."""
    n = len(updates)
    need(n > 2 * malicious, "trimmed-mean", "n > 2 m", n, malicious)
    if malicious == 0:
        return mean(updates, 0)
    return _mean_of_sorted(updates, malicious, n - malicious)


@aggregator("median", "Yin et al., 2018", minority, by_coordinate=True)
def median(updates: Updates, malicious: int) -> Vector:
    """The median of each coordinate."""
    n = len(updates)
    need(n > 2 * malicious, "median", "n > 2 m", n, malicious)
    return _mean_of_sorted(updates, (n - 1) // 2, n // 2 + 1)


def _mean_of_sorted(updates: Updates, first: int, last: int) -> Vector:
    """Return the mean of some of each coordinate's sorted values, those from `first` up to before `last`."""
    ordered = np.array(updates.T, order="C")  # a copy, whatever the order was
    ordered.sort(axis=1)
    return row_means(ordered, first, last)


@weighting("krum", "Blanchard et al., 2017", krum_minority)
def krum(products: Matrix, malicious: int) -> Matrix:
    """The update that is closest to its n - m - 2 nearest neighbors."""
    n = len(products)
    need(n > 2 * malicious + 2, "krum", "n > 2 m + 2", n, malicious)
    return _equal_weights(n, np.array([_closest(_distances(products), malicious)]))


@weighting("multi-krum", "Blanchard et al., 2017, as Mozaffari et al., 2023, have it", krum_minority)
def multi_krum(products: Matrix, malicious: int) -> Matrix:
    """The mean of what krum selects, one after the other while more than 2 m + 2 remain."""
    n = len(products)
    need(n > 2 * malicious + 2, "multi-krum", "n > 2 m + 2", n, malicious)
    return _equal_weights(n, multi_krum_selection(_distances(products), malicious))


def multi_krum_selection(distances: Matrix, malicious: int) -> NDArray[np.intp]:
    """Return which updates multi-krum selects, given their squared distances, in their own order."""
    remaining = np.arange(len(distances))
    selected = []
    while remaining.size > 2 * malicious + 2:
        best = _closest(distances[np.ix_(remaining, remaining)], malicious)
        selected.append(remaining[best])
        remaining = np.delete(remaining, best)
    return np.sort(np.array(selected))


def _closest(distances: Matrix, malicious: int) -> int:
    """Return the update with the least sum of distances to its nearest neighbors, itself not counted."""
    neighbors = max(1, len(distances) - malicious - 2)
    sums = np.sort(distances, axis=1)[:, 1 : neighbors + 1].sum(axis=1)
    # Mixtures that differ by the same exchange tie; then the first is taken, whatever rounding says.
    return int(np.argmax(sums <= sums.min() * (1 + TIE)))


def _equal_weights(n: int, selected: NDArray[np.intp]) -> Matrix:
    weights = np.zeros(n)
    weights[selected] = 1 / selected.size
    return weights


@weighting("geometric-median", "Pillutla et al., 2022 (smoothed Weiszfeld)", minority)
def geometric_median(products: Matrix, malicious: int) -> Matrix:
    """The point with the least sum of distances to all updates."""
    n = len(products)
    need(n > 2 * malicious, "geometric-median", "n > 2 m", n, malicious)
    lengths = np.sqrt(np.diag(products))
    distances, weights = lengths, np.zeros(n)
    for _ in range(1000):
        typical = max(float(np.median(distances)), 1e-300)
        closeness = 1 / np.maximum(distances, 1e-6 * typical)
        before, weights = weights, closeness / closeness.sum()
        distances = _distances_to(weights, products)
        if (np.abs(weights - before) * lengths).max() < 1e-9 * typical:
            break
    return weights


@weighting("centered-clipping", "Karimireddy et al., 2021", minority)
def centered_clipping(
    products: Matrix,
    malicious: int,
    *,
    radius: Annotated[
        float, Field(gt=0, description="the longest a difference may be, in median lengths")
    ] = 1.0,
    steps: Annotated[int, Field(ge=1, description="how often the center is moved")] = 3,
) -> Matrix:
    """Average the differences from the most central update, clipped to the median length, iteratively."""
    n = len(products)
    need(n > 2 * malicious, "centered-clipping", "n > 2 m", n, malicious)
    weights = _equal_weights(n, np.array([np.argmin(np.sqrt(_distances(products)).sum(axis=1))]))
    for _ in range(steps):
        lengths = _distances_to(weights, products)
        clipped = _clip(lengths, radius * float(np.median(lengths)))
        weights = weights * (1 - clipped.mean()) + clipped / n
    return weights


def _clip(lengths: Matrix, longest: float) -> Matrix:
    """Return by what each update is multiplied to be no longer than that."""
    return np.asarray(longest / np.maximum(lengths, max(longest, 1e-300)), np.float64)


def _screened_minority(clients: int) -> int:
    return max(0, krum_minority(clients))


@weighting("screened-mean", "fedrank (docs/votes.md)", _screened_minority)
def screened_mean(
    products: Matrix,
    malicious: int,
    *,
    longest: Annotated[
        float, Field(gt=0, description="the length that updates are clipped to, in median lengths")
    ] = 2.0,
    opposed: Annotated[
        float,
        Field(ge=-1, le=1, description="the correlation with the consensus up to which updates are left out"),
    ] = -0.2,
) -> Matrix:
    """Average the updates that do not oppose the consensus, none longer than twice the median length.

    The consensus is `nnm+multi-krum` of the updates, clipped to one length: robust, but it loses what few
    clients know, so it only judges. The updates themselves are averaged, which costs little without attack.
    Those that the consensus is not made of may together pull no harder than if they were independent.
    """
    n = len(products)
    if n <= 2 and malicious == 0:
        return np.full(n, 1 / n)  # one or two have no consensus
    need(n > 2 * malicious + 2, "screened-mean", "n > 2 m + 2", n, malicious)
    lengths = np.sqrt(np.diag(products))
    median_length = float(np.median(lengths))
    cut = _clip(lengths, median_length)
    consensus = cut * _mixed_multi_krum(products * cut * cut[:, None], malicious)
    kept = _correlations_with_the_others(consensus, products) > opposed
    weights = kept * _clip(lengths, longest * median_length)
    outside = np.where(consensus == 0, weights, 0)
    together = (outside * (products * outside).sum(axis=1)).sum()
    independent = (outside**2 * np.diag(products)).sum()
    if together > independent:
        weights = np.where(consensus == 0, weights * np.sqrt(independent / together), weights)
    return np.asarray(weights / max(1, int(np.count_nonzero(kept))))


def _mixed_multi_krum(products: Matrix, malicious: int) -> Matrix:
    """Return the weights of nnm+multi-krum."""
    counts = nearest_neighbor_mixing(products, malicious)
    members = len(products) - malicious
    mixed = counts @ products @ counts.T / members**2
    return np.asarray((multi_krum(mixed, malicious)[:, None] * counts).sum(axis=0) / members)


def _correlations_with_the_others(weights: Matrix, products: Matrix) -> Matrix:
    """Return the correlation of each update with the weighted mean of all others."""
    squares = np.diag(products)
    with_each = (products * weights).sum(axis=1)
    with_others = with_each - weights * squares
    length_of_others = (weights * with_each).sum() - 2 * weights * with_each + weights**2 * squares
    return np.asarray(with_others / np.sqrt(np.maximum(squares * length_of_others, 1e-300)))


def _distances_to(weights: Matrix, products: Matrix) -> Matrix:
    """Return the distances of a weighted mean to all updates, which follow from inner products alone."""
    with_each = (products * weights).sum(axis=1)
    squares = np.diag(products) - 2 * with_each + (weights * with_each).sum()
    return np.asarray(np.sqrt(np.maximum(squares, 0)))


@preaggregator("nnm", "Allouah et al., 2023", minority)
def nearest_neighbor_mixing(
    products: Matrix, malicious: int, _rng: np.random.Generator | None = None
) -> Matrix:
    """Each update becomes the mean of its n - m nearest neighbors, itself included."""
    n = len(products)
    need(n > 2 * malicious, "nnm", "n > 2 m", n, malicious)
    nearest = np.argsort(_distances(products), axis=1, kind="stable")[:, : n - malicious]
    counts = np.zeros((n, n))
    np.put_along_axis(counts, nearest, 1, axis=1)
    return counts


@clipping("clip", "fedrank (docs/votes.md)")
def clip(lengths: Vector, size: int) -> float:
    """Each coordinate counts at most three deviations: the median length by the root of the size.

    Noise is spread over all coordinates, directed harm is not: few coordinates, moved far.
    """
    return DEVIATIONS * float(np.median(lengths)) / math.sqrt(size)


@grouping("bucketing", "Karimireddy et al., 2022")
def bucketing(n: int, rng: np.random.Generator) -> Matrix:
    """The means of random pairs of updates; a malicious one spoils one pair."""
    counts = np.zeros(((n + 1) // 2, n))
    counts[np.arange(n) // 2, rng.permutation(n)] = 1
    return counts


def squared_distances(updates: Updates) -> Matrix:
    """Return the squared distances of all pairs of updates, from one matrix of inner products."""
    return _distances(inner_products(updates))


def _distances(products: Matrix) -> Matrix:
    squares = np.diag(products)
    distances = np.maximum(squares[:, None] + squares[None, :] - 2 * products, 0)
    np.fill_diagonal(distances, 0)
    return distances
