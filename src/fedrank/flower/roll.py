"""The roll: which nodes are there, and which client each of them is."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedrank.errors import BallotError, TrainingError
from fedrank.flower.exchange import PAUSE, objection, pull
from fedrank.flower.wire import CONFIG, NUMBER

ANSWER_LIMIT = 600.0
"""Seconds after which a node that has not said who it is is asked again."""

logger = logging.getLogger("flwr")


@dataclass(frozen=True)
class Asked:
    """A node that was asked who it is: the question, and until when its answer is waited for."""

    question: str | None
    until: float


class Roll:
    """Gives every node the number of the client that it is.

    A node may claim a number (Flower's `partition-id`), so that a run over a network draws the same
    clients as a local one. Whoever claims nothing, or a number that a node holds already, is numbered by
    its node id: a false claim takes nobody's vote.
    """

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self._asked: dict[int, Asked] = {}

    def refresh(self, grid: Grid) -> None:
        """Strike out nodes that are gone, ask new ones who they are, and write down who has answered."""
        online = set(grid.get_node_ids())
        for node in self.numbers.keys() - online:
            logger.warning("Client %d (node %d) is gone.", self.numbers.pop(node), node)
        now = time.monotonic()
        self._asked = {
            node: asked for node, asked in self._asked.items() if node in online and now < asked.until
        }
        for node in sorted(online - self.numbers.keys() - self._asked.keys()):
            content = RecordDict({CONFIG: ConfigRecord()})
            message = Message(content, node, MessageType.QUERY, ttl=ANSWER_LIMIT)
            sent = [message_id for message_id in grid.push_messages([message]) if message_id]
            self._asked[node] = Asked(sent[0] if sent else None, now + ANSWER_LIMIT)
        for node, asked in list(self._asked.items()):
            if asked.question is not None:
                self._hear(grid, node, asked.question)

    def _hear(self, grid: Grid, node: int, question: str) -> None:
        """See whether a node has answered; one that answers nonsense is not listened to for a while."""
        try:
            replies = pull(grid, question)
            wrong = objection(replies[0], node) if replies else None
        except BallotError as error:
            replies, wrong = [], str(error)
        if wrong:
            logger.warning("Node %d was asked which client it is: %s", node, wrong)
            self._asked[node] = replace(self._asked[node], question=None)
        elif replies:
            del self._asked[node]
            self.numbers[node] = self._number(node, replies[0])
            logger.info("Client %d is node %d.", self.numbers[node], node)

    def _number(self, node: int, reply: Message) -> int:
        config = reply.content.get(CONFIG)
        claimed = config.get(NUMBER) if isinstance(config, ConfigRecord) else None
        if isinstance(claimed, bool) or not isinstance(claimed, int) or not 0 <= claimed < 2**32:
            return node
        if claimed in self.numbers.values():
            logger.warning("Node %d claims to be client %d, which another node is already.", node, claimed)
            return node
        return claimed

    def wait(self, grid: Grid, count: int, limit: float) -> None:
        """Wait until so many clients are there, at most `limit` seconds."""
        end = time.monotonic() + limit
        self.refresh(grid)
        if len(self.numbers) < count:
            logger.info("Waiting for clients: %d of %d are there.", len(self.numbers), count)
        while len(self.numbers) < count:
            if time.monotonic() >= end:
                raise TrainingError(
                    f"after {limit:g} seconds only {len(self.numbers)} of {count} clients are there. "
                    "Start more SuperNodes, ask for fewer (min-nodes), or wait longer (wait)."
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
