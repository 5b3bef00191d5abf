"""Questions to validators and their reports: what is written is read again, and nothing else is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrank.ballots.candidates import (
    QUESTION,
    REPORT,
    Inquiry,
    Stage,
    decode_flips,
    encode_flips,
    question_stage,
    read_question,
)
from fedrank.ballots.frame import CHECKSUM
from fedrank.errors import BallotError

RUN, LAYOUT = bytes(range(16)), bytes(range(16, 32))
INQUIRY = Inquiry(RUN, LAYOUT, round=7)


@given(st.sets(st.integers(0, 4999)), st.integers(5000, 9000))
def test_flips_come_back_as_they_were(edges: set[int], size: int) -> None:
    flipped = np.array(sorted(edges), np.int32)
    assert decode_flips(encode_flips(flipped, size), size).tolist() == sorted(edges)


@given(st.binary(max_size=60), st.integers(1, 300))
def test_no_bytes_name_an_edge_that_does_not_exist(content: bytes, size: int) -> None:
    try:
        edges = decode_flips(content, size)
    except BallotError:
        return
    assert (np.diff(edges) > 0).all()
    assert all(0 <= edge < size for edge in edges.tolist())


def test_flips_cost_little_more_than_their_entropy() -> None:
    rng = np.random.default_rng(0)
    for share in (0.001, 0.01, 0.05, 0.2):
        edges = np.flatnonzero(rng.random(200_000) < share).astype(np.int32)
        entropy = -share * np.log2(share) - (1 - share) * np.log2(1 - share)
        assert 8 * len(encode_flips(edges, 200_000)) / 200_000 < 1.08 * entropy


def test_a_validator_reads_what_the_server_asks() -> None:
    message = INQUIRY.question(Stage.TRIALS, 12, b"present", [b"", b"one", b"another"])
    asked = read_question(message, RUN, LAYOUT)
    assert (asked.stage, asked.round, asked.validator) == (Stage.TRIALS, 7, 12)
    assert (asked.present, asked.candidates) == (b"present", [b"", b"one", b"another"])


@given(st.integers(0, 200), st.integers(0, 255))
def test_a_damaged_question_is_refused(place: int, value: int) -> None:
    message = bytearray(INQUIRY.question(Stage.RUNOFF, 12, b"present", [b"candidate"]))
    place %= len(message)
    if message[place] != value:
        message[place] = value
        with pytest.raises(BallotError):
            read_question(bytes(message), RUN, LAYOUT)


def test_a_report_on_the_runoff_comes_back_as_it_was() -> None:
    report = INQUIRY.report(Stage.RUNOFF, 3, np.array([-0.25], np.float32))
    assert INQUIRY.read_report(Stage.RUNOFF, 3, report, 1).tolist() == [-0.25]


@given(st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=32))
def test_a_report_on_trials_says_nothing_but_their_order(differences: list[float]) -> None:
    report = INQUIRY.report(Stage.TRIALS, 3, np.array(differences, np.float32))
    order = sorted(range(len(differences)), key=lambda trial: (differences[trial], trial))
    read = INQUIRY.read_report(Stage.TRIALS, 3, report, len(differences))
    assert [order.index(trial) for trial in range(len(differences))] == read.tolist()


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8))
def test_a_report_that_is_not_an_order_is_refused(places: list[int]) -> None:
    legal = INQUIRY.report(Stage.TRIALS, 3, np.zeros(len(places), np.float32))
    header = legal[: -2 * len(places) - CHECKSUM.size]
    forged = REPORT.close(header, np.array(places, "<u2").tobytes())
    if sorted(places) == list(range(len(places))):
        assert INQUIRY.read_report(Stage.TRIALS, 3, forged, len(places)).tolist() == places
    else:
        with pytest.raises(BallotError, match="not an order"):
            INQUIRY.read_report(Stage.TRIALS, 3, forged, len(places))


@pytest.mark.parametrize(
    ("inquiry", "stage", "sender", "count", "reason"),
    [
        (INQUIRY, Stage.TRIALS, 4, 2, "sender is 3, expected 4"),
        (INQUIRY, Stage.RUNOFF, 3, 1, "stage is 1, expected 2"),
        (INQUIRY, Stage.TRIALS, 3, 3, "expected a report of"),
        (Inquiry(RUN, LAYOUT, 8), Stage.TRIALS, 3, 2, "round is 7, expected 8"),
        (Inquiry(LAYOUT, LAYOUT, 7), Stage.TRIALS, 3, 2, "the run is"),
    ],
)
def test_a_report_on_something_else_is_refused(
    inquiry: Inquiry, stage: Stage, sender: int, count: int, reason: str
) -> None:
    report = INQUIRY.report(Stage.TRIALS, 3, np.zeros(2, np.float32))
    with pytest.raises(BallotError, match=reason):
        inquiry.read_report(stage, sender, report, count)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_report_that_is_not_finite_is_refused(value: float) -> None:
    report = INQUIRY.report(Stage.RUNOFF, 3, np.array([value], np.float32))
    with pytest.raises(BallotError, match="not finite"):
        INQUIRY.read_report(Stage.RUNOFF, 3, report, 1)


def test_a_report_of_the_wrong_kind_is_refused() -> None:
    with pytest.raises(BallotError, match="NoneType"):
        INQUIRY.read_report(Stage.TRIALS, 3, None, 2)  # type: ignore[arg-type]
    damaged = INQUIRY.report(Stage.TRIALS, 3, np.zeros(2, np.float32))[: -CHECKSUM.size] + bytes(4)
    with pytest.raises(BallotError, match="checksum"):
        INQUIRY.read_report(Stage.TRIALS, 3, damaged, 2)


def test_a_question_of_no_stage_is_refused() -> None:
    legal = INQUIRY.question(Stage.TRIALS, 3, b"", [])
    forged = QUESTION.close(
        legal[:5] + b"\x07" + legal[6 : QUESTION.header_bytes], legal[QUESTION.header_bytes : -4]
    )
    for read in (question_stage, lambda message: read_question(message, RUN, LAYOUT)):
        with pytest.raises(BallotError, match="stage 7"):
            read(forged)
