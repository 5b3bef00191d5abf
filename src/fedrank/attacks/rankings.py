"""Attacks on rankings."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedrank.attacks.base import Knowledge, Target, View, attack
from fedrank.rank import Ranking, rank_points, reputation, top_count, vote_on

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


@attack("random", target=Target.RANKINGS, knows=Knowledge.OWN, source="common baseline")
def random(view: View) -> Ranking:
    """A random ranking, different for each malicious client."""
    return np.concatenate([view.rng.permutation(layer.size) for layer in view.layout]).astype(np.int32)


@attack("mirror", target=Target.RANKINGS, knows=Knowledge.COLLUDERS, source="fedrank")
def mirror(
    view: View,
    *,
    factor: Annotated[int, Field(ge=1, description="how many times as far the ranking is moved back")] = 16,
    layers: Annotated[
        Literal["all", "small"], Field(description="small: be honest in the largest layer")
    ] = "all",
    alone: Annotated[bool, Field(description="each client mirrors what it has learned itself")] = False,
) -> Ranking | list[Ranking]:
    """The colluders vote, and send the global ranking moved several times as far the other way."""
    if alone:
        return [_mirrored_in(view, own, factor, layers) for own in view.own]
    return _mirrored_in(view, vote_on(view.own, view.layout), factor, layers)


@attack("mirror-tuned", target=Target.RANKINGS, knows=Knowledge.COLLUDERS, source="fedrank")
def mirror_tuned(
    view: View,
    *,
    knows: Annotated[
        Literal["colluders", "benign"], Field(description="whose ballots the vote is simulated with")
    ] = "colluders",
) -> Ranking:
    """Mirror by the factor that sets the simulated vote back most."""
    if knows == "benign":
        return _most_harmful(view, view.benign or view.own)
    return _most_harmful(view, [view.own[i % len(view.own)] for i in range(view.selected - view.malicious)])


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


def _mirrored_in(view: View, voted: Ranking, factor: int, layers: str) -> Ranking:
    """Return a mirrored ranking; in the largest layer an honest one, if only the small ones are attacked."""
    sent = _mirrored(view, voted, factor)
    if layers == "small":
        largest = max(view.layout, key=lambda layer: layer.size)
        sent[largest.edges] = voted[largest.edges]
    return sent


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
