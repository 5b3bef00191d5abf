"""The network format: ballots and broadcasts as raw bytes in Flower's records.

A question to a client contains a broadcast and its client number; the answer contains a ballot and metrics.
Nothing is pickled, and everything that a client sends is checked.
"""

from __future__ import annotations

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from fedrank.errors import BallotError

BROADCAST, BALLOT, CONFIG, METRICS = "broadcast", "ballot", "config", "metrics"
QUESTION, REPORT, MEASURE = "question", "report", "measure"
NUMBER = "client-number"
LOSS, EXAMPLES, ACCURACY = "train-loss", "num-examples", "accuracy"
ENTROPY = "entropy"
STYPE = "fedrank.wire"
LARGEST_LOSS = 1000.0


def as_record(content: bytes) -> ArrayRecord:
    """Wrap bytes in a Flower record."""
    return ArrayRecord({"bytes": Array("uint8", (len(content),), STYPE, content)})


def from_record(record: object) -> bytes:
    """Return the bytes of a record from `as_record`; raise BallotError for any other record."""
    if not isinstance(record, ArrayRecord) or list(record) != ["bytes"]:
        raise BallotError("expected a record with one array of bytes")
    array = record["bytes"]
    if array.stype != STYPE:
        raise BallotError(f"expected an array of type {STYPE!r}, got {array.stype[:40]!r}")
    return array.data


def question(content: ArrayRecord, number: int, config: ConfigRecord, name: str = BROADCAST) -> RecordDict:
    """Return the server's question to one client: a broadcast, or candidates to measure."""
    own = ConfigRecord({**config, NUMBER: number.to_bytes(8, "little")})
    return RecordDict({name: content, CONFIG: own})


def read_question(message: Message, name: str = BROADCAST) -> tuple[bytes, int]:
    """Return the content and the client number of a question."""
    content = message.content
    number = content.config_records[CONFIG][NUMBER]
    if not isinstance(number, bytes):
        raise BallotError("the question contains no client number")
    return from_record(content.array_records[name]), int.from_bytes(number, "little")


def rehearsal(entropy: int) -> ConfigRecord:
    """Return what the server of a rehearsed attack tells malicious validators, who are to know the trials."""
    return ConfigRecord({ENTROPY: str(entropy)})


def rehearsed_entropy(message: Message) -> int:
    """Return the entropy of a round's ballots; 0 if the server rehearses no attack and so does not say."""
    return int(str(message.content.config_records[CONFIG].get(ENTROPY, 0)))


def answer(ballot: bytes, loss: float, examples: int) -> RecordDict:
    """Return a client's answer."""
    return RecordDict({BALLOT: as_record(ballot), METRICS: MetricRecord({LOSS: loss, EXAMPLES: examples})})


def read_answer(message: Message) -> tuple[bytes, float | None]:
    """Return the ballot of an answer, and the training loss if it is plausible."""
    if set(message.content) != {BALLOT, METRICS}:
        raise BallotError("expected an answer with a ballot and metrics only")
    return from_record(message.content[BALLOT]), metric(message, LOSS, LARGEST_LOSS)


def read_report(message: Message) -> bytes:
    """Return the report of a validator's answer."""
    if set(message.content) != {REPORT}:
        raise BallotError("expected an answer with a report only")
    return from_record(message.content[REPORT])


def metric(message: Message, name: str, largest: float) -> float | None:
    """Return a metric that a client reports, if it is between 0 and `largest`. It may be a lie."""
    record = message.content.get(METRICS)
    value = record.get(name) if isinstance(record, MetricRecord) else None
    return value if isinstance(value, float) and 0 <= value <= largest else None
