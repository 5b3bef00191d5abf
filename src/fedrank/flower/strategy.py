"""The server's side: Federated Rank Learning as a strategy of Flower."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedrank.ballots import BallotStore, Tally
from fedrank.errors import BallotError, ConfigError, TrainingError
from fedrank.experiment.adversary import Adversary
from fedrank.experiment.metrics import Evaluation
from fedrank.experiment.rounds import Round, avoided_by, conclude, select
from fedrank.flower.directory import NodeDirectory
from fedrank.flower.exchange import exchange, objected
from fedrank.flower.wire import ACCURACY, LOSS, as_record, from_record, metric, question, read_answer
from fedrank.methods import FRL
from fedrank.methods.frl import FRLState

CLOCKS = 60.0
"""Seconds that clocks may differ: a message lives so much longer than it is waited for."""

logger = logging.getLogger("flwr")


@dataclass
class OpenRound:
    """A round while its ballots come in."""

    state: FRLState
    clients: dict[int, int]
    """The clients that were asked, by their nodes."""
    messages: Tally | BallotStore
    download_bytes: int
    upload_bytes: int = 0
    losses: dict[int, float] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)

    @property
    def votes(self) -> int:
        """How many legal ballots there are."""
        return len(self.messages.voters)

    def mean_loss(self, clients: Collection[int]) -> float | None:
        """Return the mean training loss of some clients, summed in their order, whoever was faster."""
        losses = [self.losses[client] for client in clients if client in self.losses]
        return float(np.mean(losses)) if losses else None


class RankVote(Strategy):
    """Federated Rank Learning (Mozaffari et al., 2023, Algorithm 2) over Flower.

    Every answer is read, checked and counted as it arrives; with the vote "borda" nothing of it is kept.
    A client that dies, hangs, or sends what is not a legal ballot costs its own vote and nothing else.

    Parameters
    ----------
    method : the network, the vote and the wire format. Clients must have built the same.
    clients_per_round : how many clients are asked in a round, or all that are there, if those are fewer.
    min_available_nodes : how many clients must be there before the first round.
    min_votes : a round with fewer legal ballots is played again, with other clients.
    deadline : seconds after which a round ends with the ballots that are there.
    startup_timeout : how many seconds to wait for clients.
    max_retries : how often a round may be repeated before the run stops.
    strikes : a client that has sent so many illegal answers is no longer asked.
    evaluate : ask all clients after every round how the model does on their data. They may lie.
    without_data : clients that are known to have nothing to train on; they are never asked.
    adversary : who is malicious, in a rehearsal. They are recorded, and drawn as in a local run.
    """

    def __init__(
        self,
        method: FRL,
        *,
        clients_per_round: int,
        min_available_nodes: int = 1,
        min_votes: int = 1,
        deadline: float = 600.0,
        startup_timeout: float = 600.0,
        max_retries: int = 5,
        strikes: int = 3,
        evaluate: bool = False,
        without_data: Collection[int] = (),
        adversary: Adversary | None = None,
    ) -> None:
        if not 1 <= min_votes <= clients_per_round:
            raise ConfigError(
                f"min_votes is {min_votes}: it must lie between 1 and clients_per_round ({clients_per_round})"
            )
        if method.rule is not None and method.rule.max_malicious(min_votes) < 0:
            raise ConfigError(f"min_votes is {min_votes}: too few ballots for the vote {method.rule.name!r}")
        if min_available_nodes < 1 or deadline <= 0 or startup_timeout < 0 or max_retries < 0 or strikes < 1:
            raise ConfigError(
                "min_available_nodes and strikes must be at least 1, deadline more than 0, "
                "startup_timeout and max_retries at least 0"
            )
        self.method = method
        self.clients_per_round = clients_per_round
        self.min_available_nodes = min_available_nodes
        self.min_votes = min_votes
        self.deadline = deadline
        self.startup_timeout = startup_timeout
        self.max_retries = max_retries
        self.strikes = strikes
        self.evaluate = evaluate
        self.without_data = frozenset(without_data)
        self.adversary = adversary
        self.directory = NodeDirectory()
        self.illegal: Counter[int] = Counter()
        self._count: OpenRound | None = None
        self._retry = 0

    def initial_arrays(self) -> ArrayRecord:
        """Return the first broadcast, what `start` begins with."""
        return as_record(self.method.broadcast(self.method.init()))

    def state(self, arrays: ArrayRecord) -> FRLState:
        """Return the state that a broadcast tells of."""
        received = self.method.receive(from_record(arrays))
        return FRLState(received.round, received.ranking)

    def summary(self) -> None:
        """Log the settings."""
        logger.info("\t├── Vote: %s on ballots %r", self.method.vote, self.method.ballots)
        logger.info("\t├── Clients a round: %d", self.clients_per_round)
        logger.info("\t├── Least votes: %d", self.min_votes)
        logger.info("\t└── Deadline: %g seconds, repeated %d times", self.deadline, self.max_retries)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int = 3,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Play `num_rounds` rounds; `arrays` of the result is the last broadcast, which `state` reads.

        `timeout` takes the place of the strategy's deadline.
        """
        self.deadline = timeout or self.deadline
        self.summary()
        result = Result()
        arrays = result.arrays = initial_arrays or self.initial_arrays()
        if evaluate_fn and (measured := evaluate_fn(0, arrays)) is not None:
            result.evaluate_metrics_serverapp[0] = measured
        begin = self.state(arrays)
        for state, _ in self.rounds(grid, begin, begin.round + num_rounds, config=train_config):
            arrays = result.arrays = as_record(self.method.broadcast(state))
            result.train_metrics_clientapp[state.round] = _train_metrics(self._open)
            messages = self.configure_evaluate(state.round, arrays, evaluate_config or ConfigRecord(), grid)
            replies = exchange(grid, messages, self.deadline, self._silent)
            told = self.aggregate_evaluate(state.round, replies)
            if told is not None:
                result.evaluate_metrics_clientapp[state.round] = told
            if evaluate_fn and (measured := evaluate_fn(state.round, arrays)) is not None:
                result.evaluate_metrics_serverapp[state.round] = measured
        return result

    def rounds(
        self,
        grid: Grid,
        state: FRLState,
        until: int,
        measure: Callable[[FRLState], Evaluation | None] = lambda _: None,
        config: ConfigRecord | None = None,
    ) -> Iterator[tuple[FRLState, Round]]:
        """Play rounds from `state` on until so many are done; yield the new state after each."""
        self.directory.wait(grid, self.min_available_nodes, self.startup_timeout)
        while state.round < until:
            begin = time.perf_counter()
            opened = self._poll(grid, state, config or ConfigRecord())
            clients = tuple(opened.clients.values())
            state, done = conclude(self.method, self.adversary, opened.state, clients, opened, measure, begin)
            yield state, done

    def _poll(self, grid: Grid, state: FRLState, config: ConfigRecord) -> OpenRound:
        """Ask for ballots until enough legal ones are there."""
        arrays = as_record(self.method.broadcast(state))
        for self._retry in range(self.max_retries + 1):
            questions = list(self.configure_train(state.round + 1, arrays, config, grid))
            self._gather(exchange(grid, questions, self.deadline, self._missing))
            if self._open.votes >= self.min_votes:
                self._retry = 0
                return self._open
            logger.warning(
                "Round %d has %d legal ballots, %d are needed.",
                state.round + 1,
                self._open.votes,
                self.min_votes,
            )
        raise TrainingError(
            f"round {state.round + 1} was played {self.max_retries + 1} times and never had "
            f"{self.min_votes} legal ballots. The last time: {'; '.join(_sentences(self._open.refused))}"
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Draw the clients of a round (Algorithm 2, line 6) and write to each."""
        self.directory.wait(grid, self.min_votes, self.startup_timeout, self._excluded())
        nodes = self._askable()
        broadcast = from_record(arrays)
        received = self.method.receive(broadcast)
        clients = self._select(list(nodes), server_round)
        self._count = OpenRound(
            state=FRLState(received.round, received.ranking),
            clients={nodes[client]: client for client in clients},
            messages=self.method.collector(received, clients),
            download_bytes=len(broadcast),
        )
        return [
            Message(
                question(arrays, client, config),
                nodes[client],
                MessageType.TRAIN,
                ttl=self.deadline + CLOCKS,
                group_id=str(server_round),
            )
            for client in clients
        ]

    def _select(self, clients: list[int], server_round: int) -> tuple[int, ...]:
        count = min(self.clients_per_round, len(clients))
        key = (self.method.network.seed, server_round - 1)
        try:
            return select(clients, count, *key, avoided_by(self.adversary), self._retry)
        except ConfigError:
            logger.warning(
                "Round %d: half or more of the clients that are there are malicious.", server_round
            )
            return select(clients, count, *key, retry=self._retry)

    def aggregate_train(
        self,
        server_round: int,  # noqa: ARG002
        replies: Iterable[Message],
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """OpenRound the ballots and vote."""
        self._gather(replies)
        count = self._open
        if count.votes < self.min_votes:
            return None, None
        state = self.method.aggregate(count.state, count.messages)
        return as_record(self.method.broadcast(state)), _train_metrics(count)

    def _gather(self, replies: Iterable[Message]) -> None:
        """Read each reply as it comes and forget it."""
        count = self._open
        for reply in replies:
            node = reply.metadata.src_node_id
            if node not in count.clients or objected(reply, node, self._missing):
                continue
            try:
                ballot, loss = read_answer(reply)
                count.upload_bytes += len(ballot)
                count.messages.add(count.clients[node], ballot)
            except BallotError as error:
                self._missing(node, f"sent an illegal answer: {error}", illegal=True)
                continue
            if loss is not None:
                count.losses[count.clients[node]] = loss

    def _missing(self, node: int, reason: str, *, illegal: bool = False) -> None:
        """Write down why a client's vote does not count."""
        count = self._open
        client = count.clients.get(node)
        logger.warning("Round %d, client %s (node %d): %s", count.state.round + 1, client, node, reason)
        if client is not None and client not in count.messages.voters:
            count.refused[client] = reason
        if illegal:
            self.illegal[node] += 1
            if self.illegal[node] == self.strikes:
                logger.warning("Client %s (node %d) is no longer asked.", client, node)

    @property
    def _open(self) -> OpenRound:
        if self._count is None:
            raise TrainingError("there is no round yet: configure_train comes first")
        return self._count

    def _askable(self) -> dict[int, int]:
        """Return the nodes of all clients that may be asked."""
        excluded = self._excluded()
        return {client: node for client, node in self.directory.nodes.items() if node not in excluded}

    def _excluded(self) -> set[int]:
        """Return the nodes that are not asked: for illegal answers, or because they have no data."""
        banned = {node for node, count in self.illegal.items() if count >= self.strikes}
        return banned | {
            node for node, client in self.directory.numbers.items() if client in self.without_data
        }

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask all clients how the model does on their data."""
        if not self.evaluate:
            return []
        self.directory.refresh(grid)
        return [
            Message(
                question(arrays, client, config),
                node,
                MessageType.EVALUATE,
                ttl=self.deadline + CLOCKS,
                group_id=str(server_round),
            )
            for client, node in self._askable().items()
        ]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:  # noqa: ARG002
        """Return the mean of what clients say about their accuracy, each counting once."""
        told = [metric(reply, ACCURACY, 1.0) for reply in replies if reply.has_content()]
        known = [accuracy for accuracy in told if accuracy is not None]
        return MetricRecord({ACCURACY: float(np.mean(known)), "clients": len(known)}) if known else None

    def _silent(self, node: int, reason: str, *, illegal: bool = False) -> None:  # noqa: ARG002
        logger.warning("Node %d said nothing about the model: %s", node, reason)


def _train_metrics(count: OpenRound) -> MetricRecord:
    loss = count.mean_loss(count.clients.values())
    values: dict[str, Any] = {"votes": count.votes, "refused": len(count.refused)}
    return MetricRecord(values if loss is None else {LOSS: loss, **values})


def _sentences(refused: dict[int, str]) -> list[str]:
    return [f"client {client} {reason}" for client, reason in refused.items()][:5]
