"""The rules."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedrank.aggregators.base import Updates, Vector, aggregator, minority, mixing, need


def krum_minority(clients: int) -> int:
    """Return the largest m with n > 2 m + 2."""
    return (clients - 3) // 2


BLOCK = 2**14  # coordinates that are sorted at once, so that they stay in the caches


@aggregator("mean", "McMahan et al., 2017")
def mean(updates: Updates, _malicious: int) -> Vector:
    """The mean. One malicious update moves it anywhere."""
    return np.asarray(np.mean(updates, axis=0))


@aggregator("trimmed-mean", "Yin et al., 2018", minority)
def trimmed_mean(updates: Updates, malicious: int) -> Vector:
    """The mean of each coordinate without its m largest and m smallest values."""
    n = len(updates)
    need(n > 2 * malicious, "trimmed-mean", "n > 2 m", updates, malicious)
    if malicious == 0:
        return mean(updates, 0)
    return _by_coordinate(updates, lambda ordered: ordered[:, malicious : n - malicious].mean(axis=1))


@aggregator("median", "Yin et al., 2018", minority)
def median(updates: Updates, malicious: int) -> Vector:
    """The median of each coordinate."""
    n = len(updates)
    need(n > 2 * malicious, "median", "n > 2 m", updates, malicious)
    return _by_coordinate(updates, lambda ordered: ordered[:, (n - 1) // 2 : n // 2 + 1].mean(axis=1))


def _by_coordinate(updates: Updates, of_sorted: Callable[[Updates], Vector]) -> Vector:
    """Apply a function to the sorted values of each coordinate."""
    result = np.empty(updates.shape[1], updates.dtype)
    for begin in range(0, result.size, BLOCK):
        block = np.ascontiguousarray(updates[:, begin : begin + BLOCK].T)
        block.sort(axis=1)
        result[begin : begin + BLOCK] = of_sorted(block)
    return result


@aggregator("krum", "Blanchard et al., 2017", krum_minority)
def krum(updates: Updates, malicious: int) -> Vector:
    """The update that is closest to its n - m - 2 nearest neighbours."""
    need(len(updates) > 2 * malicious + 2, "krum", "n > 2 m + 2", updates, malicious)
    return np.array(updates[_closest(squared_distances(updates), malicious)])


@aggregator("multi-krum", "Blanchard et al., 2017, as Mozaffari et al., 2023, have it", krum_minority)
def multi_krum(updates: Updates, malicious: int) -> Vector:
    """The mean of what krum selects, one after the other while more than 2 m + 2 remain."""
    need(len(updates) > 2 * malicious + 2, "multi-krum", "n > 2 m + 2", updates, malicious)
    return mean(updates[multi_krum_selection(squared_distances(updates), malicious)], malicious)


def multi_krum_selection(distances: NDArray[np.float64], malicious: int) -> NDArray[np.intp]:
    """Return which updates multi-krum selects, given their squared distances, in their own order."""
    remaining = np.arange(len(distances))
    selected = []
    while remaining.size > 2 * malicious + 2:
        best = _closest(distances[np.ix_(remaining, remaining)], malicious)
        selected.append(remaining[best])
        remaining = np.delete(remaining, best)
    return np.sort(np.array(selected))


def _closest(distances: NDArray[np.float64], malicious: int) -> int:
    """Return the update with the least sum of distances to its nearest neighbours, itself not counted."""
    neighbours = max(1, len(distances) - malicious - 2)
    nearest = np.sort(distances, axis=1)[:, 1 : neighbours + 1]
    return int(np.argmin(nearest.sum(axis=1)))


@aggregator("geometric-median", "Pillutla et al., 2022 (smoothed Weiszfeld)", minority)
def geometric_median(updates: Updates, malicious: int) -> Vector:
    """The point with the least sum of distances to all updates."""
    need(len(updates) > 2 * malicious, "geometric-median", "n > 2 m", updates, malicious)
    gram = _inner_products(updates)
    lengths = np.sqrt(np.diag(gram))
    distances, weights = lengths, np.zeros(len(updates))
    for _ in range(1000):
        typical = max(float(np.median(distances)), 1e-300)
        closeness = 1 / np.maximum(distances, 1e-6 * typical)
        before, weights = weights, closeness / closeness.sum()
        # The distances of a weighted mean to all updates follow from inner products alone.
        squares = np.diag(gram) - 2 * gram @ weights + weights @ gram @ weights
        distances = np.sqrt(np.maximum(squares, 0))
        if (np.abs(weights - before) * lengths).max() < 1e-9 * typical:
            break
    return _weighted_sum(weights, updates)


def _weighted_sum(weights: NDArray[np.float64], updates: Updates) -> Vector:
    """Return weights @ updates in double precision: a far update has a tiny weight."""
    result = np.empty(updates.shape[1], updates.dtype)
    for begin in range(0, result.size, BLOCK):
        result[begin : begin + BLOCK] = weights @ updates[:, begin : begin + BLOCK].astype(np.float64)
    return result


@aggregator("centred-clipping", "Karimireddy et al., 2021", minority)
def centred_clipping(updates: Updates, malicious: int) -> Vector:
    """The mean way from the median, no way longer than the median one; three times over."""
    need(len(updates) > 2 * malicious, "centred-clipping", "n > 2 m", updates, malicious)
    centre = median(updates, malicious)
    for _ in range(3):
        ways = updates - centre
        lengths = np.sqrt(np.einsum("ij,ij->i", ways, ways, dtype=np.float64))
        shorten = np.minimum(1, np.median(lengths) / np.maximum(lengths, 1e-30)).astype(updates.dtype)
        centre = centre + shorten @ ways / len(updates)
    return centre


@mixing("nnm", "Allouah et al., 2023", minority)
def nearest_neighbour_mixing(
    updates: Updates, malicious: int, _rng: np.random.Generator
) -> tuple[Updates, int]:
    """Each update becomes the mean of its n - m nearest neighbours, itself included."""
    n = len(updates)
    need(n > 2 * malicious, "nnm", "n > 2 m", updates, malicious)
    nearest = np.argsort(squared_distances(updates), axis=1, kind="stable")[:, : n - malicious]
    shares = np.zeros((n, n), updates.dtype)
    np.put_along_axis(shares, nearest, 1 / (n - malicious), axis=1)
    return shares @ updates, malicious


@mixing("bucketing", "Karimireddy et al., 2022")
def bucketing(updates: Updates, malicious: int, rng: np.random.Generator) -> tuple[Updates, int]:
    """The means of random pairs of updates; a malicious one spoils one pair."""
    order = rng.permutation(len(updates))
    pairs = [mean(updates[order[begin : begin + 2]], 0) for begin in range(0, len(updates), 2)]
    return np.stack(pairs), malicious


def squared_distances(updates: Updates) -> NDArray[np.float64]:
    """Return the squared distances of all pairs of updates, from one matrix of inner products."""
    gram = _inner_products(updates)
    squares = np.diag(gram)
    distances = np.maximum(squares[:, None] + squares[None, :] - 2 * gram, 0)
    np.fill_diagonal(distances, 0)
    return distances


def _inner_products(updates: Updates) -> NDArray[np.float64]:
    """Return the inner products of all pairs of updates, seen from the median of each coordinate.

    A far origin would cost all digits of the distances between near updates. No minority can move this one.
    """
    products = np.zeros((len(updates), len(updates)))
    for begin in range(0, updates.shape[1], BLOCK):
        block = updates[:, begin : begin + BLOCK].astype(np.float64)
        block -= np.median(block, axis=0)
        products += block @ block.T
    return products
