"""Attacks on rankings."""

from __future__ import annotations

import numpy as np

from fedrank.attacks.base import Knowledge, Target, View, attack
from fedrank.rank import Ranking, vote_on


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
