"""What crosses the network: the bytes of ballots and broadcasts, as they are, in Flower's records.

A question to a client holds a broadcast and the number that the client votes under; its answer holds a
ballot and metrics. Nothing is pickled, and nothing that a client sends is believed.
"""

from __future__ import annotations

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from fedrank.errors import BallotError

BROADCAST, BALLOT, CONFIG, METRICS = "broadcast", "ballot", "config", "metrics"
NUMBER = "client-number"
LOSS, EXAMPLES, ACCURACY = "train-loss", "num-examples", "accuracy"
STYPE = "fedrank.wire"
LARGEST_LOSS = 1000.0


def as_record(content: bytes) -> ArrayRecord:
    """Return bytes as Flower sends them."""
    return ArrayRecord({"bytes": Array("uint8", (len(content),), STYPE, content)})


def from_record(record: object) -> bytes:
    """Return the bytes of a record that `as_record` made; anything else raises BallotError."""
    if not isinstance(record, ArrayRecord) or list(record) != ["bytes"]:
        raise BallotError("a record of one array of bytes was asked for")
    array = record["bytes"]
    if array.stype != STYPE:
        raise BallotError(f"bytes of type {STYPE!r} were asked for, this is {array.stype[:40]!r}")
    return array.data


def question(broadcast: ArrayRecord, number: int, config: ConfigRecord) -> RecordDict:
    """Return what the server asks one client."""
    own = ConfigRecord({**config, NUMBER: number.to_bytes(8, "little")})
    return RecordDict({BROADCAST: broadcast, CONFIG: own})


def read_question(message: Message) -> tuple[bytes, int]:
    """Return the broadcast of a question and the number that the client votes under."""
    content = message.content
    number = content.config_records[CONFIG][NUMBER]
    if not isinstance(number, bytes):
        raise BallotError("the question does not say which number to vote under")
    return from_record(content.array_records[BROADCAST]), int.from_bytes(number, "little")


def answer(ballot: bytes, loss: float, examples: int) -> RecordDict:
    """Return what a client sends back."""
    return RecordDict({BALLOT: as_record(ballot), METRICS: MetricRecord({LOSS: loss, EXAMPLES: examples})})


def read_answer(message: Message) -> tuple[bytes, float | None]:
    """Return the ballot of an answer, and the training loss if there is a sensible one."""
    if set(message.content) != {BALLOT, METRICS}:
        raise BallotError("an answer holds a ballot and metrics, and nothing else")
    return from_record(message.content[BALLOT]), metric(message, LOSS, LARGEST_LOSS)


def metric(message: Message, name: str, largest: float) -> float | None:
    """Return a number from 0 to `largest` that a client reports, unless it is none. It may be a lie."""
    record = message.content.get(METRICS)
    value = record.get(name) if isinstance(record, MetricRecord) else None
    return value if isinstance(value, float) and 0 <= value <= largest else None
