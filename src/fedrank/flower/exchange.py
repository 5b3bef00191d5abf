"""Asking nodes and reading their answers as they arrive.

Flower's own `send_and_receive` returns all replies together; a server that forgets each ballot once it is
counted must not wait for that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import httpx
from flwr.app import Message
from flwr.serverapp import Grid

from fedrank.errors import BallotError

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
        for question, node in list(waiting.items()):
            try:
                replies = pull(grid, question)
            except BallotError as error:
                del waiting[question]
                fault(node, str(error))
                continue
            for reply in replies:
                first = waiting.pop(question, None) is not None
                wrong = objection(reply, node) if first else "answered twice"
                if wrong:
                    fault(node, wrong)
                else:
                    yield reply
        if waiting:
            time.sleep(min(PAUSE, max(0.0, end - time.monotonic())))
    for node in waiting.values():
        fault(node, f"did not answer within {limit:g} seconds")


def pull(grid: Grid, question: str) -> list[Message]:
    """Return what has come in answer to one question: alone, so that it is known whose fault it is.

    What a client sends is unpacked by Flower, which raises almost anything if it is malformed.
    """
    try:
        return list(grid.pull_messages([question]))
    except httpx.HTTPError:
        raise  # the SuperLink's fault, not the client's
    except Exception as error:
        raise BallotError(f"sent what cannot be unpacked ({error!r:.300})") from error


def objection(reply: Message, node: int) -> str | None:
    """Say what is wrong with a reply, if anything is.

    Errors that the SuperLink makes do not name the node; the question does.
    """
    if reply.has_error():
        return failure(reply)
    if reply.metadata.src_node_id != node:
        return f"was answered for by node {reply.metadata.src_node_id}"
    return None if reply.has_content() else "sent an answer without content"


def failure(message: Message) -> str:
    """Say what an error is about, in one line: of a client's traceback the last, the exception."""
    lines = (message.error.reason or "").strip().splitlines()
    said = lines[-1].strip()[:300] if lines else "no reason is given"
    return f"failed (code {message.error.code}): {said}"
