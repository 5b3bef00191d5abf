"""What a worker does, wherever it runs."""

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

from fedrank.data import Federation, Samples
from fedrank.errors import BallotError
from fedrank.methods import ClientUpdate, Collector, Method
from fedrank.nn import Workspace, channels_last
from fedrank.randomness import Purpose, keyed_generator

EVALUATION_BATCH = 64
"""Small enough for the caches; fixed, so that a prediction does not depend on the number of workers."""


@dataclass(frozen=True)
class Predictions:
    """How a model did on some samples, one entry each."""

    correct: NDArray[np.bool_]
    losses: NDArray[np.float32]


@dataclass(frozen=True)
class Outcome:
    """An honest client's mean training loss, the bytes sent, and why they were refused, if they were."""

    loss: float | None
    sent: int
    refusal: str | None = None


class Worker:
    """Trains clients and tests models on one device, gathering what the clients send."""

    def __init__(self, method: Method[Any], federation: Federation, device: str) -> None:
        self.method = method
        self.federation = federation
        self.workspace = Workspace(method.network, device)

    def begin(self, broadcast: bytes, asked: frozenset[int]) -> None:
        """Start a round: read the broadcast, and forget what was gathered before."""
        self.received = self.method.receive(broadcast)
        self.collector: Collector = self.method.collector(self.received, asked)

    def train(self, client: int) -> Outcome:
        """Train one client and gather its message. An illegal message does not count."""
        learned = self.learn(client)
        message = self.method.encode(self.received, learned.update, client)
        try:
            self.collector.add(client, message)
        except BallotError as refusal:
            return Outcome(learned.loss, len(message), str(refusal))
        return Outcome(learned.loss, len(message))

    def learn(self, client: int) -> ClientUpdate:
        """Train one client and keep what it has learned from the server."""
        seed = self.method.network.seed
        rng = keyed_generator(seed, Purpose.LOCAL_TRAINING, self.received.round, client)
        samples = self.federation.train_samples(client)
        return self.method.client_update(self.received, samples, rng, self.workspace)

    def collected(self) -> Collector:
        """Return what was gathered since the round began."""
        return self.collector

    def cpu_seconds(self) -> float:
        """Return the CPU time that this process has used so far."""
        return time.process_time()

    def load(self, state: Any) -> None:
        """Build the model that is to be tested."""
        self.model = self.method.model(state).to(self.workspace.device)

    def predict(self, samples: NDArray[np.int64]) -> Predictions:
        """Test the model on a batch of samples."""
        return predictions(self.model, self.federation.dataset.select(samples), self.workspace.device)


def predictions(model: nn.Module, samples: Samples, device: torch.device) -> Predictions:
    """Test a model on some samples, all at once."""
    inputs = torch.from_numpy(samples.preprocess(samples.inputs)).to(device)
    labels = torch.from_numpy(samples.labels).to(device)
    with torch.inference_mode():
        logits = model(channels_last(inputs))
        losses = cross_entropy(logits, labels, reduction="none")
        correct = logits.argmax(dim=1) == labels
    return Predictions(correct.cpu().numpy(), losses.cpu().numpy())


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread, as worker processes do: sums of floats depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
