"""The roll: which nodes are there, and which client each of them is."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedrank.errors import BallotError, TrainingError
from fedrank.flower.exchange import PAUSE, ReplyPoller, objected, push
from fedrank.flower.wire import CONFIG, NUMBER

ANSWER_LIMIT = 600.0
"""Seconds for which an answer is waited for."""
AGAIN = 60.0
"""Seconds after which a node that has not said who it is, or not sensibly, is asked again."""

logger = logging.getLogger("flwr")


class NodeDirectory:
    """Gives every node the number of the client that it is.

    A node may claim a number (Flower's `partition-id`), so that a run over a network draws the same
    clients as a local one. Whoever claims nothing, or a number that a node holds already, is numbered by
    its node id: a false claim takes nobody's vote.
    """

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self._questions: dict[str, int] = {}
        self._last_asked: dict[int, float] = {}
        self._puller: ReplyPoller | None = None

    def refresh(self, grid: Grid) -> None:
        """Strike out nodes that are gone, ask new ones who they are, and write down who has answered."""
        self._puller = self._puller or ReplyPoller(grid)
        online = set(grid.get_node_ids())
        for node in self.numbers.keys() - online:
            logger.warning("Client %d (node %d) is gone.", self.numbers.pop(node), node)
            self._last_asked.pop(node, None)
        now = time.monotonic()
        for node in sorted(online - self.numbers.keys()):
            if now - self._last_asked.get(node, -AGAIN) < AGAIN:
                continue
            self._last_asked[node] = now
            content = RecordDict({CONFIG: ConfigRecord()})
            sent = push(grid, Message(content, node, MessageType.QUERY, ttl=ANSWER_LIMIT))
            if sent is not None:
                self._questions[sent] = node
                self._puller.add(sent)
        while self._questions and (found := self._puller.take(PAUSE)) is not None:
            self._hear(self._questions.pop(found[0]), found[1])

    def _hear(self, node: int, replies: list[Message] | BallotError) -> None:
        if isinstance(replies, BallotError):
            self._fault(node, str(replies))
        elif node not in self.numbers and not objected(replies[0], node, self._fault):
            self.numbers[node] = self._number(node, replies[0])
            logger.info("Client %d is node %d.", self.numbers[node], node)

    def _fault(self, node: int, reason: str, *, illegal: bool = False) -> None:  # noqa: ARG002
        logger.warning("Node %d was asked which client it is: %s", node, reason)

    def _number(self, node: int, reply: Message) -> int:
        config = reply.content.get(CONFIG)
        claimed = config.get(NUMBER) if isinstance(config, ConfigRecord) else None
        if isinstance(claimed, bool) or not isinstance(claimed, int) or not 0 <= claimed < 2**32:
            return node
        if claimed in self.numbers.values():
            logger.warning("Node %d claims to be client %d, which another node is already.", node, claimed)
            return node
        return claimed

    def wait(self, grid: Grid, count: int, limit: float, excluded: Collection[int] = ()) -> None:
        """Wait until so many clients are there whose nodes are not excluded, at most `limit` seconds."""
        end = time.monotonic() + limit
        self.refresh(grid)
        if len(self.numbers.keys() - excluded) < count:
            logger.info("Waiting for clients: %d of %d are there.", len(self.numbers), count)
        while (there := len(self.numbers.keys() - excluded)) < count:
            if time.monotonic() >= end:
                others = f", and {len(excluded)} that are not asked" if excluded else ""
                raise TrainingError(
                    f"after {limit:g} seconds {there} of {count} clients are there{others}. "
                    "Start more SuperNodes (a simulation's num-supernodes), ask for fewer, or wait longer."
                )
            time.sleep(PAUSE)
            self.refresh(grid)

    @property
    def nodes(self) -> dict[int, int]:
        """The node of every client, in the order of the clients' numbers."""
        return {number: node for node, number in sorted(self.numbers.items(), key=lambda item: item[1])}


def claim(number: int | None) -> RecordDict:
    """Return what a node answers when it is asked who it is."""
    return RecordDict({CONFIG: ConfigRecord({} if number is None else {NUMBER: number})})
