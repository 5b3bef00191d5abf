"""The server side: Federated Rank Learning as a Flower strategy."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedrank.ballots import BallotStore, Tally
from fedrank.ballots.candidates import NO_ANSWER, Measured, Stage
from fedrank.errors import BallotError, ConfigError, TrainingError
from fedrank.experiment.adversary import Adversary
from fedrank.experiment.metrics import Evaluation
from fedrank.experiment.rounds import Round, avoided_by, conclude, draw_validators, select
from fedrank.flower.directory import NodeDirectory
from fedrank.flower.exchange import exchange, objected
from fedrank.flower.wire import (
    ACCURACY,
    LOSS,
    MEASURE,
    QUESTION,
    as_record,
    from_record,
    metric,
    question,
    read_answer,
    read_report,
    rehearsal,
)
from fedrank.methods import FRL
from fedrank.methods.frl import FRLState
from fedrank.methods.measured import Panel

CLOCKS = 60.0
"""Seconds that clocks may differ: messages expire this much after the deadline."""

logger = logging.getLogger("flwr")


@dataclass
class OpenRound:
    """A round that is collecting ballots."""

    state: FRLState
    clients: dict[int, int]
    """The selected clients, by node."""
    messages: Tally | BallotStore
    download_bytes: int
    upload_bytes: int = 0
    losses: dict[int, float] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)

    @property
    def entropy(self) -> int:
        """The sum of the ballots' digests."""
        assert isinstance(self.messages, BallotStore)
        return self.messages.entropy

    @property
    def votes(self) -> int:
        """The number of legal ballots so far."""
        return len(self.messages.voters)

    def mean_loss(self, clients: Collection[int]) -> float | None:
        """Return the mean training loss of some clients, independent of the order of arrival."""
        losses = [self.losses[client] for client in clients if client in self.losses]
        return float(np.mean(losses)) if losses else None


class RankVote(Strategy):
    """Federated Rank Learning (Mozaffari et al., 2023, Algorithm 2) over Flower.

    Reads, checks and counts every reply as it arrives; the vote "borda" keeps no ballots.
    A client that crashes, hangs or sends an illegal ballot loses its own vote and affects nothing else.

    Parameters
    ----------
    method : the network, the vote and the wire format; must be the same on all clients.
    clients_per_round : clients to select per round; all online clients if there are fewer.
    min_available_nodes : clients that must be online before the first round.
    min_votes : a round with fewer legal ballots is repeated with other clients.
    deadline : seconds after which a round ends with the ballots received.
    startup_timeout : seconds to wait for clients to come online.
    max_retries : how often a round is repeated before the run stops.
    strikes : illegal replies after which a client is no longer selected.
    evaluate : after every round, ask all clients for the model's accuracy on their data. They may lie.
    without_data : clients without training data; never selected.
    adversary : the malicious clients, to rehearse an attack; selected as in a local run, and recorded.
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
                f"min_votes must be between 1 and clients_per_round ({clients_per_round}), got {min_votes}"
            )
        if method.rule is not None and method.rule.max_malicious(min_votes) < 0:
            raise ConfigError(f"min_votes is {min_votes}, too few ballots for the vote {method.rule.name!r}")
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
        self._opened: OpenRound | None = None
        self._retry = 0

    def initial_arrays(self) -> ArrayRecord:
        """Return the first broadcast, with which `start` begins."""
        return as_record(self.method.broadcast(self.method.init()))

    def state(self, arrays: ArrayRecord) -> FRLState:
        """Return the state that a broadcast encodes."""
        received = self.method.receive(from_record(arrays))
        return FRLState(received.round, received.ranking)

    def summary(self) -> None:
        """Log the settings."""
        logger.info("\t├── Vote: %s on ballots %r", self.method.vote, self.method.ballots)
        logger.info("\t├── Clients per round: %d", self.clients_per_round)
        logger.info("\t├── Minimum votes: %d", self.min_votes)
        logger.info("\t└── Deadline: %g seconds, at most %d retries", self.deadline, self.max_retries)

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
        """Run `num_rounds` rounds. The result's `arrays` is the last broadcast; `state` decodes it.

        `timeout` overrides the strategy's deadline.
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
            reported = self.aggregate_evaluate(state.round, replies)
            if reported is not None:
                result.evaluate_metrics_clientapp[state.round] = reported
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
        """Run rounds from `state` until round `until`; yield the new state after each."""
        self.directory.wait(grid, self.min_available_nodes, self.startup_timeout)
        while state.round < until:
            begin = time.perf_counter()
            opened = self._poll(grid, state, config or ConfigRecord())
            clients = tuple(opened.clients.values())

            def ask(_: Stage, questions: Mapping[int, bytes]) -> dict[int, bytes]:
                return self._ask(grid, questions)

            panel = Panel(self._validators(opened), ask)
            state, done = conclude(
                self.method, self.adversary, opened.state, clients, opened, measure, begin, panel
            )
            self._note_illegal_reports(done.measured)
            yield state, done

    def _note_illegal_reports(self, measured: Measured | None) -> None:
        """Log what validators sent that cannot be read, and remember who it was."""
        nodes = self.directory.nodes
        for client, reason in measured.refused.items() if measured else ():
            if reason != NO_ANSWER and client in nodes:
                self._no_report(nodes[client], f"sent an illegal report: {reason}", illegal=True)

    def _validators(self, opened: OpenRound) -> tuple[int, ...]:
        """Draw the validators of a round from the clients that are online."""
        if self.method.measuring is None:
            return ()
        count, seed = self.method.measuring.validators, self.method.network.seed
        return draw_validators(list(self._askable()), count, seed, opened.state.round, opened.entropy)

    def _ask(self, grid: Grid, questions: Mapping[int, bytes]) -> dict[int, bytes]:
        """Send validators their questions; return the reports of those who answer."""
        nodes = self._askable()
        clients = {nodes[client]: client for client in questions if client in nodes}
        messages = [
            Message(
                question(as_record(questions[client]), client, self._hint(client), QUESTION),
                node,
                f"{MessageType.EVALUATE}.{MEASURE}",
                ttl=self.deadline + CLOCKS,
                group_id=str(self._open.state.round + 1),
            )
            for node, client in clients.items()
        ]
        reports = {}
        for reply in exchange(grid, messages, self.deadline, self._no_report):
            node = reply.metadata.src_node_id
            try:
                reports[clients[node]] = read_report(reply)
            except BallotError as error:
                self._no_report(node, f"sent an illegal report: {error}", illegal=True)
        return {client: reports[client] for client in questions if client in reports}

    def _hint(self, client: int) -> ConfigRecord:
        """Return what a rehearsed attack takes a validator to know."""
        lies = self.adversary is not None and client in self.adversary.clients
        return rehearsal(self._open.entropy) if lies else ConfigRecord()

    def _no_report(self, node: int, reason: str, *, illegal: bool = False) -> None:
        logger.warning("No report from node %d: it %s", node, reason)
        if illegal:
            self.illegal[node] += 1

    def _poll(self, grid: Grid, state: FRLState, config: ConfigRecord) -> OpenRound:
        """Collect ballots, repeating the round until there are enough legal ones."""
        arrays = as_record(self.method.broadcast(state))
        for self._retry in range(self.max_retries + 1):
            questions = list(self.configure_train(state.round + 1, arrays, config, grid))
            self._gather(exchange(grid, questions, self.deadline, self._missing))
            if self._open.votes >= self.min_votes:
                self._retry = 0
                return self._open
            logger.warning(
                "Round %d has %d legal ballots but needs %d.",
                state.round + 1,
                self._open.votes,
                self.min_votes,
            )
        raise TrainingError(
            f"round {state.round + 1} was run {self.max_retries + 1} times and never had "
            f"{self.min_votes} legal ballots. Last failures: {'; '.join(_sentences(self._open.refused))}"
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Draw the clients of a round (Algorithm 2, line 6) and return a message to each."""
        self.directory.wait(grid, self.min_votes, self.startup_timeout, self._excluded())
        nodes = self._askable()
        broadcast = from_record(arrays)
        received = self.method.receive(broadcast)
        clients = self._select(list(nodes), server_round)
        self._opened = OpenRound(
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
            logger.warning("Round %d: half or more of the online clients are malicious.", server_round)
            return select(clients, count, *key, retry=self._retry)

    def aggregate_train(
        self,
        server_round: int,  # noqa: ARG002
        replies: Iterable[Message],
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Count the ballots and vote."""
        self._gather(replies)
        opened = self._open
        if opened.votes < self.min_votes:
            return None, None
        state = self.method.aggregate(opened.state, opened.messages)
        return as_record(self.method.broadcast(state)), _train_metrics(opened)

    def _gather(self, replies: Iterable[Message]) -> None:
        """Count each reply as it arrives, without keeping it."""
        opened = self._open
        for reply in replies:
            node = reply.metadata.src_node_id
            if node not in opened.clients or objected(reply, node, self._missing):
                continue
            try:
                ballot, loss = read_answer(reply)
                opened.upload_bytes += len(ballot)
                opened.messages.add(opened.clients[node], ballot)
            except BallotError as error:
                self._missing(node, f"sent an illegal reply: {error}", illegal=True)
                continue
            if loss is not None:
                opened.losses[opened.clients[node]] = loss

    def _missing(self, node: int, reason: str, *, illegal: bool = False) -> None:
        """Record why a client's vote does not count."""
        opened = self._open
        client = opened.clients.get(node)
        logger.warning("Round %d, client %s (node %d): %s", opened.state.round + 1, client, node, reason)
        if client is not None and client not in opened.messages.voters:
            opened.refused[client] = reason
        if illegal:
            self.illegal[node] += 1
            if self.illegal[node] == self.strikes:
                logger.warning(
                    "Client %s (node %d) sent too many illegal replies and is excluded.", client, node
                )

    @property
    def _open(self) -> OpenRound:
        if self._opened is None:
            raise TrainingError("no round is open: call configure_train first")
        return self._opened

    def _askable(self) -> dict[int, int]:
        """Return the nodes of all clients that may be selected."""
        excluded = self._excluded()
        return {client: node for client, node in self.directory.nodes.items() if node not in excluded}

    def _excluded(self) -> set[int]:
        """Return the nodes that are never selected: too many illegal replies, or no data."""
        banned = {node for node, count in self.illegal.items() if count >= self.strikes}
        return banned | {
            node for node, client in self.directory.numbers.items() if client in self.without_data
        }

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask all clients for the model's accuracy on their data."""
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
        """Return the mean of the accuracies that clients report, with equal weight."""
        reported = [metric(reply, ACCURACY, 1.0) for reply in replies if reply.has_content()]
        known = [accuracy for accuracy in reported if accuracy is not None]
        return MetricRecord({ACCURACY: float(np.mean(known)), "clients": len(known)}) if known else None

    def _silent(self, node: int, reason: str, *, illegal: bool = False) -> None:  # noqa: ARG002
        logger.warning("No evaluation from node %d: it %s", node, reason)


def _train_metrics(opened: OpenRound) -> MetricRecord:
    loss = opened.mean_loss(opened.clients.values())
    values: dict[str, Any] = {"votes": opened.votes, "refused": len(opened.refused)}
    return MetricRecord(values if loss is None else {LOSS: loss, **values})


def _sentences(refused: dict[int, str]) -> list[str]:
    return [f"client {client} {reason}" for client, reason in refused.items()][:5]
