"""Attacks on weights: what a malicious update looks like to the rule that aggregates it."""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrank.aggregators.rules import multi_krum_selection, squared_distances
from fedrank.attacks.base import Knowledge, Target, View, attack
from fedrank.errors import ConfigError

Floats = NDArray[Any]
Distances = Callable[[float], NDArray[np.float64]]
FIRST_FACTOR = 5.0
HALVINGS = 20
SAMPLED_COORDINATES = 2**15


@attack("scaled", target=Target.WEIGHTS, knows=Knowledge.OWN, source="Blanchard et al., 2017")
def scaled(view: View) -> Floats:
    """The global weights, 100,000 times over: one such update carries a mean away."""
    with np.errstate(over="ignore"):
        return _floats(1e5 * view.reference)


@attack("sign-flip", target=Target.WEIGHTS, knows=Knowledge.OWN, source="the usual reference")
def sign_flip(view: View) -> Floats:
    """The opposite of what was learned."""
    return _floats(-view.own[0])


@attack("noise", target=Target.WEIGHTS, knows=Knowledge.OWN, source="the usual reference")
def noise(view: View) -> Floats:
    """Random numbers as large as what was learned."""
    return _floats(view.rng.standard_normal(view.own[0].size) * view.own[0].std())


@attack("sign-reverse", target=Target.WEIGHTS, knows=Knowledge.COLLUDERS, source="Bernstein et al., 2019")
def sign_reverse(view: View) -> Floats:
    """The opposite of the signs that most colluders have learned, for SignSGD."""
    majority = np.sum([np.sign(update) for update in view.own], axis=0)
    return _floats(-np.sign(majority))


@attack("ipm", target=Target.WEIGHTS, knows=Knowledge.BENIGN, source="Xie et al., 2020")
def inner_product_manipulation(view: View) -> Floats:
    """The benign mean the other way round, so long that the sum points backwards, but no longer."""
    benign = _benign(view)
    return _floats(-1.1 * len(benign) / view.malicious * benign.mean(axis=0))


@attack("lie", target=Target.WEIGHTS, knows=Knowledge.BENIGN, source="Baruch et al., 2019")
def a_little_is_enough(view: View) -> Floats:
    """The benign mean, moved by as many deviations as leave a majority of benign updates farther out."""
    benign = _benign(view)
    n, m = len(benign) + view.malicious, view.malicious
    supporters = n // 2 + 1 - m
    share = min(max((n - m - supporters) / (n - m), 0.01), 0.99)
    mean = benign.mean(axis=0)
    return _floats(mean - NormalDist().inv_cdf(share) * benign.std(axis=0) * np.sign(mean))


@attack("min-max", target=Target.WEIGHTS, knows=Knowledge.BENIGN, source="Shejwalkar and Houmansadr, 2021")
def min_max(view: View) -> Floats:
    """As far from the benign mean as any two benign updates are from each other."""
    benign = _benign(view)
    farthest = squared_distances(benign).max()
    return _farthest(benign, lambda distances: bool(distances.max() <= farthest))


@attack("min-sum", target=Target.WEIGHTS, knows=Knowledge.BENIGN, source="Shejwalkar and Houmansadr, 2021")
def min_sum(view: View) -> Floats:
    """As far from the benign mean as keeps the sum of squared distances within that of a benign update."""
    benign = _benign(view)
    largest = squared_distances(benign).sum(axis=1).max()
    return _farthest(benign, lambda distances: bool(distances.sum() <= largest))


@attack(
    "dyn-trimmed-mean",
    target=Target.WEIGHTS,
    knows=Knowledge.BENIGN,
    source="Shejwalkar and Houmansadr, 2021 (DYN-OPT)",
)
def dynamic_trimmed_mean(view: View) -> Floats:
    """Against trimmed mean: in each direction the factor that moves the aggregate farthest."""
    benign = _benign(view)
    # The rule works coordinate by coordinate, so some of them tell as much as all.
    chosen = view.rng.permutation(benign.shape[1])[:SAMPLED_COORDINATES]
    some = benign[:, chosen]
    mean = some.mean(axis=0)

    def aggregate(factor: float, direction: Floats) -> Floats:
        update = mean - np.float32(factor) * direction
        return view.aggregate([*some, *[update] * view.malicious])

    found = []
    for number, direction in enumerate(_directions(some)):
        best, farthest = 0.0, -1.0
        factor = step = FIRST_FACTOR
        for _ in range(HALVINGS):
            moved = float(np.linalg.norm(aggregate(factor, direction) - mean))
            if moved > farthest:
                best, farthest = factor, moved
                factor += step / 2
            else:
                factor -= step / 2
            step /= 2
        found.append((float(aggregate(best, direction) @ mean), number, best))
    _, number, factor = min(found)
    return _floats(benign.mean(axis=0) - np.float32(factor) * _directions(benign)[number])


@attack(
    "dyn-multi-krum",
    target=Target.WEIGHTS,
    knows=Knowledge.BENIGN,
    source="Shejwalkar and Houmansadr, 2021 (DYN-OPT)",
)
def dynamic_multi_krum(view: View) -> Floats:
    """Against Multi-Krum: the largest factor at which malicious updates are selected, as many as can be."""
    benign = _benign(view)
    n, m = len(benign), view.malicious
    mean = benign.mean(axis=0)
    distances = np.zeros((n + m, n + m))
    distances[:n, :n] = squared_distances(benign)
    found = []
    for direction in _directions(benign):
        distances_at = _distances_to_benign(benign, direction)

        def passes(factor: float, distances_at: Distances = distances_at) -> bool:
            distances[n:, :n] = distances_at(factor)
            distances[:n, n:] = distances[n:, :n].T
            selected = multi_krum_selection(distances, m)
            return bool(np.count_nonzero(selected >= n) == min(m, selected.size))

        update = mean - np.float32(_largest(passes)) * direction
        found.append((float(update @ mean), update))
    return _floats(min(found, key=lambda candidate: candidate[0])[1])


def _floats(values: Floats) -> Floats:
    return np.asarray(values, np.float32)


def _benign(view: View) -> Floats:
    if not view.benign:
        raise ConfigError("this attack needs the updates of at least one benign client of the round")
    return np.stack(view.benign)


def _directions(benign: Floats) -> list[Floats]:
    """Return the perturbations that the source proposes, and the deviation with the mean's signs."""
    mean, deviation = benign.mean(axis=0), benign.std(axis=0)
    unit = mean / max(float(np.linalg.norm(mean)), 1e-30)
    return [deviation, unit, np.sign(mean), deviation * np.sign(mean)]


def _distances_to_benign(benign: Floats, direction: Floats) -> Distances:
    """Return a function from a factor to the squared distances of mean - factor * direction to all updates.

    They are |mean - u|^2 - 2 factor (mean - u) * direction + factor^2 |direction|^2, so trying a factor costs
    nothing.
    """
    gaps = benign.mean(axis=0) - benign
    constant = np.einsum("ij,ij->i", gaps, gaps, dtype=np.float64)
    linear = np.einsum("ij,j->i", gaps, direction, dtype=np.float64)
    square = float(np.einsum("j,j->", direction, direction, dtype=np.float64))
    return lambda factor: constant - 2 * factor * linear + factor * factor * square


def _farthest(benign: Floats, allowed: Callable[[NDArray[np.float64]], bool]) -> Floats:
    """Move from the benign mean against its signs, by deviations, as far as the distances allow."""
    mean = benign.mean(axis=0)
    direction = benign.std(axis=0) * np.sign(mean)
    distances_at = _distances_to_benign(benign, direction)
    factor = _largest(lambda factor: allowed(distances_at(factor)))
    return _floats(mean - np.float32(factor) * direction)


def _largest(passes: Callable[[float], bool]) -> float:
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
