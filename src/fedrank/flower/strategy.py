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

from fedrank.errors import BallotError, ConfigError, TrainingError
from fedrank.experiment.metrics import Evaluation
from fedrank.experiment.rounds import Adversary, Round, select
from fedrank.flower.exchange import exchange, objected
from fedrank.flower.roll import Roll
from fedrank.flower.wire import ACCURACY, LOSS, metric, question, read_answer, sealed, unsealed
from fedrank.methods import FRL, Traffic
from fedrank.methods.frl import FRLState
from fedrank.rank import Box, Tally

CLOCKS = 60.0
"""Seconds that clocks may differ: a message lives so much longer than it is waited for."""

logger = logging.getLogger("flwr")


@dataclass
class Count:
    """A round while its ballots come in."""

    state: FRLState
    clients: dict[int, int]
    """The clients that were asked, by their nodes."""
    collector: Tally | Box
    download: int
    upload: int = 0
    losses: dict[int, float] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)

    @property
    def votes(self) -> int:
        """How many legal ballots there are."""
        return len(self.collector.voters)

    @property
    def loss(self) -> float | None:
        """The mean training loss, summed in the order of the clients, whoever was faster."""
        losses = [self.losses[client] for client in self.clients.values() if client in self.losses]
        return float(np.mean(losses)) if losses else None


class RankVote(Strategy):
    """Federated Rank Learning (Mozaffari et al., 2023, Algorithm 2) over Flower.

    Every answer is read, checked and counted as it arrives; with the vote "borda" nothing of it is kept.
    A client that dies, hangs, or sends what is not a legal ballot costs its own vote and nothing else.

    Parameters
    ----------
    method : the network, the vote and the wire format. Clients must have built the same.
    clients_per_round : how many clients are asked in a round, or all that are there, if those are fewer.
    min_nodes : how many clients must be there before the first round.
    min_votes : a round with fewer legal ballots is played again, with other clients.
    deadline : seconds after which a round ends with the ballots that are there.
    wait : seconds that are waited for clients at most.
    repeats : how often a round may be played again before the run stops.
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
        min_nodes: int = 1,
        min_votes: int = 1,
        deadline: float = 600.0,
        wait: float = 600.0,
        repeats: int = 5,
        strikes: int = 3,
        evaluate: bool = False,
        without_data: Collection[int] = (),
        adversary: Adversary | None = None,
    ) -> None:
        if not 1 <= min_votes <= clients_per_round:
            raise ConfigError(
                f"min_votes is {min_votes}: it must lie between 1 and clients_per_round ({clients_per_round})"
            )
        if method.most_expected(min_votes) < 0:
            raise ConfigError(f"min_votes is {min_votes}: too few ballots for the vote {method.vote!r}")
        if min_nodes < 1 or deadline <= 0 or wait < 0 or repeats < 0 or strikes < 1:
            raise ConfigError(
                "min_nodes and strikes must be at least 1, deadline more than 0, wait and repeats at least 0"
            )
        self.method = method
        self.clients_per_round = clients_per_round
        self.min_nodes = min_nodes
        self.min_votes = min_votes
        self.deadline = deadline
        self.wait = wait
        self.repeats = repeats
        self.strikes = strikes
        self.evaluate = evaluate
        self.without_data = frozenset(without_data)
        self.malicious = adversary.clients if adversary else frozenset()
        self._avoided = self.malicious if adversary and adversary.redraw else frozenset()
        self.roll = Roll()
        self.illegal: Counter[int] = Counter()
        self._count: Count | None = None
        self._again = 0

    def initial_arrays(self) -> ArrayRecord:
        """Return the first broadcast, what `start` begins with."""
        return sealed(self.method.broadcast(self.method.init()))

    def state(self, arrays: ArrayRecord) -> FRLState:
        """Return the state that a broadcast tells of."""
        return self.method.state_of(unsealed(arrays))

    def summary(self) -> None:
        """Log the settings."""
        logger.info("\t├── Vote: %s on ballots %r", self.method.vote, self.method.ballots)
        logger.info("\t├── Clients a round: %d", self.clients_per_round)
        logger.info("\t├── Least votes: %d", self.min_votes)
        logger.info("\t└── Deadline: %g seconds, repeated %d times", self.deadline, self.repeats)

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
            arrays = result.arrays = sealed(self.method.broadcast(state))
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
        self.roll.wait(grid, self.min_nodes, self.wait)
        while state.round < until:
            begin = time.perf_counter()
            count = self._poll(grid, state, config or ConfigRecord())
            clients = tuple(count.clients.values())
            state = self.method.aggregate(count.state, count.collector)
            yield (
                state,
                Round(
                    number=state.round,
                    clients=clients,
                    malicious=tuple(client for client in clients if client in self.malicious),
                    train_loss=count.loss,
                    refused=count.refused,
                    sent=Traffic(count.upload / len(clients), count.download),
                    evaluation=measure(state),
                    vote=self.method.audit(count.state, count.collector, state),
                    wall_seconds=time.perf_counter() - begin,
                ),
            )

    def _poll(self, grid: Grid, state: FRLState, config: ConfigRecord) -> Count:
        """Ask for ballots until enough legal ones are there."""
        arrays = sealed(self.method.broadcast(state))
        for self._again in range(self.repeats + 1):
            questions = list(self.configure_train(state.round + 1, arrays, config, grid))
            self._gather(exchange(grid, questions, self.deadline, self._missing))
            if self._open.votes >= self.min_votes:
                self._again = 0
                return self._open
            logger.warning(
                "Round %d has %d legal ballots, %d are needed.",
                state.round + 1,
                self._open.votes,
                self.min_votes,
            )
        raise TrainingError(
            f"round {state.round + 1} was played {self.repeats + 1} times and never had "
            f"{self.min_votes} legal ballots. The last time: {'; '.join(_sentences(self._open.refused))}"
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Draw the clients of a round (Algorithm 2, line 6) and write to each."""
        self.roll.wait(grid, self.min_votes, self.wait, self._excluded())
        nodes = self._askable()
        broadcast = unsealed(arrays)
        clients = self._select(list(nodes), server_round)
        self._count = Count(
            state=self.method.state_of(broadcast),
            clients={nodes[client]: client for client in clients},
            collector=self.method.collector(broadcast, clients),
            download=len(broadcast),
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
        place = (self.method.seed, server_round - 1)
        try:
            return select(clients, count, *place, self._avoided, self._again)
        except ConfigError:
            logger.warning(
                "Round %d: half or more of the clients that are there are malicious.", server_round
            )
            return select(clients, count, *place, again=self._again)

    def aggregate_train(
        self,
        server_round: int,  # noqa: ARG002
        replies: Iterable[Message],
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Count the ballots and vote."""
        self._gather(replies)
        count = self._open
        if count.votes < self.min_votes:
            return None, None
        state = self.method.aggregate(count.state, count.collector)
        return sealed(self.method.broadcast(state)), _train_metrics(count)

    def _gather(self, replies: Iterable[Message]) -> None:
        """Read each reply as it comes and forget it."""
        count = self._open
        for reply in replies:
            node = reply.metadata.src_node_id
            if node not in count.clients or objected(reply, node, self._missing):
                continue
            try:
                ballot, loss = read_answer(reply)
                count.upload += len(ballot)
                count.collector.add(count.clients[node], ballot)
            except BallotError as error:
                self._missing(node, f"sent an illegal answer: {error}", illegal=True)
                continue
            if loss is not None and count.clients[node] not in self.malicious:
                count.losses[count.clients[node]] = loss

    def _missing(self, node: int, reason: str, *, illegal: bool = False) -> None:
        """Write down why a client's vote does not count."""
        count = self._open
        client = count.clients.get(node)
        logger.warning("Round %d, client %s (node %d): %s", count.state.round + 1, client, node, reason)
        if client is not None and client not in count.collector.voters:
            count.refused[client] = reason
        if illegal:
            self.illegal[node] += 1
            if self.illegal[node] == self.strikes:
                logger.warning("Client %s (node %d) is no longer asked.", client, node)

    @property
    def _open(self) -> Count:
        if self._count is None:
            raise TrainingError("there is no round yet: configure_train comes first")
        return self._count

    def _askable(self) -> dict[int, int]:
        """Return the nodes of all clients that may be asked."""
        excluded = self._excluded()
        return {client: node for client, node in self.roll.nodes.items() if node not in excluded}

    def _excluded(self) -> set[int]:
        """Return the nodes that are not asked: for illegal answers, or because they have no data."""
        banned = {node for node, count in self.illegal.items() if count >= self.strikes}
        return banned | {node for node, client in self.roll.numbers.items() if client in self.without_data}

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask all clients how the model does on their data."""
        if not self.evaluate:
            return []
        self.roll.refresh(grid)
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


def _train_metrics(count: Count) -> MetricRecord:
    values: dict[str, Any] = {"votes": count.votes, "refused": len(count.refused)}
    return MetricRecord(values if count.loss is None else {LOSS: count.loss, **values})


def _sentences(refused: dict[int, str]) -> list[str]:
    return [f"client {client} {reason}" for client, reason in refused.items()][:5]
