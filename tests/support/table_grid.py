"""A Grid without processes: nodes are functions, and a test decides what each of them does."""

import threading
from collections.abc import Callable, Iterable
from uuid import uuid4

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

Node = Callable[[Message], list[Message]]


class TableGrid(Grid):
    """Asks a node when its answer is pulled, and counts how many answers a pull brings at most."""

    def __init__(self, nodes: dict[int, Node]) -> None:
        self.nodes = nodes
        self.sent: dict[str, Message] = {}
        self.asked: list[int] = []
        self.most_at_once = 0
        self.lock = threading.Lock()

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        found = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(uuid4())
            if message.metadata.dst_node_id not in self.nodes:
                continue
            self.sent[message.metadata.message_id] = message
            if message.metadata.message_type == "train":
                self.asked.append(message.metadata.dst_node_id)
            found.append(message.metadata.message_id)
        return found

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        answers = []
        for message_id in message_ids:
            question = self.sent.get(message_id)
            if question is not None:
                node = self.nodes[question.metadata.dst_node_id]
                if getattr(node, "blocks", False):
                    node(question)
                with self.lock:  # a test's clients share their network
                    replies = node(question)
                if replies:
                    self.sent.pop(message_id, None)
                answers += replies
        self.most_at_once = max(self.most_at_once, len(answers))
        return answers

    def send_and_receive(self, messages, *, timeout=None):
        return list(self.pull_messages(self.push_messages(messages)))


def node_of(app: ClientApp, number: int, node_id: int, run_config=None, **node_config) -> Node:
    """Return a node that runs a ClientApp, with `partition-id` as Flower's simulation sets it."""
    config = {"partition-id": number, **node_config}

    def answer(message: Message) -> list[Message]:
        context = Context(1, node_id, config, RecordDict(), dict(run_config or {}))
        return [app(message, context)]

    return answer
