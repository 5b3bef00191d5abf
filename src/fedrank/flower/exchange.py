"""Asking nodes and reading their answers as they arrive.

Flower's own `send_and_receive` returns all replies together; a server that forgets each ballot once it is
counted must not wait for that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from flwr.app import Message
from flwr.serverapp import Grid

AT_ONCE = 4
"""How many answers are in memory together at most."""
PAUSE = 0.25
"""Seconds between two looks at what has arrived."""

Fault = Callable[[int, str], None]
"""Is told of a node that has not answered as it should, and why."""


def exchange(grid: Grid, messages: Iterable[Message], limit: float, fault: Fault) -> Iterator[Message]:
    """Send messages and yield the answers as they arrive, until all are there or `limit` seconds are over."""
    end = time.monotonic() + limit
    asked: dict[str, int] = {}
    for message in messages:
        node = message.metadata.dst_node_id
        sent = [message_id for message_id in grid.push_messages([message]) if message_id]
        if sent:
            asked[sent[0]] = node
        else:
            fault(node, "is no longer there")
    waiting = dict(asked)
    while waiting and time.monotonic() < end:
        questions = list(waiting)
        for begin in range(0, len(questions), AT_ONCE):
            for message in grid.pull_messages(questions[begin : begin + AT_ONCE]):
                about = message.metadata.reply_to_message_id
                if about not in waiting:
                    fault(asked.get(about, message.metadata.src_node_id), "answered twice")
                    continue
                # errors that the SuperLink makes do not name the node: the question does
                node = waiting.pop(about)
                if message.has_error():
                    fault(node, failure(message))
                elif message.metadata.src_node_id != node:
                    fault(node, f"was answered for by node {message.metadata.src_node_id}")
                else:
                    yield message
        if waiting:
            time.sleep(min(PAUSE, max(0.0, end - time.monotonic())))
    for node in waiting.values():
        fault(node, f"did not answer within {limit:g} seconds")


def failure(message: Message) -> str:
    """Say what an error is about, in one line: of a client's traceback the last, the exception."""
    lines = (message.error.reason or "").strip().splitlines()
    said = lines[-1].strip()[:300] if lines else "no reason is given"
    return f"failed (code {message.error.code}): {said}"
