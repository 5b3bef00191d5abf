"""What an attack is: a function from what the malicious clients of a round know to the updates they send."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedrank.data import Federation
from fedrank.errors import BallotError, ConfigError
from fedrank.parameters import (
    checked,
    did_you_mean,
    named_failure,
    parameters_of,
    same_function,
    summary_of,
)
from fedrank.rank import Layout, check_ranking

Update = NDArray[Any]


class Knowledge(enum.StrEnum):
    """What an attack's adversary sees beside the global model, which every client is sent."""

    OWN = "own data"
    """Each malicious client knows what it has learned itself."""
    COLLUDERS = "the colluders' updates"
    """The malicious clients of a round know what all of them have learned."""
    DATA = "the malicious clients' data"
    """They also know the data of all malicious clients, selected or not, who stand in for benign ones."""
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


class Oracle(Protocol):
    """The data of all malicious clients, on which they measure what a subnetwork does."""

    def aimed_at(self, label: int) -> Oracle:
        """Return the oracle for one class; -1 for all."""
        ...

    def loss(self, mask: NDArray[np.bool_]) -> float: ...

    def gradient(self, mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Return by how much the loss grows with each edge."""
        ...


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
    assumed : how many malicious ones the server's rule assumes among them.
    aggregate : what the server's rule would make of some updates; for rankings, the vote. If validators
        measure, its second argument is how many of the last ones are the colluders'.
    rng : the adversary's own randomness.
    stand_ins : what other malicious clients have learned; empty unless the attack knows their data.
    oracle : the malicious clients' data; None unless the attack knows it.
    measured : whether validators measure what updates do.
    edge_limit : how many deviations of a coordinate the server's rule counts at most.
    """

    layout: Layout
    keep: float
    reference: Update
    own: list[Update]
    benign: list[Update]
    malicious: int
    selected: int
    assumed: int
    aggregate: Callable[..., Update]
    rng: np.random.Generator
    stand_ins: list[Update] = field(default_factory=list)
    oracle: Oracle | None = None
    measured: bool = False
    edge_limit: float = math.inf

    def simulate(self, honest: list[Update], sent: list[Update]) -> Update:
        """Return what the server would make of honest updates and those of the colluders."""
        return self.aggregate([*honest, *sent], *([len(sent)] if self.measured else []))


Craft = Callable[..., Update | list[Update]]
"""Takes a view, and parameters by keyword; returns one update for all colluders, or a list of one each."""
Poison = Callable[[Federation, frozenset[int]], Federation]
"""Returns the data with that of the malicious clients changed."""


@dataclass(frozen=True)
class Attack:
    """A registered attack, with its parameters set."""

    name: str
    summary: str
    source: str
    target: Target
    knows: Knowledge
    craft: Craft
    poison: Poison | None = None
    plans: bool = False
    """Whether it needs the malicious clients' data, whatever else it knows."""

    @property
    def function(self) -> Callable[..., Any]:
        """The function that was registered."""
        made = self.poison or self.craft
        return made.func if isinstance(made, partial) else made

    @classmethod
    def of(cls, value: str | Attack | Craft) -> Attack:
        """Return an attack from its name, or from a function.

        A function that is not registered takes a view and returns vectors, whatever the method sends. It
        knows what the malicious clients of the round have learned.

        >>> Attack.of(lambda view: -view.own[0]).knows
        <Knowledge.COLLUDERS: "the colluders' updates">
        """
        if isinstance(value, Attack):
            return value
        if isinstance(value, str):
            return attack_named(value)
        if isinstance(value, type) or not hasattr(value, "__qualname__"):
            raise ConfigError(f"expected an attack, its name or a function, got {value!r}")
        for known in ATTACKS.values():
            if known.function is value:
                return known
        return cls(value.__name__, "", "", Target.EITHER, Knowledge.COLLUDERS, value)

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that are not the defaults."""
        made = self.poison or self.craft
        return dict(made.keywords) if isinstance(made, partial) else {}

    @property
    def described(self) -> str:
        """What error messages call the attack."""
        name = self.function.__name__
        return f"the attack {self.name!r}" + (f" ({name})" if name != self.name else "")

    def having(self, **parameters: Any) -> Attack:
        """Return the attack with some of its parameters set. A parameter `knows` is its knowledge.

        >>> from fedrank.attacks import attack_named
        >>> attack_named("alie").having(direction="up")
        Traceback (most recent call last):
        fedrank.errors.ConfigError: the attack 'alie': direction = 'up': must be 'std' or 'sign'
        """
        given = checked(self.function, parameters, f"the attack {self.name!r}")
        knows = Knowledge[given["knows"].upper()] if "knows" in given else self.knows
        if not given:
            return self
        if self.poison:
            return replace(self, poison=partial(self.poison, **given))
        return replace(self, craft=partial(self.craft, **given), knows=knows)

    def updates(self, view: View) -> list[Update]:
        """Return the update that each colluder sends, in the order of `View.own`."""
        if self.knows is Knowledge.OWN:
            return [self._usable(self._craft(_alone(view, update)), view) for update in view.own]
        sent = self._craft(view)
        if isinstance(sent, list):
            if len(sent) != len(view.own):
                raise self._broken(f"{len(sent)} updates for {len(view.own)} malicious clients")
            return [self._usable(update, view) for update in sent]
        return [self._usable(sent, view)] * len(view.own)

    def _craft(self, view: View) -> Any:
        with named_failure(self.described):
            return self.craft(view)

    def _usable(self, update: Any, view: View) -> Update:
        """Stop a run whose attack is broken: a broken attack must never look like a strong defense."""
        if not isinstance(update, np.ndarray):
            raise self._broken(type(update).__name__)
        if self.target is Target.RANKINGS:
            try:
                check_ranking(update, view.layout)
            except BallotError as error:
                raise self._broken(f"no ranking ({error})") from error
        elif update.shape != (view.layout.size,) or update.dtype.kind != "f":
            raise self._broken(f"{update.dtype} of shape {update.shape}, expected {view.layout.size} floats")
        elif np.isnan(update).any() and all(np.isfinite(each).all() for each in (*view.own, *view.benign)):
            raise self._broken("NaN")
        return update

    def _broken(self, returned: str) -> ConfigError:
        return ConfigError(f"{self.described} returned {returned}")


def _alone(view: View, update: Update) -> View:
    return replace(view, own=[update], benign=[])


ATTACKS: dict[str, Attack] = {}


def attack(name: str, *, target: Target, knows: Knowledge, source: str) -> Callable[[Craft], Craft]:
    """Register a function as the attack of this name. The first line of its docstring is its summary."""

    def register(function: Craft) -> Craft:
        plans = knows is Knowledge.DATA
        _add(Attack(name, summary_of(function), source, target, knows, function, plans=plans))
        return function

    return register


def data_poisoning(name: str, *, source: str) -> Callable[[Poison], Poison]:
    """Register a function that changes the malicious clients' data. They then train and send as others do."""

    def register(function: Poison) -> Poison:
        summary = summary_of(function)
        _add(Attack(name, summary, source, Target.EITHER, Knowledge.OWN, _what_was_learned, function))
        return function

    return register


def _add(made: Attack) -> None:
    before = ATTACKS.get(made.name)
    if before is not None and not same_function(before.function, made.function):
        raise ConfigError(f"an attack named {made.name!r} already exists; choose another name")
    parameters_of(made.function)  # what cannot be a parameter is told here, not in the middle of a run
    ATTACKS[made.name] = made


def attack_named(name: str) -> Attack:
    """Return an attack by its name."""
    if name not in ATTACKS:
        raise ConfigError(f"unknown attack {name!r}{did_you_mean(name, ATTACKS)}")
    return ATTACKS[name]


def _what_was_learned(view: View) -> Update:
    return view.own[0]
