"""Candidates and reports: what validators are sent, and what they answer (docs/wire-format.md).

A question holds the present model and some candidates. For rankings that is the edges in which the present
mask differs from the initial one, which all know, and those in which each candidate differs from the present.
A report on trials holds their order by the mean loss on the validator's data; a report on the runoff, by how
much that of the candidate differs from that of the present model.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrank.ballots.frame import CHECKSUM, Frame
from fedrank.ballots.rice import WIDEST, best_width, rice_decode, rice_encode
from fedrank.errors import BallotError

QUESTION = Frame(
    magic=b"FRLQ",
    version=1,
    fields="BHIQ16s16s",
    names=("stage", "number of candidates", "round", "validator", "run", "layout"),
)
REPORT = Frame(
    magic=b"FRLR",
    version=1,
    fields="BHIQ16s16s",
    names=("stage", "number of candidates", "round", "sender", "run", "layout"),
)
FLIPS = struct.Struct("<BI")
"""The header of a mask's changes: the width of the Rice code, and how many edges change."""

NO_ANSWER = "did not answer"
"""Why a validator's report is missing."""


class Stage(enum.IntEnum):
    """What validators are asked about."""

    TRIALS = 1
    """Means of random halves of the updates."""
    RUNOFF = 2
    """The mean of the updates that were kept, against the present model."""


@dataclass(frozen=True)
class Measured:
    """The record of a measured vote. Clients are listed by name if they have names, otherwise by number."""

    validators: tuple[int | str, ...]
    answers: int
    """The number of legal reports on the trials."""
    refused: dict[Any, str]
    """Validators whose report was rejected or is missing, with the reason."""
    kept: tuple[int | str, ...]
    """The clients whose updates were averaged."""
    change: float | None
    """The median over validators of what the result changes in their loss."""
    adopted: bool
    """Whether the result became the model; otherwise the model stayed as it was."""
    question_bytes: int
    """Bytes that all validators received."""
    report_bytes: int
    error: float | None = None
    """The standard error of `change`. Earlier versions did not record it."""


@dataclass(frozen=True)
class Question:
    """What a validator reads from a question."""

    stage: Stage
    round: int
    validator: int
    present: bytes
    candidates: list[bytes]


@dataclass(frozen=True)
class Inquiry:
    """What the server and the validators of a round agree on."""

    run: bytes
    layout: bytes
    round: int

    def question(self, stage: Stage, validator: int, present: bytes, candidates: Sequence[bytes]) -> bytes:
        """Return the message to a validator."""
        header = QUESTION.header(stage, len(candidates), self.round, validator, self.run, self.layout)
        lengths = struct.pack(f"<{len(candidates) + 1}I", *map(len, (present, *candidates)))
        return QUESTION.close(header, lengths, present, *candidates)

    def report(self, stage: Stage, sender: int, losses: NDArray[np.floating]) -> bytes:
        """Return a validator's answer: the order of some losses, or what the runoff changes in its loss."""
        header = REPORT.header(stage, len(losses), self.round, sender, self.run, self.layout)
        if stage is Stage.RUNOFF:
            return REPORT.close(header, np.asarray(losses, "<f4").tobytes())
        places = np.empty(len(losses), "<u2")
        places[np.argsort(losses, kind="stable")] = np.arange(len(losses))
        return REPORT.close(header, places.tobytes())

    def read_report(self, stage: Stage, sender: int, report: bytes, count: int) -> NDArray[np.float32]:
        """Return what a report says of `count` candidates; anything illegal raises BallotError.

        That is their places from the lowest loss to the highest, or the change of the loss in the runoff.
        """
        kind = "<f4" if stage is Stage.RUNOFF else "<u2"
        expected = REPORT.header_bytes + np.dtype(kind).itemsize * count + CHECKSUM.size
        if not isinstance(report, bytes) or len(report) != expected:
            what = f"{len(report)} bytes" if isinstance(report, bytes) else type(report).__name__
            raise BallotError(f"expected a report of {expected} bytes, this is {what}")
        header = REPORT.header(stage, count, self.round, sender, self.run, self.layout)
        values = np.frombuffer(REPORT.open(report, header), kind).astype(np.float32)
        if not np.isfinite(values).all():
            raise BallotError("the report holds losses that are not finite")
        if stage is Stage.TRIALS and not np.array_equal(np.sort(values), np.arange(count)):
            raise BallotError(f"the report is not an order of {count} candidates")
        return values


def read_question(message: bytes, run: bytes, layout: bytes) -> Question:
    """Return what a question says; one of another run or layout raises BallotError."""
    claims = QUESTION.claims(message)
    numbers = (claims[name] for name in QUESTION.names[:4])
    payload = QUESTION.open(message, QUESTION.header(*numbers, run, layout))
    count = claims["number of candidates"] + 1
    stage = question_stage(message)
    try:
        lengths = struct.unpack_from(f"<{count}I", payload)
    except struct.error as error:
        raise BallotError(f"the question is incomplete ({error})") from None
    if 4 * count + sum(lengths) != len(payload):
        raise BallotError("the question's sections do not fill it")
    ends = 4 * count + np.cumsum(lengths)
    sections = [bytes(payload[end - length : end]) for end, length in zip(ends, lengths, strict=True)]
    return Question(stage, claims["round"], claims["validator"], sections[0], sections[1:])


def question_round(message: bytes) -> int:
    """Return the round that a question claims to belong to; reading it checks the claim."""
    return int(QUESTION.claims(message)["round"])


def question_stage(message: bytes) -> Stage:
    """Return the stage that a question claims to belong to; reading it checks the claim."""
    claimed = QUESTION.claims(message)["stage"]
    if claimed not in list(Stage):
        raise BallotError(f"the question belongs to a stage {claimed}, which does not exist")
    return Stage(claimed)


def encode_flips(edges: NDArray[np.int32], size: int) -> bytes:
    """Return the edges that enter or leave a mask of `size` edges, in rising order.

    >>> len(encode_flips(np.arange(0, 100_000, 100, dtype=np.int32), 100_000))  # 0.08 bits for each edge
    1005
    """
    width = best_width(edges.size, size)
    return FLIPS.pack(width, edges.size) + rice_encode(edges, width).tobytes()


def decode_flips(content: bytes, size: int) -> NDArray[np.int32]:
    """Return the edges that `encode_flips` turned into bytes."""
    if len(content) < FLIPS.size:
        raise BallotError("a list of changed edges is too short")
    width, count = FLIPS.unpack_from(content)
    if width > WIDEST or count > size:
        raise BallotError(f"a list of changed edges claims {count} of {size} edges, in codes of {width} bits")
    edges = np.empty(count, np.int32)
    if not rice_decode(np.frombuffer(content, np.uint8, offset=FLIPS.size), width, size, edges):
        raise BallotError("a list of changed edges cannot be decoded")
    return edges
