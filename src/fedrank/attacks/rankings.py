"""Attacks on rankings."""

from __future__ import annotations

import numpy as np

from fedrank.attacks.base import Knowledge, Target, View, attack
from fedrank.rank import Ranking, top_count, vote_on


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


@attack("border", target=Target.RANKINGS, knows=Knowledge.COLLUDERS, source="this project, for Sparse-FRL")
def border(view: View) -> Ranking:
    """The edges just below the border of the colluders' vote on top, those just above it at the bottom.

    A ballot of the top x% gives 0 to whatever it does not name, so points for edges that have no chance are
    wasted: the edges that a few points lift over the border are the ones nearest to it.
    """
    voted = vote_on(view.own, view.layout)
    for layer in view.layout:
        ranked = voted[layer.edges]
        below = layer.size - top_count(layer.size, view.keep)
        voted[layer.edges] = np.concatenate([ranked[below:], ranked[:below]])
    return voted
