"""The work of a worker, in this process or in another."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy

from fedrank.aggregators.measured import Measuring
from fedrank.ballots.candidates import Stage, question_round, question_stage
from fedrank.data import Federation, Samples
from fedrank.errors import BallotError
from fedrank.methods import ClientUpdate, Collector, Method
from fedrank.nn import Workspace, channels_last
from fedrank.randomness import Purpose, keyed_generator

EVALUATION_BATCH = 64
"""Small enough for the caches; fixed, so that predictions do not depend on the number of workers."""


@dataclass(frozen=True)
class Predictions:
    """Results of a model on some samples, one entry per sample."""

    correct: NDArray[np.bool_]
    losses: NDArray[np.float32]


@dataclass(frozen=True)
class Outcome:
    """A client's mean training loss, the bytes it sent, and why they were rejected, if they were."""

    loss: float | None
    sent: int
    refusal: str | None = None


class Worker:
    """Trains clients and tests models on one device, and collects the clients' messages."""

    def __init__(self, method: Method[Any], federation: Federation, device: str) -> None:
        self.method = method
        self.federation = federation
        self.workspace = Workspace(method.network, device)

    def begin(self, broadcast: bytes, asked: frozenset[int]) -> None:
        """Start a round: decode the broadcast and reset the collector."""
        self.received = self.method.receive(broadcast)
        self.collector: Collector = self.method.collector(self.received, asked)

    def train(self, client: int) -> Outcome:
        """Train one client and collect its message. An illegal message does not count."""
        learned = self.learn(client)
        message = self.method.encode(self.received, learned.update, client)
        try:
            self.collector.add(client, message)
        except BallotError as refusal:
            return Outcome(learned.loss, len(message), str(refusal))
        return Outcome(learned.loss, len(message))

    def learn(self, client: int) -> ClientUpdate:
        """Train one client and return its update without sending it."""
        seed = self.method.network.seed
        rng = keyed_generator(seed, Purpose.LOCAL_TRAINING, self.received.round, client)
        samples = self.federation.train_samples(client)
        return self.method.client_update(self.received, samples, rng, self.workspace)

    def measure(self, asked: tuple[int, bytes]) -> bytes:
        """Answer the question to a validator, on a few samples of its training data."""
        validator, question = asked
        return measured(
            self.method, self.federation.train_samples(validator), validator, question, self.workspace
        )

    def collected(self) -> Collector:
        """Return the messages collected in this round."""
        return self.collector

    def cpu_seconds(self) -> float:
        """Return the CPU time used by this process so far."""
        return time.process_time()

    def load(self, state: Any) -> None:
        """Build the model to test."""
        self.model = self.method.model(state).to(self.workspace.device)

    def predict(self, samples: NDArray[np.int64]) -> Predictions:
        """Test the model on a batch of samples."""
        return predictions(self.model, self.federation.dataset.select(samples), self.workspace.device)


def measured(method: Any, samples: Samples, validator: int, question: bytes, workspace: Workspace) -> bytes:
    """Answer a question on a few of a validator's samples; the runoff's include those of the trials."""
    seed, round_number = method.network.seed, question_round(question)
    rng = keyed_generator(seed, Purpose.MEASURING, round_number, validator)
    how: Measuring = method.measuring
    most = how.runoff_samples if question_stage(question) is Stage.RUNOFF else how.samples
    some = np.sort(rng.permutation(len(samples))[:most])
    report: bytes = method.measure(question, samples.some(some), workspace)
    return report


def predictions(model: nn.Module, samples: Samples, device: torch.device) -> Predictions:
    """Test a model on some samples in one batch."""
    inputs = torch.from_numpy(samples.preprocess(samples.inputs)).to(device)
    labels = torch.from_numpy(samples.labels).to(device)
    with torch.inference_mode():
        logits = model(channels_last(inputs))
        losses = cross_entropy(logits, labels, reduction="none")
        correct = logits.argmax(dim=1) == labels
    return Predictions(correct.cpu().numpy(), losses.cpu().numpy())


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread, as worker processes do: floating-point sums depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
