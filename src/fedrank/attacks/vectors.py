"""Attacks on vectors: changes of weights, or the displacements that rankings are."""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedrank.aggregators.rules import squared_distances
from fedrank.attacks.base import Knowledge, Target, View, attack

Floats = NDArray[Any]
Distances = Callable[[float], NDArray[np.float64]]
FIRST_FACTOR = 5.0
HALVINGS = 20
LEAST_DEVIATIONS = 0.05
"""With few colluders the published number is zero or negative, and the attack would help the defender."""

Direction = Annotated[
    Literal["std", "sign"],
    Field(
        description="std: down by each coordinate's deviation, as published; sign: against the mean's signs"
    ),
]


@attack("sign-flip", target=Target.EITHER, knows=Knowledge.OWN, source="common baseline")
def sign_flip(view: View) -> Floats:
    """The opposite of what was learned."""
    return floats(-view.own[0])


@attack("noise", target=Target.EITHER, knows=Knowledge.OWN, source="common baseline")
def noise(view: View) -> Floats:
    """Random numbers as large as what was learned."""
    return floats(view.rng.standard_normal(view.own[0].size) * view.own[0].std())


@attack("ipm", target=Target.EITHER, knows=Knowledge.BENIGN, source="Xie et al., 2020")
def inner_product_manipulation(view: View) -> Floats:
    """The benign mean the other way round, so long that the sum points backwards, but no longer."""
    benign = benign_of(view)
    return floats(-1.1 * len(benign) / view.malicious * benign.mean(axis=0))


@attack("alie", target=Target.EITHER, knows=Knowledge.BENIGN, source="Baruch et al., 2019")
def a_little_is_enough(view: View, *, direction: Direction = "std") -> Floats:
    """The benign mean, moved by as many deviations as leave a majority of benign updates farther out."""
    benign = benign_of(view)
    deviations = max(published_deviations(len(benign) + view.malicious, view.malicious), LEAST_DEVIATIONS)
    return floats(benign.mean(axis=0) - deviations * _deviation(benign, direction))


def published_deviations(n: int, m: int) -> float:
    """Return the source's z: so many deviations from the mean, enough benign updates are farther out.

    With m colluders these need floor(n/2 + 1) - m of the n - m benign updates for a majority.

    >>> round(published_deviations(50, 12), 2), round(published_deviations(20, 1), 2)
    (0.34, -0.07)
    """
    supporters = n // 2 + 1 - m
    share = min(max((n - m - supporters) / (n - m), 0.01), 0.99)
    return NormalDist().inv_cdf(share)


@attack("min-max", target=Target.EITHER, knows=Knowledge.BENIGN, source="Shejwalkar and Houmansadr, 2021")
def min_max(view: View, *, direction: Direction = "std") -> Floats:
    """As far from the benign mean as any two benign updates are from each other."""
    benign = benign_of(view)
    farthest = squared_distances(benign).max()
    return _farthest(benign, direction, lambda distances: bool(distances.max() <= farthest))


@attack("min-sum", target=Target.EITHER, knows=Knowledge.BENIGN, source="Shejwalkar and Houmansadr, 2021")
def min_sum(view: View, *, direction: Direction = "std") -> Floats:
    """As far from the benign mean as keeps the sum of squared distances within that of a benign update."""
    benign = benign_of(view)
    largest = squared_distances(benign).sum(axis=1).max()
    return _farthest(benign, direction, lambda distances: bool(distances.sum() <= largest))


def floats(values: Floats) -> Floats:
    """Return values as updates hold them."""
    return np.asarray(values, np.float32)


def benign_of(view: View) -> Floats:
    """Return the benign updates, one in each row; if all clients are malicious, what they have learned."""
    return np.stack(view.benign or view.own)


def directions(benign: Floats) -> list[Floats]:
    """Return the perturbations that the source proposes, and the deviation with the mean's signs."""
    mean, deviation = benign.mean(axis=0), benign.std(axis=0)
    unit = mean / max(float(np.linalg.norm(mean)), 1e-30)
    return [deviation, unit, np.sign(mean), deviation * np.sign(mean)]


def distances_to_benign(benign: Floats, direction: Floats) -> Distances:
    """Return a function from a factor to the squared distances of mean - factor * direction to all updates.

    They are |mean - u|^2 - 2 factor (mean - u) * direction + factor^2 |direction|^2, so trying a factor costs
    nothing.
    """
    gaps = benign.mean(axis=0) - benign
    constant = np.einsum("ij,ij->i", gaps, gaps, dtype=np.float64)
    linear = np.einsum("ij,j->i", gaps, direction, dtype=np.float64)
    square = float(np.einsum("j,j->", direction, direction, dtype=np.float64))
    return lambda factor: constant - 2 * factor * linear + factor * factor * square


def _deviation(benign: Floats, direction: str) -> Floats:
    deviation = benign.std(axis=0)
    return floats(deviation * np.sign(benign.mean(axis=0)) if direction == "sign" else deviation)


def _farthest(benign: Floats, direction: str, allowed: Callable[[NDArray[np.float64]], bool]) -> Floats:
    """Move from the benign mean, by deviations, as far as the distances allow."""
    deviation = _deviation(benign, direction)
    distances_at = distances_to_benign(benign, deviation)
    factor = largest_passing(lambda factor: allowed(distances_at(factor)))
    return floats(benign.mean(axis=0) - np.float32(factor) * deviation)


def largest_passing(passes: Callable[[float], bool]) -> float:
    """Return the largest factor that passes, by a bracketed search: grow until it fails, then halve."""
    passing, failing = 0.0, FIRST_FACTOR
    while passes(failing) and failing < 1e6:
        passing, failing = failing, 2 * failing
    for _ in range(HALVINGS):
        middle = (passing + failing) / 2
        if passes(middle):
            passing = middle
        else:
            failing = middle
    return passing
