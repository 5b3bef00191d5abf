"""The round loop: select, train, vote, measure."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedrank.attacks import Attack, Knowledge, Target, Update, View
from fedrank.data import Federation
from fedrank.engine import Collected, Engine
from fedrank.errors import ConfigError, ModelError, TrainingError
from fedrank.experiment.metrics import Evaluation, evaluation, test_samples
from fedrank.methods import Learned, Method, Traffic
from fedrank.randomness import Purpose, keyed_generator
from fedrank.rank.audit import Audit

MOST_DRAWS = 1000
LEAST_CHANCE = 0.03
"""That a draw has a minority of malicious clients; then 1000 draws all fail once in 10^13 times."""


@dataclass(frozen=True)
class Round:
    """What happened in one round. `number` counts from 1."""

    number: int
    clients: tuple[int, ...]
    malicious: tuple[int, ...]
    train_loss: float | None
    """The mean over the honest clients, if there were any."""
    refused: dict[int, str]
    """Clients whose message was not legal and did not count, with the reason."""
    sent: Traffic
    """The bytes that a client really sent and received, on average."""
    evaluation: Evaluation | None
    vote: Audit | None
    """How safe the vote was, for methods that vote on edges."""
    wall_seconds: float


@dataclass(frozen=True)
class Adversary:
    """Malicious clients and what they do.

    Parameters
    ----------
    attack : what they send.
    clients : who is malicious.
    redraw : draw a round's clients again as long as half or more are malicious, as the authors did.
    """

    attack: Attack
    clients: frozenset[int]
    redraw: bool = True

    def check(self, federation: Federation, per_round: int) -> None:
        """Refuse so many malicious clients that a round with fewer than half of them is hardly ever drawn."""
        voters = federation.voters.size
        malicious = sum(int(voter) in self.clients for voter in federation.voters)
        if self.redraw and _chance_of_minority(voters, malicious, per_round) < LEAST_CHANCE:
            raise ConfigError(
                f"{malicious} of {voters} clients are malicious: hardly a draw of {per_round} has fewer than "
                "half of them. Take a smaller share, or let such rounds be (attack.redraw = false)"
            )


def _chance_of_minority(clients: int, malicious: int, drawn: int) -> float:
    """Return how likely fewer than half of the drawn clients are malicious."""
    ways = sum(
        math.comb(malicious, bad) * math.comb(clients - malicious, drawn - bad)
        for bad in range((drawn + 1) // 2)
    )
    return ways / math.comb(clients, drawn)


def draw_malicious(federation: Federation, share: float, seed: int) -> frozenset[int]:
    """Draw a share of all clients to be malicious."""
    count = round(share * len(federation.clients))
    chosen = keyed_generator(seed, Purpose.MALICIOUS).permutation(len(federation.clients))[:count]
    return frozenset(int(client) for client in chosen)


@dataclass(frozen=True)
class Expectation:
    """How many malicious clients a robust rule is told to expect among the n of a round.

    Parameters
    ----------
    told : the true number of the round, an unrealistic help that the paper gives; otherwise `share` of n.
    """

    told: bool = True
    share: float = 0.0

    def of(self, selected: int, malicious: int) -> int:
        """Return the number for one round."""
        return malicious if self.told else math.ceil(self.share * selected)

    def bearable(self, method: Method[Any], counted: int, selected: int, malicious: int) -> int:
        """Return the number for one round, at most what the method can bear among the updates that count."""
        return min(self.of(selected, malicious), method.most_expected(counted))


@dataclass(frozen=True)
class Schedule:
    """How many rounds, with how many clients each, and how often the model is measured."""

    rounds: int
    per_round: int
    evaluate_every: int = 1

    def measures(self, round_number: int) -> bool:
        """Tell whether the model is measured after a round; after the last it always is."""
        return round_number % self.evaluate_every == 0 or round_number == self.rounds

    def check(self, federation: Federation) -> None:
        """Refuse what cannot be played with these clients."""
        if self.rounds < 1 or self.evaluate_every < 1:
            raise ConfigError(
                f"rounds is {self.rounds} and evaluate_every {self.evaluate_every}: both must be at least 1"
            )
        if not any(client.test.size for client in federation.clients):
            raise ConfigError(
                "no client has samples to be tested on: take fewer clients, or a larger test_share"
            )
        voters = federation.voters.size
        if not 1 <= self.per_round <= voters:
            raise ConfigError(
                f"{self.per_round} clients a round are asked for, but {voters} clients have data to train on"
            )


def play(
    method: Method[Any],
    federation: Federation,
    engine: Engine,
    state: Any,
    schedule: Schedule,
    adversary: Adversary | None = None,
    expectation: Expectation | None = None,
) -> Iterator[tuple[Any, Round]]:
    """Play rounds from `state` on until all are done; yield the new state after each."""
    schedule.check(federation)
    check_voters(method, schedule)
    if adversary:
        adversary.check(federation, schedule.per_round)
    expectation = expectation or Expectation()
    enemies = adversary.clients if adversary else frozenset()
    avoided = enemies if adversary and adversary.redraw else frozenset()
    while state.round < schedule.rounds:
        begin = time.perf_counter()
        selected = select(federation.voters, schedule.per_round, method.seed, state.round, avoided)
        malicious = tuple(client for client in selected if client in enemies)
        honest = tuple(client for client in selected if client not in enemies)
        broadcast = method.broadcast(state)
        if adversary and malicious and not adversary.attack.poison:
            collected = attacked(
                adversary, method, engine, state.round, broadcast, honest, malicious, expectation
            )
        else:
            collected = engine.collect(state.round, broadcast, selected)
        counted = len(selected) - len(collected.refused)
        vote = None
        if counted and method.most_expected(counted) >= 0:
            expected = expectation.bearable(method, counted, len(selected), len(malicious))
            before, state = state, method.aggregate(state, collected.messages, expected)
            vote = method.audit(before, collected.messages, state)
        elif adversary is None:
            reason = next(iter(collected.refused.values()))
            raise TrainingError(
                f"too few clients of round {state.round + 1} sent anything usable: {reason}. "
                "Is the learning rate too high for this model and data?"
            )
        else:
            state = replace(state, round=state.round + 1)
        measured = measure(federation, engine, state) if schedule.measures(state.round) else None
        yield (
            state,
            Round(
                number=state.round,
                clients=selected,
                malicious=malicious,
                train_loss=_mean_loss(collected, honest),
                refused=collected.refused,
                sent=Traffic(collected.sent / len(selected), len(broadcast)),
                evaluation=measured,
                vote=vote,
                wall_seconds=time.perf_counter() - begin,
            ),
        )


def check_voters(method: Method[Any], schedule: Schedule) -> None:
    """Refuse rounds of fewer clients than the method's rule can work with."""
    if method.most_expected(schedule.per_round) < 0:
        raise ConfigError(f"{schedule.per_round} clients a round are too few for this aggregator")


def attacked(
    adversary: Adversary,
    method: Method[Any],
    engine: Engine,
    round_number: int,
    broadcast: bytes,
    honest: tuple[int, ...],
    malicious: tuple[int, ...],
    expectation: Expectation,
) -> Collected:
    """Train a round's clients and let the colluders send what their attack makes of what they know."""
    if adversary.attack.knows is Knowledge.BENIGN:
        collected = engine.collect(round_number, broadcast, (), (*honest, *malicious))
        for client in honest:
            learned = collected.learned[client]
            message = method.write(broadcast, learned.update, client)
            collected.add(client, message, learned.loss)
    else:
        collected = engine.collect(round_number, broadcast, honest, malicious)
    crafted = craft(
        adversary.attack, method, round_number, broadcast, collected.learned, honest, malicious, expectation
    )
    for client, update in crafted.items():
        collected.add(client, method.write(broadcast, update, client))
    return collected


def craft(
    attack: Attack,
    method: Method[Any],
    round_number: int,
    broadcast: bytes,
    learned: Mapping[int, Learned],
    honest: tuple[int, ...],
    malicious: tuple[int, ...],
    expectation: Expectation,
) -> dict[int, Update]:
    """Return the update that each colluder sends, made of what the clients that it knows of have learned."""
    reference = method.reference(broadcast)
    vectors = attack.target is not Target.RANKINGS
    selected = len(honest) + len(malicious)

    def expected(counted: int) -> int:
        return expectation.bearable(method, counted, selected, len(malicious))

    def seen(clients: tuple[int, ...]) -> list[Update]:
        """Return what some clients have learned, in the form that the attack works with."""
        updates = [learned[client].update for client in clients]
        return [method.displacement(reference, update) for update in updates] if vectors else updates

    view = View(
        layout=method.layout,
        keep=method.network.keep,
        reference=reference,
        own=seen(malicious),
        benign=seen(honest) if attack.knows is Knowledge.BENIGN else [],
        malicious=len(malicious),
        selected=selected,
        expected=expected(selected),
        aggregate=lambda updates: method.combined(reference, updates, expected(len(updates)), round_number),
        rng=keyed_generator(method.seed, Purpose.ATTACK, round_number),
    )
    updates = attack.updates(view)
    if vectors:
        updates = [method.displaced(reference, update) for update in updates]
    return dict(zip(malicious, updates, strict=True))


def _mean_loss(collected: Collected, honest: tuple[int, ...]) -> float | None:
    losses = [collected.outcomes[client].loss for client in honest]
    known = [loss for loss in losses if loss is not None]
    return float(np.mean(known)) if known else None


def check_fit(model: nn.Module, federation: Federation) -> None:
    """Refuse a model that does not take the data's samples, or does not know all its classes."""
    dataset = federation.dataset
    sample = torch.from_numpy(dataset.preprocess(dataset.inputs[:1]))
    try:
        with torch.inference_mode():
            outputs = copy.deepcopy(model).eval()(sample)
    except Exception as error:
        raise ModelError(f"does not fit samples of shape {dataset.inputs.shape[1:]} ({error})") from error
    if outputs.ndim != 2 or outputs.shape[1] < dataset.classes:
        raise ModelError(
            f"gives an output of shape {tuple(outputs.shape)} for one sample, "
            f"where {dataset.classes} classes are to be told apart"
        )


def select(
    voters: Sequence[int] | NDArray[np.int64],
    count: int,
    seed: int,
    round_number: int,
    avoided: Collection[int] = (),
    again: int = 0,
) -> tuple[int, ...]:
    """Draw the clients of a round (Algorithm 2, line 6), fewer than half of them from those to avoid.

    A round that is played again, for the `again`th time, draws others.
    """
    rng = keyed_generator(seed, Purpose.SELECTION, round_number, *([again] if again else []))
    for _ in range(MOST_DRAWS):
        drawn = tuple(int(voters[place]) for place in rng.choice(len(voters), count, replace=False))
        if 2 * sum(client in avoided for client in drawn) < count:
            return drawn
    raise ConfigError(
        f"{MOST_DRAWS} draws of {count} clients had a half or more of malicious ones each: "
        "take a smaller share of them, or let such rounds be (attack.redraw = false)"
    )


def measure(federation: Federation, engine: Engine, state: Any) -> Evaluation:
    """Test the model of `state` on every client's test data and on the global test set."""
    return evaluation(federation, engine.predict(state, test_samples(federation)))
