"""The round loop: select, train, vote, measure."""

from __future__ import annotations

import copy
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from fedrank.attacks import Attack, View
from fedrank.data import Federation
from fedrank.engine import Collected, Engine
from fedrank.errors import ConfigError, ModelError
from fedrank.experiment.metrics import Evaluation, evaluation, test_samples
from fedrank.methods import Method, Traffic
from fedrank.randomness import Purpose, keyed_generator

MOST_DRAWS = 1000


@dataclass(frozen=True)
class Round:
    """What happened in one round. `number` counts from 1."""

    number: int
    clients: tuple[int, ...]
    malicious: tuple[int, ...]
    train_loss: float
    """The mean over the honest clients."""
    refused: dict[int, str]
    """Clients whose message was not legal and did not count, with the reason."""
    sent: Traffic
    """The bytes that a client really sent and received, on average."""
    evaluation: Evaluation | None
    wall_seconds: float


@dataclass(frozen=True)
class Adversary:
    """Malicious clients and what they do.

    Parameters
    ----------
    attack : what they send.
    share : how many of all clients are malicious; which ones is drawn once a run.
    redraw : draw a round's clients again as long as half or more are malicious, as the authors did.
    """

    attack: Attack
    share: float
    redraw: bool = True

    def clients(self, federation: Federation, seed: int) -> frozenset[int]:
        """Draw the malicious clients."""
        count = round(self.share * len(federation.clients))
        chosen = keyed_generator(seed, Purpose.MALICIOUS).permutation(len(federation.clients))[:count]
        return frozenset(int(client) for client in chosen)


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
) -> Iterator[tuple[Any, Round]]:
    """Play rounds from `state` on until all are done; yield the new state after each."""
    schedule.check(federation)
    enemies = adversary.clients(federation, method.seed) if adversary else frozenset()
    avoided = enemies if adversary and adversary.redraw else frozenset()
    while state.round < schedule.rounds:
        begin = time.perf_counter()
        selected = select(federation, schedule.per_round, method.seed, state.round, avoided)
        malicious = tuple(client for client in selected if client in enemies)
        broadcast = method.broadcast(state)
        honest = [client for client in selected if client not in enemies]
        collected = engine.collect(state.round, broadcast, honest, malicious)
        if adversary and malicious:
            attack(adversary.attack, method, broadcast, collected)
        state = method.aggregate(state, collected.messages)
        measured = measure(federation, engine, state) if schedule.measures(state.round) else None
        yield (
            state,
            Round(
                number=state.round,
                clients=selected,
                malicious=malicious,
                train_loss=float(np.mean(collected.losses)),
                refused=collected.refused,
                sent=Traffic(collected.sent / len(selected), len(broadcast)),
                evaluation=measured,
                wall_seconds=time.perf_counter() - begin,
            ),
        )


def attack(how: Attack, method: Method[Any], broadcast: bytes, collected: Collected) -> None:
    """Let the colluders of a round send what the attack makes of what they have learned."""
    view = View(method.layout, [learned.update for learned in collected.learned.values()])
    for client, update in zip(collected.learned, how(view), strict=True):
        message = method.write(broadcast, update, client)
        collected.add(client, message)


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
    federation: Federation, count: int, seed: int, round_number: int, avoided: Collection[int] = ()
) -> tuple[int, ...]:
    """Draw the clients of a round (Algorithm 2, line 6), fewer than half of them from those to avoid."""
    rng = keyed_generator(seed, Purpose.SELECTION, round_number)
    for _ in range(MOST_DRAWS):
        drawn = tuple(int(client) for client in rng.choice(federation.voters, count, replace=False))
        if 2 * sum(client in avoided for client in drawn) < count:
            return drawn
    raise ConfigError(
        f"{MOST_DRAWS} draws of {count} clients had a half or more of malicious ones each: "
        "take a smaller share of them, or let such rounds be (attack.redraw = false)"
    )


def measure(federation: Federation, engine: Engine, state: Any) -> Evaluation:
    """Test the model of `state` on every client's test data and on the global test set."""
    return evaluation(federation, engine.predict(state, test_samples(federation)))
