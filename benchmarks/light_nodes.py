"""Many nodes in one process: they speak to a real SuperLink and answer at once, without training.

A SuperNode with its ClientApp takes 300 MB; 64 of them do not fit on a small machine. What these send is what
those would: legal ballots, each from a node of its own.
"""

from __future__ import annotations

import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, cast

from flwr.app import Message, MessageType
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import (
    inflate_object_from_contents,
    pull_objects,
    push_objects,
)
from flwr.supernode.fleet_http_connection import http_request_response

from fedrank.experiment.build import build
from fedrank.experiment.config import load_file
from fedrank.flower.directory import claim
from fedrank.flower.wire import answer, read_question
from fedrank.methods import FRL

turn = threading.Lock()
"""One node works at a time: the server is what is measured."""


def be_a_node(address: str, number: int, method: FRL) -> None:
    with http_request_response(address, insecure=True) as connection:
        receive = connection[1]
        while True:
            received = receive()
            if received is None:
                time.sleep(0.5)
                continue
            with turn:
                handle(connection, *received, number, method)


def handle(connection: Any, envelope: Message, tree: Any, number: int, method: FRL) -> None:
    _, _, send, _, _, pull_object, push_object, confirm = connection
    run, message_id = envelope.metadata.run_id, envelope.metadata.message_id
    ids = [node.object_id for node in iterate_object_tree(tree)]
    contents = pull_objects(ids, partial(pull_object, run))
    confirm(run, message_id)
    question = cast("Message", inflate_object_from_contents(message_id, contents))
    question.metadata.__dict__["_message_id"] = message_id
    reply = answered(question, number, method)
    with no_object_id_recompute():
        reply.metadata.__dict__["_message_id"] = reply.object_id
        wanted, session = send(reply, get_object_tree(reply), 0.0)
        objects = get_all_nested_objects(reply)
        push_objects(objects, push_object_fn=partial(push_object, run, session), object_ids_to_push=wanted)


def answered(question: Message, number: int, method: FRL) -> Message:
    if question.metadata.message_type == MessageType.QUERY:
        return Message(claim(number), reply_to=question)
    broadcast, number = read_question(question)
    received = method.receive(broadcast)
    ballot = method.encode(received, received.ranking, number)
    return Message(answer(ballot, 0.0, 1), reply_to=question)


def main() -> None:
    address, nodes, config, data_dir = sys.argv[1:]
    method = build(load_file(Path(config)), Path(data_dir)).method
    assert isinstance(method, FRL)
    for number in range(int(nodes)):
        threading.Thread(target=be_a_node, args=(address, number, method), daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
