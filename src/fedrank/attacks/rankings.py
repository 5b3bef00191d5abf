"""Attacks on rankings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedrank.attacks.base import Knowledge, Target, View, attack
from fedrank.rank import Ranking, rank_points, reputation, top_count, vote_on

FACTOR = 16
FACTORS = (1, 2, 4, 8, 16, 32, 64)
BAND = 0.1
"""How much of a layer lies in the band on each side of the border."""


@attack(
    "reverse",
    target=Target.RANKINGS,
    knows=Knowledge.COLLUDERS,
    source="Mozaffari et al., 2023, Algorithm 3",
)
def reverse(view: View) -> Ranking:
    """The colluders vote, and send the reverse of the result."""
    voted = vote_on(view.own, view.layout)
    for layer in view.layout:
        voted[layer.edges] = voted[layer.edges][::-1].copy()
    return voted


@attack("random", target=Target.RANKINGS, knows=Knowledge.OWN, source="the usual reference")
def random(view: View) -> Ranking:
    """A random ranking, other for each malicious client."""
    return np.concatenate([view.rng.permutation(layer.size) for layer in view.layout]).astype(np.int32)


@attack("mirror", target=Target.RANKINGS, knows=Knowledge.COLLUDERS, source="fedrank")
def mirror(view: View) -> Ranking:
    """The colluders vote, and send the global ranking moved 16 times as far the other way."""
    return _mirrored(view, vote_on(view.own, view.layout), FACTOR)


@attack("mirror-alone", target=Target.RANKINGS, knows=Knowledge.OWN, source="fedrank")
def mirror_alone(view: View) -> Ranking:
    """Each malicious client mirrors what it has learned itself, so that no two ballots are alike."""
    return _mirrored(view, view.own[0], FACTOR)


@attack("mirror-shallow", target=Target.RANKINGS, knows=Knowledge.COLLUDERS, source="fedrank")
def mirror_shallow(view: View) -> Ranking:
    """Mirror in all layers but the largest, where the colluders send what they have learned."""
    voted = vote_on(view.own, view.layout)
    sent = _mirrored(view, voted, FACTOR)
    largest = max(view.layout, key=lambda layer: layer.size)
    sent[largest.edges] = voted[largest.edges]
    return sent


@attack("mirror-tuned", target=Target.RANKINGS, knows=Knowledge.COLLUDERS, source="fedrank")
def mirror_tuned(view: View) -> Ranking:
    """Mirror by the factor that sets the vote back most; the colluders' ballots stand for all others."""
    honest = [view.own[i % len(view.own)] for i in range(view.selected - view.malicious)]
    return _most_harmful(view, honest)


@attack("mirror-omniscient", target=Target.RANKINGS, knows=Knowledge.BENIGN, source="fedrank")
def mirror_omniscient(view: View) -> Ranking:
    """Mirror what the benign clients have learned, by the factor that sets the real vote back most."""
    return _most_harmful(view, view.benign or view.own)


@attack("band", target=Target.RANKINGS, knows=Knowledge.COLLUDERS, source="fedrank")
def band(view: View) -> Ranking:
    """The colluders vote; edges just above the border go to the bottom, edges just below it to the top."""
    voted = vote_on(view.own, view.layout)
    for layer in view.layout:
        order = voted[layer.edges]
        border = layer.size - top_count(layer.size, view.keep)
        reach = int(BAND * layer.size)
        below, above = slice(max(0, border - reach), border), slice(border, border + reach)
        rest = np.concatenate([order[: below.start], order[above.stop :]])
        voted[layer.edges] = np.concatenate([order[above], rest, order[below]])
    return voted


def _mirrored(view: View, voted: Ranking, factor: int) -> Ranking:
    """Return rank(G - factor * (R - G)), where G are the global reputations and R those of a vote."""
    before = reputation(view.reference, view.layout).astype(np.int64)
    points = before - factor * (reputation(voted, view.layout) - before)
    return rank_points(points - points.min(), view.layout)


def _most_harmful(view: View, honest: list[Ranking]) -> Ranking:
    """Return the mirrored ranking after which the vote has come least far, seen along the honest way."""
    voted = vote_on(honest, view.layout)
    before = reputation(view.reference, view.layout)
    way = (reputation(voted, view.layout) - before).astype(np.float64)
    best, least = voted, np.inf
    for factor in FACTORS:
        sent = _mirrored(view, voted, factor)
        after = view.aggregate([*honest, *[sent] * view.malicious])
        come = reputation(after, view.layout) - before
        # Each layer counts the same, however many edges it has.
        progress = sum(_share(come[layer.edges], way[layer.edges]) for layer in view.layout)
        if progress < least:
            best, least = sent, progress
    return best


def _share(come: NDArray[np.int32], way: NDArray[np.float64]) -> float:
    """Return which share of a way has been covered."""
    return float(come @ way) / max(float(way @ way), 1.0)
