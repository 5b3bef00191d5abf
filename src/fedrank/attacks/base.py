"""What an attack is: a function from what the colluders of a round know to the updates they send."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from fedrank.rank import Layout


@dataclass(frozen=True)
class View:
    """What the colluders of a round know.

    Parameters
    ----------
    layout : the network's layers.
    own : what each colluder has learned on its own data, as an honest client would have.
    """

    layout: Layout
    own: list[NDArray[Any]]


Attack = Callable[[View], list[NDArray[Any]]]
"""Returns the update that each colluder sends, in the order of `View.own`."""

ATTACKS: dict[str, Attack] = {}


def attack(name: str) -> Callable[[Attack], Attack]:
    """Register a function as the attack of this name."""

    def register(function: Attack) -> Attack:
        ATTACKS[name] = function
        return function

    return register
