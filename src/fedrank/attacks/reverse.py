"""The paper's attack on rankings."""

from __future__ import annotations

from fedrank.attacks.base import View, attack
from fedrank.rank import Ranking, vote_on


@attack("reverse")
def reverse(view: View) -> list[Ranking]:
    """Let the colluders vote, and send the reverse of the result (Mozaffari et al., 2023, Algorithm 3)."""
    voted = vote_on(view.own, view.layout)
    for layer in view.layout:
        voted[layer.edges] = voted[layer.edges][::-1].copy()
    return [voted] * len(view.own)
