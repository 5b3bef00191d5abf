"""Attacks on weights: what a malicious update looks like to the rule that aggregates it."""

from __future__ import annotations

import numpy as np

from fedrank.aggregators.rules import krum_minority, multi_krum_selection, squared_distances
from fedrank.attacks.base import Knowledge, Target, View, attack
from fedrank.attacks.vectors import (
    FIRST_FACTOR,
    HALVINGS,
    Distances,
    Floats,
    benign_of,
    directions,
    distances_to_benign,
    floats,
    largest_passing,
)

SAMPLED_COORDINATES = 2**15


@attack("scaled", target=Target.WEIGHTS, knows=Knowledge.OWN, source="Blanchard et al., 2017")
def scaled(view: View) -> Floats:
    """The global weights, 100,000 times over: one such update carries a mean away."""
    with np.errstate(over="ignore"):
        return floats(1e5 * view.reference)


@attack("sign-reverse", target=Target.WEIGHTS, knows=Knowledge.COLLUDERS, source="Bernstein et al., 2019")
def sign_reverse(view: View) -> Floats:
    """The opposite of the signs that most colluders have learned, for SignSGD."""
    majority = np.sum([np.sign(update) for update in view.own], axis=0)
    return floats(-np.sign(majority))


@attack(
    "dyn-trimmed-mean",
    target=Target.WEIGHTS,
    knows=Knowledge.BENIGN,
    source="Shejwalkar and Houmansadr, 2021 (DYN-OPT)",
)
def dynamic_trimmed_mean(view: View) -> Floats:
    """Against trimmed mean: in each direction the factor that moves the aggregate farthest."""
    benign = benign_of(view)
    # The rule works coordinate by coordinate, so some of them tell as much as all.
    chosen = view.rng.permutation(benign.shape[1])[:SAMPLED_COORDINATES]
    some = benign[:, chosen]
    mean = some.mean(axis=0)

    def aggregate(factor: float, direction: Floats) -> Floats:
        update = mean - np.float32(factor) * direction
        return view.aggregate([*some, *[update] * view.malicious])

    found = []
    for number, direction in enumerate(directions(some)):
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
    return floats(benign.mean(axis=0) - np.float32(factor) * directions(benign)[number])


@attack(
    "dyn-multi-krum",
    target=Target.WEIGHTS,
    knows=Knowledge.BENIGN,
    source="Shejwalkar and Houmansadr, 2021 (DYN-OPT)",
)
def dynamic_multi_krum(view: View) -> Floats:
    """Against Multi-Krum: the largest factor at which malicious updates are selected, as many as can be."""
    benign = benign_of(view)
    n, m = len(benign), view.malicious
    assumed = max(0, min(view.assumed, krum_minority(n + m)))  # what Multi-Krum can bear
    mean = benign.mean(axis=0)
    distances = np.zeros((n + m, n + m))
    distances[:n, :n] = squared_distances(benign)
    found = []
    for direction in directions(benign):
        distances_at = distances_to_benign(benign, direction)

        def passes(factor: float, distances_at: Distances = distances_at) -> bool:
            distances[n:, :n] = distances_at(factor)
            distances[:n, n:] = distances[n:, :n].T
            selected = multi_krum_selection(distances, assumed)
            return bool(0 < np.count_nonzero(selected >= n) == min(m, selected.size))

        update = mean - np.float32(largest_passing(passes)) * direction
        found.append((float(update @ mean), update))
    return floats(min(found, key=lambda candidate: candidate[0])[1])
