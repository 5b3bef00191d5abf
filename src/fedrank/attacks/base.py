"""What an attack is: a function from what the colluders of a round know to the updates they send."""

from __future__ import annotations

import difflib
import enum
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from fedrank.data import Federation
from fedrank.errors import ConfigError
from fedrank.rank import Layout

Update = NDArray[Any]


class Knowledge(enum.StrEnum):
    """What an attack's adversary sees beside the global model, which every client is sent."""

    OWN = "own data"
    """Each malicious client knows what it has learned itself."""
    COLLUDERS = "the colluders' updates"
    """The malicious clients of a round know what all of them have learned."""
    BENIGN = "the benign updates"
    """They also know the updates that the benign clients of the round are about to send."""


class Target(enum.StrEnum):
    """What is attacked, and so what the updates in a view are."""

    RANKINGS = "rankings"
    """Rankings."""
    WEIGHTS = "weights"
    """Changes of weights."""
    EITHER = "rankings or weights"
    """Vectors: changes of weights, or displacements: each edge's reputation less its global one."""


@dataclass(frozen=True)
class View:
    """What the colluders of a round see: no more than their attack has declared.

    Parameters
    ----------
    layout : the network's layers.
    keep : the share of every layer's edges that a subnetwork keeps.
    reference : the global ranking or weights that the server has sent.
    own : what the colluders (or, for `Knowledge.OWN`, the one client) have learned as honest clients would.
    benign : what the benign clients of the round have learned; empty unless the attack knows it.
    malicious : how many colluders there are in this round.
    selected : how many clients there are in this round.
    expected : how many malicious ones the server's rule is told to expect among them.
    aggregate : what the server's rule would make of some updates; for rankings, the vote.
    rng : the adversary's own randomness.
    """

    layout: Layout
    keep: float
    reference: Update
    own: list[Update]
    benign: list[Update]
    malicious: int
    selected: int
    expected: int
    aggregate: Callable[[list[Update]], Update]
    rng: np.random.Generator


Craft = Callable[..., Update]
"""Takes a view, and parameters by keyword; returns what the colluders send (`Knowledge.OWN`: this one)."""
Poison = Callable[[Federation, frozenset[int]], Federation]
"""Returns the data with that of the malicious clients changed."""


@dataclass(frozen=True)
class Attack:
    """An attack by its name."""

    name: str
    summary: str
    source: str
    target: Target
    knows: Knowledge
    craft: Craft
    poison: Poison | None = None

    @property
    def parameters(self) -> type[BaseModel]:
        """The keyword parameters of the attack's function, with their types, defaults and descriptions."""
        function = self.craft.func if isinstance(self.craft, partial) else self.craft
        hints = get_type_hints(function, include_extras=True)
        fields: dict[str, Any] = {
            name: (hints[name], parameter.default)
            for name, parameter in inspect.signature(function).parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY
        }
        strict = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
        return create_model(self.name, __config__=strict, **fields)

    def having(self, **parameters: Any) -> Attack:
        """Return the attack with some of its parameters set.

        >>> from fedrank.attacks import attack_named
        >>> attack_named("lie").having(direction="up")
        Traceback (most recent call last):
        fedrank.errors.ConfigError: the attack 'lie': direction = 'up': input should be 'std' or 'sign'
        """
        try:
            checked = self.parameters.model_validate(parameters)
        except ValidationError as error:
            raise ConfigError(f"the attack {self.name!r}: {self._explained(error)}") from None
        return replace(self, craft=partial(self.craft, **checked.model_dump())) if parameters else self

    def _explained(self, error: ValidationError) -> str:
        problem = error.errors()[0]
        name = str(problem["loc"][0])
        if problem["type"] == "extra_forbidden":
            known = list(self.parameters.model_fields)
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(known) or 'none'}"
            return f"there is no parameter {name!r}; {hint}"
        return f"{name} = {problem['input']!r}: {problem['msg'][0].lower()}{problem['msg'][1:]}"

    def updates(self, view: View) -> list[Update]:
        """Return the update that each colluder sends, in the order of `View.own`."""
        if self.knows is Knowledge.OWN:
            return [self.craft(_alone(view, update)) for update in view.own]
        return [self.craft(view)] * len(view.own)


def _alone(view: View, update: Update) -> View:
    return replace(view, own=[update], benign=[])


ATTACKS: dict[str, Attack] = {}


def attack(name: str, *, target: Target, knows: Knowledge, source: str) -> Callable[[Craft], Craft]:
    """Register a function as the attack of this name. Its first line of documentation is its summary."""

    def register(function: Craft) -> Craft:
        ATTACKS[name] = Attack(name, _summary(function), source, target, knows, function)
        return function

    return register


def data_poisoning(name: str, *, source: str) -> Callable[[Poison], Poison]:
    """Register a function that changes the malicious clients' data. They then train and send as others do."""

    def register(function: Poison) -> Poison:
        summary = _summary(function)
        ATTACKS[name] = Attack(
            name, summary, source, Target.EITHER, Knowledge.OWN, _what_was_learned, function
        )
        return function

    return register


def attack_named(name: str) -> Attack:
    """Return an attack by its name."""
    if name not in ATTACKS:
        raise ConfigError(f"there is no attack {name!r}; there are: {', '.join(ATTACKS)}")
    return ATTACKS[name]


def _what_was_learned(view: View) -> Update:
    return view.own[0]


def _summary(function: Callable[..., Any]) -> str:
    return (function.__doc__ or "").strip().splitlines()[0]
