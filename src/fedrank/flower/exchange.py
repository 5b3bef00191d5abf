"""Sends messages to nodes and reads the replies as they arrive.

Flower's own `send_and_receive` returns all replies together, but a server that discards each ballot once it
is counted must not hold them all. It also waits, for hours, for every reply that has begun to arrive; one
client that never completes its upload must not hold up the others.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Protocol

from flwr.app import Message
from flwr.serverapp import Grid

from fedrank.errors import BallotError

logger = logging.getLogger("flwr")

PAUSE = 0.25
"""Seconds between polls for a reply."""
WORKERS = 2
"""Number of threads that pull replies, and so the most replies in memory at once."""
STUCK = 5.0
"""Seconds after which a thread that still waits for one reply is replaced."""


class Fault(Protocol):
    """Callback for a node without a valid reply, and the reason. `illegal`: it broke the protocol."""

    def __call__(self, node: int, reason: str, *, illegal: bool = False) -> None: ...


def exchange(grid: Grid, messages: Iterable[Message], limit: float, fault: Fault) -> Iterator[Message]:
    """Send messages and yield the replies as they arrive, for at most `limit` seconds."""
    end = time.monotonic() + limit
    waiting: dict[str, int] = {}
    for message in messages:
        node = message.metadata.dst_node_id
        sent = push(grid, message)
        if sent is None:
            fault(node, "is offline")
        else:
            waiting[sent] = node
    with ReplyPoller(grid) as poller:
        for question in waiting:
            poller.add(question)
        while waiting and (left := end - time.monotonic()) > 0:
            found = poller.take(left)
            if found is None:
                continue
            question, replies = found
            node = waiting.pop(question)
            if isinstance(replies, BallotError):
                fault(node, str(replies), illegal=True)
                continue
            if not objected(replies[0], node, fault):
                yield replies[0]
            for _ in replies[1:]:
                fault(node, "replied twice", illegal=True)
    for node in waiting.values():
        fault(node, f"did not reply within {limit:g} seconds")


def push(grid: Grid, message: Message) -> str | None:
    """Send one message; return its id, or None if its node is offline.

    If the SuperLink restarts in the middle, it and the node still wait for the rest of the message, but
    Flower gives up. Sending the same message again completes it; a new one would reach a node that is
    still waiting for the old one.
    """
    try:
        return _push(grid, message)
    except Exception as error:
        logger.warning("Cannot send a message (%s); sending it again.", printable(repr(error)))
        return _push(grid, message)


def _push(grid: Grid, message: Message) -> str | None:
    return next((sent for sent in grid.push_messages([message]) if sent), None)


def objected(reply: Message, node: int, fault: Fault) -> bool:
    """Report what is wrong with a reply, if anything is.

    Errors from the SuperLink do not name the node, so the caller passes it.
    """
    if reply.has_error():
        fault(node, failure(reply))
    elif reply.metadata.src_node_id != node:
        fault(node, f"got its reply from another node, {reply.metadata.src_node_id}", illegal=True)
    elif not reply.has_content():
        fault(node, "sent a reply without content", illegal=True)
    else:
        return False
    return True


def failure(message: Message) -> str:
    """Describe an error in one line: of a client's traceback, the exception."""
    lines = (message.error.reason or "").strip().splitlines()
    said = printable(lines[-1].strip()) if lines else "no reason given"
    return f"failed (code {message.error.code}): {said}"


def printable(text: str) -> str:
    """Return a client's text, shortened and without control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:300])


class ReplyPoller:
    """Pulls replies in background threads.

    Pulls each reply separately, so that a failure can be attributed to its sender. Abandons a thread that
    waits for a reply that never completes.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self._questions: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._open: set[str] = set()
        self._arrived: queue.Queue[tuple[str, list[Message] | BallotError]] = queue.Queue(maxsize=1)
        self._closed = threading.Event()
        self._began: dict[threading.Thread, float] = {}

    def __enter__(self) -> ReplyPoller:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()

    def add(self, question: str) -> None:
        """Start polling for the reply to a message."""
        self._open.add(question)
        self._questions.put(question)

    def take(self, limit: float) -> tuple[str, list[Message] | BallotError] | None:
        """Return the next reply and the id of its message, or None after `limit` seconds."""
        now = time.monotonic()
        free = sum(now - began < STUCK for began in self._began.values())
        for _ in range(min(WORKERS, len(self._open)) - free):
            thread = threading.Thread(target=self._work, daemon=True)
            self._began[thread] = now
            thread.start()
        try:
            question, replies = self._arrived.get(timeout=max(0.0, min(limit, 1.0)))
        except queue.Empty:
            return None
        if question not in self._open:
            return None
        self._open.discard(question)
        return question, replies

    def _work(self) -> None:
        thread = threading.current_thread()
        while self._open and not self._closed.is_set():
            self._began[thread] = time.monotonic()
            try:
                question = self._questions.get(timeout=PAUSE)
            except queue.Empty:
                continue
            if question not in self._open:
                continue
            replies = pull(self.grid, question)
            if replies:
                self._hand_over(question, replies)
            else:
                self._questions.put(question)
                self._closed.wait(PAUSE * WORKERS / max(1, len(self._open)))
        self._began.pop(thread, None)

    def _hand_over(self, question: str, replies: list[Message] | BallotError) -> None:
        while not self._closed.is_set():
            try:
                self._arrived.put((question, replies), timeout=PAUSE)
            except queue.Full:
                continue
            return


def pull(grid: Grid, question: str) -> list[Message] | BallotError:
    """Return the replies to a message, or why they cannot be read.

    Flower unpacks what a client sends, and may raise any exception if it is malformed; some input even makes
    the SuperLink fail. Flower itself retries lost connections. A restart of the SuperLink can also corrupt an
    honest reply, so only a second failure counts.
    """
    with contextlib.suppress(Exception):
        return list(grid.pull_messages([question]))
    try:
        return list(grid.pull_messages([question]))
    except Exception as error:
        return BallotError(f"sent a reply that cannot be unpacked ({printable(repr(error))})")
