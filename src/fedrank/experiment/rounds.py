"""The round loop: select, train, vote, measure."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from fedrank.data import Federation
from fedrank.engine import Engine
from fedrank.errors import ConfigError, ModelError
from fedrank.experiment.metrics import Evaluation, evaluation, test_samples
from fedrank.methods import Method
from fedrank.randomness import Purpose, keyed_generator


@dataclass(frozen=True)
class Round:
    """What happened in one round. `number` counts from 1."""

    number: int
    clients: tuple[int, ...]
    train_loss: float
    refused: dict[int, str]
    """Clients whose message was not legal and did not count, with the reason."""
    evaluation: Evaluation | None
    wall_seconds: float


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
) -> Iterator[tuple[Any, Round]]:
    """Play rounds from `state` on until all are done; yield the new state after each."""
    schedule.check(federation)
    while state.round < schedule.rounds:
        begin = time.perf_counter()
        selected = select(federation, schedule.per_round, method.seed, state.round)
        collected = engine.collect(state, selected)
        state = method.aggregate(state, collected.messages)
        measured = measure(federation, engine, state) if schedule.measures(state.round) else None
        yield (
            state,
            Round(
                number=state.round,
                clients=selected,
                train_loss=float(np.mean(collected.losses)),
                refused=collected.refused,
                evaluation=measured,
                wall_seconds=time.perf_counter() - begin,
            ),
        )


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


def select(federation: Federation, count: int, seed: int, round_number: int) -> tuple[int, ...]:
    """Draw the clients of a round (Algorithm 2, line 6)."""
    rng = keyed_generator(seed, Purpose.SELECTION, round_number)
    return tuple(int(client) for client in rng.choice(federation.voters, count, replace=False))


def measure(federation: Federation, engine: Engine, state: Any) -> Evaluation:
    """Test the model of `state` on every client's test data and on the global test set."""
    return evaluation(federation, engine.predict(state, test_samples(federation)))
