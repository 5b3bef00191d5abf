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
Mixing = Callable[[Updates, int, np.random.Generator], tuple[Updates, int]]


@dataclass(frozen=True)
class Listed:
    """What a list of rules shows of one."""

    name: str
    summary: str
    source: str


AGGREGATORS: dict[str, Rule] = {}
MIXINGS: dict[str, Mixing] = {}
LISTED: dict[str, Listed] = {}


def aggregator(name: str, source: str) -> Callable[[Rule], Rule]:
    """Register a function (updates, m) as the aggregation rule of this name."""

    def register(function: Rule) -> Rule:
        AGGREGATORS[name] = function
        LISTED[name] = _listed(name, function, source)
        return function

    return register


def mixing(name: str, source: str) -> Callable[[Mixing], Mixing]:
    """Register a function (updates, m, rng) that mixes updates before a rule aggregates them."""

    def register(function: Mixing) -> Mixing:
        MIXINGS[name] = function
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


def need(condition: bool, rule: str, demand: str, updates: Updates, malicious: int) -> None:
    """Refuse what a rule cannot do."""
    if not condition:
        raise ConfigError(
            f"{rule} needs {demand}; there are n = {len(updates)} updates and m = {malicious} malicious ones"
        )
