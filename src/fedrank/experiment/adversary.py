"""The adversary: the malicious clients, and what they send in a round."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from fedrank.arguments import check_flag, check_kind, check_number
from fedrank.attacks import Attack, Craft, Knowledge, Target, Update, View
from fedrank.ballots.candidates import Stage
from fedrank.data import Federation
from fedrank.errors import ConfigError, DataError
from fedrank.methods import FRL, ClientUpdate, Method, knowing
from fedrank.methods.laboratory import Laboratory
from fedrank.methods.measured import TrialPlan, measured_method
from fedrank.methods.spaces import space_of
from fedrank.methods.weights import WeightMethod
from fedrank.nn import Supernetwork, Workspace
from fedrank.parameters import named_failure
from fedrank.randomness import Purpose, keyed_generator

LEAST_CHANCE = 0.03
"""Least chance that a draw has a malicious minority; then 1000 draws all fail with probability 1e-13."""


@dataclass(frozen=True, init=False, repr=False)
class Adversary:
    """The malicious clients and their attack.

    Parameters
    ----------
    attack : crafts what they send: a name, an `Attack`, or a function (`Attack.of`).
    clients : the malicious clients, by name if the federation's clients have names, or by number.
    redraw : redraw a round's clients while half or more are malicious, as the authors did.
    lies : what they say as validators of a measured vote's result: "push" it, or "stall" the run.
    share : instead of `clients`, the share of all clients that is malicious, drawn with the network's seed.
    params : parameters of the attack.

    >>> def push(view, *, scale: float = 2.0):
    ...     return -scale * view.own[0]
    >>> Adversary(push, share=0.2, params={"scale": 8.0}).attack.parameters
    {'scale': 8.0}
    """

    attack: Attack
    clients: frozenset[Any]
    redraw: bool
    lies: Literal["push", "stall"]
    share: float | None

    def __init__(
        self,
        attack: str | Attack | Craft,
        clients: Collection[int | str] | None = None,
        redraw: bool = True,
        lies: Literal["push", "stall"] = "push",
        *,
        share: float | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        if clients is None and share is None:
            raise ConfigError("an adversary needs either clients or a share of them")
        if clients is not None and share is not None:
            raise ConfigError("pass either clients or share, not both")
        if isinstance(clients, str) or not isinstance(clients, Iterable | None):
            raise ConfigError(
                f"the adversary's clients must be a set, such as {{{clients!r}}}, got {clients!r}"
            )
        if share is not None:
            check_number("share", share, above=0, below=1)
        check_flag("redraw", redraw)
        check_kind("params", params, Mapping | None, "a dict of the attack's parameters")
        if lies not in ("push", "stall"):
            raise ConfigError(f"lies must be 'push' or 'stall', got {lies!r}")
        values = (Attack.of(attack).having(**(params or {})), frozenset(clients or ()), redraw, lies, share)
        for field, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, field.name, value)

    def __repr__(self) -> str:
        count = "1 client" if len(self.clients) == 1 else f"{len(self.clients)} clients"
        who = count if self.share is None else f"share={self.share}"
        return f"<Adversary: {self.attack.name!r}, {who}>"

    def among(self, federation: Federation, seed: int) -> Adversary:
        """Return the adversary with its clients as numbers, drawn if their share was given."""
        if self.share is None:
            try:
                clients = frozenset(map(federation.number_of, self.clients))
            except DataError as error:
                raise ConfigError(f"the adversary's clients: {error}") from None
            if not clients:
                raise ConfigError("the adversary has no clients: name at least one, or pass share=...")
        elif not (clients := draw_malicious(federation, self.share, seed)):
            raise ConfigError(
                f"share={self.share} of {len(federation.clients)} clients is less than one client"
            )
        return Adversary(self.attack, clients, self.redraw, self.lies)

    def check_target(self, method: Method[Any]) -> None:
        """Raise ConfigError if the attack is not for what the method's clients send."""
        target, name = self.attack.target, type(method).__name__
        for kind, sent in ((FRL, Target.RANKINGS), (WeightMethod, Target.WEIGHTS)):
            if isinstance(method, kind) and target not in (sent, Target.EITHER):
                raise ConfigError(
                    f"the attack {self.attack.name!r} targets {target}, but {name} sends {sent}"
                )

    def check(self, federation: Federation, clients_per_round: int) -> None:
        """Raise ConfigError if a draw with a malicious minority is too unlikely."""
        voters = federation.voters.size
        malicious = sum(int(voter) in self.clients for voter in federation.voters)
        if self.redraw and _chance_of_minority(voters, malicious, clients_per_round) < LEAST_CHANCE:
            raise ConfigError(
                f"with {malicious} of {voters} clients malicious, almost no draw of {clients_per_round} has "
                "an honest majority: use a smaller share, or allow such rounds (attack.redraw = false)"
            )

    def poison(self, federation: Federation) -> Federation:
        """Return the training data, with that of malicious clients changed if the attack poisons data."""
        if not self.attack.poison:
            return federation
        with named_failure(self.attack.described):
            return self.attack.poison(federation, self.clients)

    def learners(
        self,
        honest: tuple[int, ...],
        malicious: tuple[int, ...],
        federation: Federation,
        seed: int,
        round_number: int,
    ) -> tuple[int, ...]:
        """Return the clients whose updates the attack needs to know, beside those of the malicious ones."""
        if self.attack.knows is Knowledge.BENIGN:
            return honest
        if self.attack.knows is not Knowledge.DATA:
            return ()
        others = [int(each) for each in federation.voters if each in self.clients and each not in malicious]
        order = keyed_generator(seed, Purpose.STAND_INS, round_number).permutation(len(others))
        return tuple(others[index] for index in order[: len(honest)])

    def craft(
        self,
        method: Method[Any],
        federation: Federation,
        received: Any,
        learned: Mapping[int, ClientUpdate],
        honest: tuple[int, ...],
        malicious: tuple[int, ...],
    ) -> dict[int, Update]:
        """Return the update that each malicious client sends, crafted from the clients' updates."""
        attack, method = self.attack, knowing(method, len(malicious))
        network = method.network
        oracle = None
        if attack.plans and isinstance(network, Supernetwork):
            oracle = _laboratory(network, federation, self.clients)
        space = space_of(method, received, oracle)
        vectors = attack.target is not Target.RANKINGS

        def seen(clients: tuple[int, ...]) -> list[Update]:
            """Return the updates of some clients, in the form that the attack expects."""
            updates = [learned[client].update for client in clients]
            return [space.to_vector(update) for update in updates] if vectors else updates

        selected = len(honest) + len(malicious)
        stand_ins = tuple(client for client in learned if client not in {*honest, *malicious})
        view = View(
            layout=network.layout,
            keep=network.keep,
            reference=space.reference,
            own=seen(malicious),
            benign=seen(honest) if attack.knows is Knowledge.BENIGN else [],
            malicious=len(malicious),
            selected=selected,
            assumed=_assumed(method, selected, len(malicious)),
            aggregate=space.combine,
            rng=keyed_generator(network.seed, Purpose.ATTACK, received.round),
            stand_ins=seen(stand_ins),
            oracle=oracle,
            measured=space.measured,
            edge_limit=space.edge_limit,
        )
        updates = attack.updates(view)
        if vectors:
            updates = [space.from_vector(update) for update in updates]
        return dict(zip(malicious, updates, strict=True))

    def report(
        self,
        method: Method[Any],
        round_number: int,
        voters: Collection[int],
        entropy: int,
        validator: int,
        stage: Stage,
    ) -> bytes:
        """Return the lie that a malicious validator tells, given the entropy of all updates."""
        asks = measured_method(method)
        assert asks is not None
        plan = TrialPlan.of(asks, round_number, len(voters), entropy)
        mine = np.array([voter in self.clients for voter in sorted(voters)])
        lies = plan.lies(stage, validator, mine, push=self.lies == "push")
        return asks.inquiry(round_number).report(stage, validator, lies)


def draw_malicious(federation: Federation, share: float, seed: int) -> frozenset[int]:
    """Draw the malicious clients, a share of all clients."""
    count = round(share * len(federation.clients))
    chosen = keyed_generator(seed, Purpose.MALICIOUS).permutation(len(federation.clients))[:count]
    return frozenset(int(client) for client in chosen)


def divide(clients: Iterable[int], adversary: Adversary | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split clients into honest and malicious ones."""
    enemies: frozenset[Any] = adversary.clients if adversary else frozenset()
    selected = tuple(clients)
    honest = tuple(client for client in selected if client not in enemies)
    return honest, tuple(client for client in selected if client in enemies)


def _laboratory(network: Supernetwork, federation: Federation, clients: Collection[int]) -> Laboratory:
    own = [
        federation.train_samples(client)
        for client in sorted(clients)
        if federation.clients[client].train.size
    ]
    return Laboratory(network, own, workspace_of(network))


@lru_cache(maxsize=1)
def workspace_of(network: Supernetwork) -> Workspace:
    """Return the adversary's networks, kept from round to round."""
    return Workspace(network)


def _assumed(method: Method[Any], selected: int, malicious: int) -> int:
    rule = getattr(method, "rule", None)
    return malicious if rule is None else int(rule.assumed(method.assumed_malicious, selected))  # type: ignore[attr-defined]


def _chance_of_minority(clients: int, malicious: int, drawn: int) -> float:
    """Return the probability that fewer than half of the drawn clients are malicious."""
    ways = sum(
        math.comb(malicious, bad) * math.comb(clients - malicious, drawn - bad)
        for bad in range((drawn + 1) // 2)
    )
    return ways / math.comb(clients, drawn)
