"""The directory of nodes: which nodes are online, and which client each of them is."""

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
"""Seconds to wait for a reply."""
AGAIN = 60.0
"""Seconds before a node without a valid reply is asked again."""

logger = logging.getLogger("flwr")


class NodeDirectory:
    """Maps every node to its client number.

    A node may claim a number (Flower's `partition-id`), so that a run over a network draws the same
    clients as a local run. A node that claims no number, or a number already taken, gets its node id
    instead: a false claim cannot take another client's vote.
    """

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self._questions: dict[str, int] = {}
        self._last_asked: dict[int, float] = {}
        self._poller: ReplyPoller | None = None

    def refresh(self, grid: Grid) -> None:
        """Remove nodes that went offline, query new ones, and process the replies."""
        self._poller = self._poller or ReplyPoller(grid)
        online = set(grid.get_node_ids())
        for node in self.numbers.keys() - online:
            logger.warning("Client %d (node %d) went offline.", self.numbers.pop(node), node)
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
                self._poller.add(sent)
        while self._questions and (found := self._poller.take(PAUSE)) is not None:
            self._hear(self._questions.pop(found[0]), found[1])

    def _hear(self, node: int, replies: list[Message] | BallotError) -> None:
        if isinstance(replies, BallotError):
            self._fault(node, str(replies))
        elif node not in self.numbers and not objected(replies[0], node, self._fault):
            self.numbers[node] = self._number(node, replies[0])
            logger.info("Client %d is node %d.", self.numbers[node], node)

    def _fault(self, node: int, reason: str, *, illegal: bool = False) -> None:  # noqa: ARG002
        logger.warning("Cannot identify node %d: it %s", node, reason)

    def _number(self, node: int, reply: Message) -> int:
        config = reply.content.get(CONFIG)
        claimed = config.get(NUMBER) if isinstance(config, ConfigRecord) else None
        if isinstance(claimed, bool) or not isinstance(claimed, int) or not 0 <= claimed < 2**32:
            return node
        if claimed in self.numbers.values():
            logger.warning("Node %d claims to be client %d, but another node already is.", node, claimed)
            return node
        return claimed

    def wait(self, grid: Grid, count: int, limit: float, excluded: Collection[int] = ()) -> None:
        """Wait up to `limit` seconds for `count` clients whose nodes are not excluded."""
        end = time.monotonic() + limit
        self.refresh(grid)
        if len(self.numbers.keys() - excluded) < count:
            logger.info("Waiting for clients: %d of %d are online.", len(self.numbers), count)
        while (online := len(self.numbers.keys() - excluded)) < count:
            if time.monotonic() >= end:
                others = f", not counting {len(excluded)} excluded" if excluded else ""
                raise TrainingError(
                    f"{online} of {count} clients are online after {limit:g} seconds{others}. Start more "
                    "SuperNodes (num-supernodes in a simulation), require fewer, or raise startup-timeout."
                )
            time.sleep(PAUSE)
            self.refresh(grid)

    @property
    def nodes(self) -> dict[int, int]:
        """The node of every client, sorted by client number."""
        return {number: node for node, number in sorted(self.numbers.items(), key=lambda item: item[1])}


def claim(number: int | None) -> RecordDict:
    """Return a node's reply to the query for its client number."""
    return RecordDict({CONFIG: ConfigRecord({} if number is None else {NUMBER: number})})
