"""Aggregation rules: pure functions on an array with one update in each row.

A rule is told how many of the n updates may be malicious, m, and refuses to work where its theory has
nothing to say. None depends on the order of the updates, but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedrank.errors import ConfigError

Updates = NDArray[np.floating]
Vector = NDArray[np.floating]
Rule = Callable[[Updates, int], Vector]
Most = Callable[[int], int]
Mixing = Callable[[Updates, int, np.random.Generator], tuple[Updates, int]]


@dataclass(frozen=True)
class Listed:
    """What a list of rules shows of one."""

    name: str
    summary: str
    source: str


AGGREGATORS: dict[str, Rule] = {}
MIXINGS: dict[str, Mixing] = {}
MOST: dict[str, Most] = {}
LISTED: dict[str, Listed] = {}


def everybody(clients: int) -> int:
    """Return the most malicious clients for rules that do not ask for their number."""
    return clients


def minority(clients: int) -> int:
    """Return the largest m with n > 2 m."""
    return (clients - 1) // 2


def aggregator(name: str, source: str, most: Most = everybody) -> Callable[[Rule], Rule]:
    """Register a function (updates, m) as the rule of this name; `most` gives the largest m for n updates."""

    def register(function: Rule) -> Rule:
        AGGREGATORS[name] = function
        MOST[name] = most
        LISTED[name] = _listed(name, function, source)
        return function

    return register


def mixing(name: str, source: str, most: Most = everybody) -> Callable[[Mixing], Mixing]:
    """Register a function (updates, m, rng) that mixes updates before a rule aggregates them."""

    def register(function: Mixing) -> Mixing:
        MIXINGS[name] = function
        MOST[name] = most
        LISTED[name] = _listed(name, function, source)
        return function

    return register


def _listed(name: str, function: Callable[..., object], source: str) -> Listed:
    return Listed(name, (function.__doc__ or "").strip().splitlines()[0], source)


@dataclass(frozen=True)
class Chain:
    """Mixings, one after the other, and the rule at their end: `nnm+trimmed-mean`."""

    name: str

    def __post_init__(self) -> None:
        *before, last = self.name.split("+")
        for part in before:
            if part not in MIXINGS:
                raise ConfigError(f"{self.name!r}: {part!r} mixes nothing; there are: {', '.join(MIXINGS)}")
        if last not in AGGREGATORS:
            raise ConfigError(
                f"{self.name!r}: {last!r} is no aggregation rule; there are: {', '.join(AGGREGATORS)}"
            )

    def __call__(self, updates: Updates, malicious: int, rng: np.random.Generator) -> Vector:
        """Aggregate. Only bucketing needs the generator."""
        *before, last = self.name.split("+")
        for part in before:
            updates, malicious = MIXINGS[part](updates, malicious, rng)
        return AGGREGATORS[last](updates, malicious)

    def most(self, clients: int) -> int:
        """Return how many malicious ones among some clients the whole chain can bear; -1: not even none."""
        least = clients
        for part in self.name.split("+"):
            least = min(least, MOST[part](clients))
            if part == "bucketing":
                clients = (clients + 1) // 2
        return max(-1, least)


def need(condition: bool, rule: str, demand: str, updates: Updates, malicious: int) -> None:
    """Refuse what a rule cannot do."""
    if not condition:
        raise ConfigError(
            f"{rule} needs {demand}; there are n = {len(updates)} updates and m = {malicious} malicious ones"
        )
