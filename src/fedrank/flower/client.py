"""The client side: what a ClientApp needs to take part in a vote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedrank.data import Samples
from fedrank.engine.task import EVALUATION_BATCH, measured, one_thread, predictions
from fedrank.flower.directory import claim
from fedrank.flower.wire import (
    ACCURACY,
    EXAMPLES,
    MEASURE,
    METRICS,
    QUESTION,
    REPORT,
    answer,
    as_record,
    read_question,
)
from fedrank.methods import FRL, ClientUpdate, FRLState
from fedrank.methods.frl import RoundInput
from fedrank.nn import Supernetwork, Workspace
from fedrank.randomness import Purpose, keyed_generator


@dataclass(frozen=True)
class Voter:
    """A client: the method it shares with the server, and its own data.

    Parameters
    ----------
    method : the same as the server's, with the same seed.
    train : training samples.
    test : test samples, to evaluate the global model if the server asks for it.
    device : where to compute.
    """

    method: FRL
    train: Samples
    test: Samples | None = None
    device: str = "cpu"

    def learn(self, received: RoundInput, number: int) -> ClientUpdate:
        """Rank the edges on this client's data, exactly as a local run does for this client number."""
        network = self.method.network
        rng = keyed_generator(network.seed, Purpose.LOCAL_TRAINING, received.round, number)
        return self.method.client_update(received, self.train, rng, _workspace(network, self.device))

    def vote(self, message: Message) -> Message:
        """Reply to a train message with a ballot."""
        broadcast, number = read_question(message)
        with one_thread():
            received = self.method.receive(broadcast)
            learned = self.learn(received, number)
        ballot = self.method.encode(received, learned.update, number)
        return Message(answer(ballot, learned.loss, len(self.train)), reply_to=message)

    def report(self, message: Message) -> bytes:
        """Return what this validator says about candidates."""
        question, number = read_question(message, QUESTION)
        workspace = _workspace(self.method.network, self.device)
        return measured(self.method, self.train, number, question, workspace)

    def measure(self, message: Message) -> Message:
        """Reply to a validator's question with a report."""
        with one_thread():
            report = self.report(message)
        return Message(RecordDict({REPORT: as_record(report)}), reply_to=message)

    def assess(self, message: Message) -> Message:
        """Reply with the accuracy of the global model on this client's test data."""
        broadcast, _ = read_question(message)
        if self.test is None or len(self.test) == 0:
            return Message(RecordDict({METRICS: MetricRecord({EXAMPLES: 0})}), reply_to=message)
        device = torch.device(self.device)
        with one_thread():
            received = self.method.receive(broadcast)
            model = self.method.model(FRLState(received.round, received.ranking)).to(device)
            parts = self.test.parts(EVALUATION_BATCH)
            correct = sum(int(predictions(model, part, device).correct.sum()) for part in parts)
        metrics = MetricRecord({ACCURACY: correct / len(self.test), EXAMPLES: len(self.test)})
        return Message(RecordDict({METRICS: metrics}), reply_to=message)


@lru_cache(maxsize=1)
def _workspace(network: Supernetwork, device: str) -> Workspace:
    """Return the networks to train in, shared by all voters of a process with the same supernetwork."""
    return Workspace(network, device)


def voting(app: ClientApp) -> Callable[[Callable[[Context], Voter]], Callable[[Context], Voter]]:
    """Register vote handlers on a ClientApp; decorates the function that returns the voter.

    app = ClientApp()

    @voting(app)
    def voter(context: Context) -> Voter:
        return Voter(method, fedrank.samples(*my_data(context)))
    """

    def register(voter: Callable[[Context], Voter]) -> Callable[[Context], Voter]:
        @app.query()
        def enroll(message: Message, context: Context) -> Message:
            number = context.node_config.get("partition-id")
            return Message(claim(number if isinstance(number, int) else None), reply_to=message)

        @app.train()
        def train(message: Message, context: Context) -> Message:
            return voter(context).vote(message)

        @app.evaluate(MEASURE)
        def measure(message: Message, context: Context) -> Message:
            return voter(context).measure(message)

        @app.evaluate()
        def evaluate(message: Message, context: Context) -> Message:
            return voter(context).assess(message)

        return voter

    return register
