"""Asking nodes and reading their answers as they arrive.

Flower's own `send_and_receive` returns all replies together; a server that forgets each ballot once it is
counted must not wait for that. And it waits for every answer that has begun to arrive, for hours; one client
that never ends its upload must not hold up the others.
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
"""Seconds between two looks at whether an answer has arrived."""
WORKERS = 2
"""How many threads pull answers, and so how many answers are in memory together."""
STUCK = 5.0
"""Seconds after which a thread that still waits for one answer is replaced by another."""


class Fault(Protocol):
    """Is told of a node that has not answered as it should, and why. `illegal`: it broke the rules."""

    def __call__(self, node: int, reason: str, *, illegal: bool = False) -> None: ...


def exchange(grid: Grid, messages: Iterable[Message], limit: float, fault: Fault) -> Iterator[Message]:
    """Send messages and yield the answers as they arrive, until all are there or `limit` seconds are over."""
    end = time.monotonic() + limit
    waiting: dict[str, int] = {}
    for message in messages:
        node = message.metadata.dst_node_id
        sent = push(grid, message)
        if sent is None:
            fault(node, "is no longer there")
        else:
            waiting[sent] = node
    with ReplyPoller(grid) as puller:
        for question in waiting:
            puller.add(question)
        while waiting and (left := end - time.monotonic()) > 0:
            found = puller.take(left)
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
                fault(node, "answered twice", illegal=True)
    for node in waiting.values():
        fault(node, f"did not answer within {limit:g} seconds")


def push(grid: Grid, message: Message) -> str | None:
    """Send one message; return what its answer is asked for by, or None if its node is not there.

    A SuperLink that is restarted in the middle knows of the message and waits for the rest of it, as its node
    will, but Flower gives up. The same message, sent again, is completed; a new one would come to a node that
    still waits for the old.
    """
    try:
        return _push(grid, message)
    except Exception as error:
        logger.warning("A message could not be sent (%s); it is sent again.", printable(repr(error)))
        return _push(grid, message)


def _push(grid: Grid, message: Message) -> str | None:
    return next((sent for sent in grid.push_messages([message]) if sent), None)


def objected(reply: Message, node: int, fault: Fault) -> bool:
    """Report what is wrong with a reply, if anything is.

    Errors that the SuperLink makes do not name the node; the question does.
    """
    if reply.has_error():
        fault(node, failure(reply))
    elif reply.metadata.src_node_id != node:
        fault(node, f"was answered for by node {reply.metadata.src_node_id}", illegal=True)
    elif not reply.has_content():
        fault(node, "sent an answer without content", illegal=True)
    else:
        return False
    return True


def failure(message: Message) -> str:
    """Say what an error is about, in one line: of a client's traceback the last, the exception."""
    lines = (message.error.reason or "").strip().splitlines()
    said = printable(lines[-1].strip()) if lines else "no reason is given"
    return f"failed (code {message.error.code}): {said}"


def printable(text: str) -> str:
    """Return what may be shown of a text that a client wrote."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:300])


class ReplyPoller:
    """Pulls answers in threads of its own.

    Each answer is pulled alone, so that it is known whose fault it is if that fails. A thread that waits
    for an answer that never ends is left behind.
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
        """Wait for the answer to a question from now on."""
        self._open.add(question)
        self._questions.put(question)

    def take(self, limit: float) -> tuple[str, list[Message] | BallotError] | None:
        """Return an answer that has arrived, within `limit` seconds if there is one, and its question."""
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
    """Return what has come in answer to a question, or why it cannot be read.

    What a client sends is unpacked by Flower, which raises almost anything if it is malformed; some of it
    even makes the SuperLink fail. A connection that is lost Flower tries again by itself. As a restart of the
    SuperLink may spoil an honest answer, too, a second failure counts.
    """
    with contextlib.suppress(Exception):
        return list(grid.pull_messages([question]))
    try:
        return list(grid.pull_messages([question]))
    except Exception as error:
        return BallotError(f"sent what cannot be unpacked ({printable(repr(error))})")
