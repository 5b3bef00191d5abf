"""Aggregators: one update made of many, by a rule and the pre-aggregators before it.

A rule receives m, how many of the n updates are assumed to be malicious, and refuses to work where its theory
has nothing to say. None depends on the order of the updates, but for rounding and ties.

Most rules need no more than the inner products of all pairs of updates to know what to do: which ones to
mix, or what weight each has. What is left is the same for each coordinate. So an aggregator looks at the
updates twice, slice by slice, and they need not lie in memory all at once.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedrank.errors import ConfigError, TooFewUpdatesError
from fedrank.parameters import checked, did_you_mean, named_failure, same_function, summary_of

Updates = NDArray[np.floating]
Vector = NDArray[np.floating]
Matrix = NDArray[np.float64]
MaxMalicious = Callable[[int], int]
Step = Callable[[Updates], Vector]
RuleFunction = Callable[..., Vector]
"""A rule of one's own: takes updates, one a row, and m; returns one update."""
AssumedMalicious = float | int | Literal["actual"]
"""How many updates are assumed malicious: a share (float), a number (int), or what a simulation knows."""
ASSUMPTIONS = "a share of at least 0 and less than 0.5, a whole number, or 'actual'"
F = TypeVar("F", bound=Callable[..., Any])

SLICE = 2**14  # coordinates that are looked at at once, so that they stay in the caches


class Role(enum.Enum):
    """What a rule's function takes and returns."""

    WHOLE = "(updates, m): one vector, from all coordinates of all updates"
    COORDINATE = "(updates, m): one vector; each coordinate is aggregated by itself"
    WEIGHTS = "(inner products, m): the weight of each update"
    MIXING = "(inner products, m, rng): how often each update counts in each of the mixed ones"
    GROUPING = "(number of updates, rng): the same, by chance alone"
    CLIPPING = "(lengths, number of coordinates): the most that one coordinate of an update counts"
    MEASURED = "(updates, m): one vector, a candidate that validators measure"


@dataclass(frozen=True)
class Rule:
    """A registered rule or pre-aggregator."""

    name: str
    summary: str
    source: str
    role: Role
    max_malicious: MaxMalicious
    function: Callable[..., Any]

    @property
    def is_preaggregator(self) -> bool:
        """Whether it goes before a rule."""
        return self.role in (Role.MIXING, Role.GROUPING, Role.CLIPPING)


RULES: dict[str, Rule] = {}


def any_number(clients: int) -> int:
    """Return n: the rule does not use m."""
    return clients


def minority(clients: int) -> int:
    """Return the largest m with n > 2 m."""
    return (clients - 1) // 2


def _register(role: Role, name: str, source: str, max_malicious: MaxMalicious, function: F) -> F:
    if name in RULES and not same_function(RULES[name].function, function):
        raise ConfigError(f"an aggregator named {name!r} already exists; choose another name")
    RULES[name] = Rule(name, summary_of(function), source, role, max_malicious, function)
    return function


def aggregator(
    name: str, source: str, max_malicious: MaxMalicious = any_number, *, by_coordinate: bool = False
) -> Callable[[F], F]:
    """Register a function (updates, m) as a rule; `max_malicious` returns the largest m for n updates.

    A rule that treats each coordinate by itself may be given some of them at a time. Keyword-only arguments
    of the function are parameters that users can set.
    """
    return partial(_register, Role.COORDINATE if by_coordinate else Role.WHOLE, name, source, max_malicious)


def weighting(name: str, source: str, max_malicious: MaxMalicious = any_number) -> Callable[[F], F]:
    """Register a function (inner products, m) that returns the weight of each update."""
    return partial(_register, Role.WEIGHTS, name, source, max_malicious)


def preaggregator(name: str, source: str, max_malicious: MaxMalicious = any_number) -> Callable[[F], F]:
    """Register a function (inner products, m, rng) that mixes updates before a rule aggregates them.

    It returns a matrix: how often each update (column) counts in the mean that is a mixed one (row).
    """
    return partial(_register, Role.MIXING, name, source, max_malicious)


def grouping(name: str, source: str, max_malicious: MaxMalicious = any_number) -> Callable[[F], F]:
    """Register a function (number of updates, rng) that mixes updates without looking at them."""
    return partial(_register, Role.GROUPING, name, source, max_malicious)


def clipping(name: str, source: str) -> Callable[[F], F]:
    """Register a function (lengths, number of coordinates): the most that one coordinate counts."""
    return partial(_register, Role.CLIPPING, name, source, any_number)


def measured(name: str, source: str) -> Callable[[F], F]:
    """Register a function (updates, m) that makes candidates, among which validators choose."""
    return partial(_register, Role.MEASURED, name, source, any_number)


@dataclass(frozen=True)
class Aggregator:
    """Pre-aggregators, one after the other, and the rule at their end: `nnm+trimmed-mean`.

    Parameters
    ----------
    name : the names of the parts, joined by +.
    parameters : of the rule at the end.
    own : a rule of one's own, used as it is instead of one that is registered.
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    own: Rule | None = None

    def __post_init__(self) -> None:
        if self.own is not None:
            return
        *before, last = self.name.split("+")
        for part in before:
            if part not in RULES or not RULES[part].is_preaggregator:
                hint = did_you_mean(part, _names(preaggregators=True))
                raise ConfigError(f"unknown pre-aggregator {part!r} in {self.name!r}{hint}")
        if last not in RULES or RULES[last].is_preaggregator:
            hint = did_you_mean(last, _names(preaggregators=False))
            where = f" in {self.name!r}" if before else ""
            raise ConfigError(f"unknown aggregator {last!r}{where}{hint}")
        if before and self.measures:
            raise ConfigError(f"{last!r} takes no pre-aggregators, got {self.name!r}")
        for part in before[1:]:
            if RULES[part].role is Role.CLIPPING:
                raise ConfigError(f"{part!r} must come first, got {self.name!r}")
        given = checked(self.rule.function, self.parameters, f"the aggregator {last!r}")
        object.__setattr__(self, "parameters", given)

    @classmethod
    def of(cls, value: str | Mapping[str, Any] | Aggregator | RuleFunction) -> Aggregator:
        """Return an aggregator from its name, a table with name and parameters, or a function (updates, m).

        >>> Aggregator.of({"name": "centered-clipping", "steps": 5}).parameters
        {'steps': 5}
        >>> Aggregator.of(lambda updates, m: updates.max(axis=0)).name
        '<lambda>'
        """
        if isinstance(value, Aggregator):
            return value
        if isinstance(value, str):
            return cls(value)
        if isinstance(value, Mapping):
            table = dict(value)
            return cls(table.pop("name", ""), table)
        if not hasattr(value, "__qualname__"):
            raise ConfigError(f"expected an aggregator's name, a table or a function, got {value!r}")
        for rule in RULES.values():
            if rule.function is value:
                return cls(rule.name)
        own = Rule(value.__name__, "", "", Role.WHOLE, any_number, value)
        return cls(own.name, own=own)

    @cached_property
    def preaggregators(self) -> list[Rule]:
        """What goes before the rule."""
        return [] if self.own else [RULES[part] for part in self.name.split("+")[:-1]]

    @property
    def clips(self) -> bool:
        """Whether the coordinates of the updates are clipped before anything else."""
        return any(part.role is Role.CLIPPING for part in self.preaggregators[:1])

    def limit(self, lengths: Vector, size: int) -> float:
        """Return the most that one coordinate of an update counts, given the updates' lengths."""
        return float(self.preaggregators[0].function(lengths, size)) if self.clips else math.inf

    @property
    def rule(self) -> Rule:
        """The rule at the end."""
        return self.own or RULES[self.name.split("+")[-1]]

    @property
    def needs_inner_products(self) -> bool:
        """Whether the updates are compared with each other."""
        return any(part.role in (Role.MIXING, Role.WEIGHTS) for part in (*self.preaggregators, self.rule))

    @property
    def sliceable(self) -> bool:
        """Whether some coordinates can be aggregated without the others, once the products are known."""
        return self.rule.role not in (Role.WHOLE, Role.MEASURED)

    @property
    def measures(self) -> bool:
        """Whether validators measure what updates do."""
        return self.rule.role is Role.MEASURED

    def max_malicious(self, clients: int) -> int:
        """Return how many malicious ones among some clients all parts can bear; -1: too few clients."""
        least = clients
        for part in (*self.preaggregators, self.rule):
            least = min(least, part.max_malicious(clients))
            if part.name == "bucketing":
                clients = (clients + 1) // 2
        return max(-1, least)

    def assumed(self, malicious: AssumedMalicious, clients: int) -> int:
        """Return m for some clients: what is assumed, but no more than can be borne.

        >>> Aggregator("multi-krum").assumed(0.4, 25), Aggregator("multi-krum").assumed(0.4, 10)
        (10, 3)
        """
        bearable = self.max_malicious(clients)
        if bearable < 0 or clients == 0:
            raise TooFewUpdatesError(f"{clients} updates are too few for {self.name!r}")
        if malicious == "actual":
            if bearable < clients:
                raise ConfigError(
                    f"{self.name!r} assumes the actual number of malicious clients, which only a simulation "
                    "knows: set assumed_malicious to a share, such as 0.2"
                )
            return 0
        count = malicious if isinstance(malicious, int) else math.ceil(malicious * clients)
        return min(count, bearable)

    def __call__(self, updates: Updates, malicious: int, rng: np.random.Generator) -> Vector:
        """Aggregate updates that lie in memory. Only bucketing needs the generator."""
        if self.clips:
            limit = self.limit(np.sqrt(squared_lengths(updates)), updates.shape[1])
            updates = np.clip(updates, -limit, limit)
        products = inner_products(updates) if self.needs_inner_products else None
        step = self.step(len(updates), products, malicious, rng)
        size = updates.shape[1]
        # A plain mean reads every number once, so rows that are left whole are read fastest.
        width = SLICE if self.sliceable and self.name != "mean" else max(1, size)
        parts = [step(updates[:, begin : begin + width]) for begin in range(0, size, width)]
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return whole.astype(updates.dtype, copy=False)

    def step(self, n: int, products: Matrix | None, malicious: int, rng: np.random.Generator) -> Step:
        """Return what aggregates any slice of n updates, given their inner products if those are needed."""
        shares, divisor = None, np.ones((1, 1))
        for part in self.preaggregators[1 if self.clips else 0 :]:
            given = (n,) if part.role is Role.GROUPING else (products, malicious)
            counts = part.function(*given, rng)
            n, members = len(counts), counts.sum(axis=1, keepdims=True)
            if products is not None:
                products = (counts @ products @ counts.T) / members / members.T
            shares, divisor = counts if shares is None else counts @ (shares / divisor), members
        function = partial(self.rule.function, **self.parameters)
        if self.rule.role is Role.WEIGHTS:
            weights: Matrix = np.asarray(self._applied(function, products, malicious, n), np.float64)
            if shares is not None:
                weights = ((weights / divisor[:, 0])[:, None] * shares).sum(axis=0)
            return partial(_weighted_sum, weights)
        if shares is None:
            return lambda updates: self._applied(function, updates, malicious, updates.shape[1])
        mix = partial(_few_members, shares) if _is_sparse(shares) else partial(np.matmul, shares)

        def mixed(updates: Updates) -> Vector:
            # Whole numbers first: sums of displacements are exact, in whatever order they are added up.
            means = mix(updates.astype(np.float64)) / divisor
            return self._applied(function, means, malicious, updates.shape[1])

        return mixed

    def _applied(self, function: Callable[..., Any], given: Any, malicious: int, size: int) -> Vector:
        """Stop a run whose rule is broken: its result must not be taken for a defense that fails or holds."""
        function_name = self.rule.function.__name__
        where = f"the aggregator {self.name!r}" + (
            f" ({function_name})" if function_name != self.name else ""
        )
        with named_failure(where):
            result = function(given, malicious)
        if not isinstance(result, np.ndarray) or result.shape != (size,) or result.dtype.kind != "f":
            raise ConfigError(f"{where} returned {_told(result)}, expected {size} floats")
        if np.isnan(result).any() and np.isfinite(given).all():
            raise ConfigError(f"{where} returned NaN")
        return result


def is_assumption(value: object) -> bool:
    """Return whether this says how many updates are assumed malicious."""
    share = isinstance(value, float) and 0 <= value < 0.5
    number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return share or number or (isinstance(value, str) and value == "actual")


def _told(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return type(value).__name__


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


def squared_lengths(updates: Updates) -> Vector:
    """Return the squared lengths of updates, in double precision."""
    squares = np.zeros(len(updates))
    for begin in range(0, updates.shape[1], SLICE):
        block = updates[:, begin : begin + SLICE].astype(np.float64)
        squares += np.einsum("ij,ij->i", block, block)
    return squares


def _names(*, preaggregators: bool) -> list[str]:
    return [name for name, rule in RULES.items() if rule.is_preaggregator == preaggregators]


def need(condition: bool, rule: str, demand: str, clients: int, malicious: int) -> None:
    """Refuse what a rule cannot do."""
    if not condition:
        raise ConfigError(f"{rule} needs {demand}, got n = {clients} updates, m = {malicious} malicious")
