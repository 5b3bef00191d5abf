"""A ClientApp that misbehaves as its node's `fault` says, to be run by a real SuperNode."""

import time

from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp import ClientApp

from fedrank.flower.client_app import voter
from fedrank.flower.directory import claim
from fedrank.flower.wire import BALLOT, as_record

app = ClientApp()


@app.query()
def enrol(message: Message, context: Context) -> Message:
    return Message(claim(context.node_config["partition-id"]), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    fault, round_number = context.node_config.get("fault"), int(message.metadata.group_id)
    if fault == "hang":
        time.sleep(3600)
    if fault == "late" and round_number == 1:
        time.sleep(float(context.run_config["deadline"]) + 3)
    if fault == "crash":
        raise ValueError("no data today")
    reply = voter(context).vote(message)
    if fault == "garbage":
        reply.content[BALLOT] = as_record(b"garbage")
    if fault == "replay":  # the first ballot, in every round
        context.state.array_records.setdefault("first", reply.content[BALLOT])
        reply.content[BALLOT] = ArrayRecord(dict(context.state.array_records["first"]))
    return reply
