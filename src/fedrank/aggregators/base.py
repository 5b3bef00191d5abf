"""Aggregation rules, and chains of them.

A rule is told how many of the n updates may be malicious, m, and refuses to work where its theory has
nothing to say. None depends on the order of the updates, but for rounding and ties.

Most rules need no more than the inner products of all pairs of updates to know what to do: which ones to
mix, or what weight each has. What is left is the same for each coordinate. So a chain looks at the updates
twice, slice by slice, and they need not lie in memory all at once.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedrank.errors import ConfigError

Updates = NDArray[np.floating]
Vector = NDArray[np.floating]
Matrix = NDArray[np.float64]
Most = Callable[[int], int]
Step = Callable[[Updates], Vector]
F = TypeVar("F", bound=Callable[..., Any])

SLICE = 2**14  # coordinates that are looked at at once, so that they stay in the caches


class Role(enum.Enum):
    """What a rule's function takes and gives."""

    WHOLE = "(updates, m): one vector, from all coordinates of all updates"
    COORDINATE = "(updates, m): one vector; each coordinate is a matter of its own"
    WEIGHING = "(inner products, m): the weight of each update"
    MIXING = "(inner products, m, rng): how often each update counts in each of the mixed ones"
    GROUPING = "(number of updates, rng): the same, by chance alone"


@dataclass(frozen=True)
class Rule:
    """A rule by its name."""

    name: str
    summary: str
    source: str
    role: Role
    most: Most
    function: Callable[..., Any]

    @property
    def mixes(self) -> bool:
        """Whether it goes before a rule."""
        return self.role in (Role.MIXING, Role.GROUPING)


RULES: dict[str, Rule] = {}


def everybody(clients: int) -> int:
    """Return the most malicious clients for rules that do not ask for their number."""
    return clients


def minority(clients: int) -> int:
    """Return the largest m with n > 2 m."""
    return (clients - 1) // 2


def _register(role: Role, name: str, source: str, most: Most, function: F) -> F:
    summary = (function.__doc__ or "").strip().splitlines()[0]
    RULES[name] = Rule(name, summary, source, role, most, function)
    return function


def aggregator(
    name: str, source: str, most: Most = everybody, *, by_coordinate: bool = False
) -> Callable[[F], F]:
    """Register a function (updates, m) as the rule of this name; `most` gives the largest m for n updates.

    A rule that works on each coordinate by itself may be given some of them at a time.
    """
    return partial(_register, Role.COORDINATE if by_coordinate else Role.WHOLE, name, source, most)


def weighing(name: str, source: str, most: Most = everybody) -> Callable[[F], F]:
    """Register a function (inner products, m) that returns the weight of each update."""
    return partial(_register, Role.WEIGHING, name, source, most)


def mixing(name: str, source: str, most: Most = everybody) -> Callable[[F], F]:
    """Register a function (inner products, m, rng) that mixes updates before a rule aggregates them.

    It returns a matrix: how often each update (column) counts in the mean that is a mixed one (row).
    """
    return partial(_register, Role.MIXING, name, source, most)


def grouping(name: str, source: str, most: Most = everybody) -> Callable[[F], F]:
    """Register a function (number of updates, rng) that mixes updates without looking at them."""
    return partial(_register, Role.GROUPING, name, source, most)


@dataclass(frozen=True)
class Chain:
    """Mixings, one after the other, and the rule at their end: `nnm+trimmed-mean`."""

    name: str

    def __post_init__(self) -> None:
        *before, last = self.name.split("+")
        for part in before:
            if part not in RULES or not RULES[part].mixes:
                raise ConfigError(f"{self.name!r}: {part!r} mixes nothing; there are: {_names(mixing=True)}")
        if last not in RULES or RULES[last].mixes:
            raise ConfigError(
                f"{self.name!r}: {last!r} is no aggregation rule; there are: {_names(mixing=False)}"
            )

    @cached_property
    def mixings(self) -> list[Rule]:
        """What goes before the rule."""
        return [RULES[part] for part in self.name.split("+")[:-1]]

    @property
    def rule(self) -> Rule:
        """The rule at the end."""
        return RULES[self.name.split("+")[-1]]

    @property
    def compares(self) -> bool:
        """Whether the chain needs the inner products of the updates."""
        return any(rule.role in (Role.MIXING, Role.WEIGHING) for rule in (*self.mixings, self.rule))

    @property
    def sliceable(self) -> bool:
        """Whether some coordinates can be aggregated without the others, once the products are known."""
        return self.rule.role is not Role.WHOLE

    def most(self, clients: int) -> int:
        """Return how many malicious ones among some clients the whole chain can bear; -1: not even none."""
        least = clients
        for rule in (*self.mixings, self.rule):
            least = min(least, rule.most(clients))
            if rule.name == "bucketing":
                clients = (clients + 1) // 2
        return max(-1, least)

    def __call__(self, updates: Updates, malicious: int, rng: np.random.Generator) -> Vector:
        """Aggregate updates that lie in memory. Only bucketing needs the generator."""
        products = inner_products(updates) if self.compares else None
        step = self.step(len(updates), products, malicious, rng)
        size = updates.shape[1]
        # A plain mean reads every number once, so rows that are left whole are read fastest.
        width = SLICE if self.sliceable and self.name != "mean" else max(1, size)
        parts = [step(updates[:, begin : begin + width]) for begin in range(0, size, width)]
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return whole.astype(updates.dtype, copy=False)

    def step(self, n: int, products: Matrix | None, malicious: int, rng: np.random.Generator) -> Step:
        """Return what aggregates any slice of n updates; a chain that compares needs their inner products."""
        shares, divisor = None, np.ones((1, 1))
        for part in self.mixings:
            counts = (
                part.function(n, rng)
                if part.role is Role.GROUPING
                else part.function(products, malicious, rng)
            )
            n, members = len(counts), counts.sum(axis=1, keepdims=True)
            if products is not None:
                products = (counts @ products @ counts.T) / members / members.T
            shares, divisor = counts if shares is None else counts @ (shares / divisor), members
        function = self.rule.function
        if self.rule.role is Role.WEIGHING:
            weights = function(products, malicious)
            if shares is not None:
                weights = ((weights / divisor[:, 0])[:, None] * shares).sum(axis=0)
            return partial(_weighted_sum, weights)
        if shares is None:
            return lambda updates: function(updates, malicious)
        mix = partial(_few_members, shares) if _is_sparse(shares) else partial(np.matmul, shares)
        # Whole numbers first: sums of displacements are exact, in whatever order they are added up.
        return lambda updates: function(mix(updates.astype(np.float64)) / divisor, malicious)


def _is_sparse(shares: Matrix) -> bool:
    return bool(np.count_nonzero(shares) < shares.size / 8)


def _few_members(shares: Matrix, updates: Updates) -> Updates:
    """Return shares @ updates where few shares differ from 0."""
    mixed = np.zeros((len(shares), updates.shape[1]))
    for row, column in zip(*np.nonzero(shares), strict=True):
        mixed[row] += shares[row, column] * updates[column]
    return mixed


def _weighted_sum(weights: Matrix, updates: Updates) -> Vector:
    """Return weights @ updates in double precision (a far update has a tiny weight), row after row."""
    total = np.zeros(updates.shape[1])
    for weight, update in zip(weights, updates, strict=True):
        if weight:
            total += weight * update
    return total


def inner_products(updates: Updates) -> Matrix:
    """Return the inner products of all pairs of updates, in double precision."""
    products = np.zeros((len(updates), len(updates)))
    for begin in range(0, updates.shape[1], SLICE):
        block = updates[:, begin : begin + SLICE].astype(np.float64)
        products += block @ block.T
    return products


def _names(*, mixing: bool) -> str:
    return ", ".join(name for name, rule in RULES.items() if rule.mixes == mixing)


def need(condition: bool, rule: str, demand: str, clients: int, malicious: int) -> None:
    """Refuse what a rule cannot do."""
    if not condition:
        raise ConfigError(
            f"{rule} needs {demand}; there are n = {clients} updates and m = {malicious} malicious ones"
        )
