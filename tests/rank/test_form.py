"""Ballots on the wire: round trips, an independent reader, handmade cheats, fuzzing."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrank.bench import fuzz
from fedrank.errors import BallotError, ConfigError
from fedrank.rank import Form, Kind, Layout, Purpose, Tally
from fedrank.rank.form import HEADER, round_of
from fedrank.rank.levels import level_borders
from tests.rank import oracle
from tests.rank.oracle_coder import read_coded
from tests.rank.strategies import forms, near, random_ranking

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text())
SENDER = 9


def points_of(form: Form, paper: bytes, sender: int = SENDER) -> np.ndarray:
    points = np.zeros(form.layout.size, np.int64)
    form.count(paper, sender, points)
    return points


@given(forms(most=700), st.integers(0, 2**32), st.integers(0, 2**64 - 1), st.sampled_from([0.001, 0.05, 1.0]))
def test_what_is_filled_in_is_counted(form: Form, seed: int, sender: int, noise: float) -> None:
    ranking = near(form.reference, form.layout, np.random.default_rng(seed), noise)  # type: ignore[arg-type]
    paper = form.fill_in(ranking, sender)
    points = points_of(form, paper, sender)
    assert points.tolist() == oracle.points_of(form, ranking.tolist(), sender)
    if form.kind.coded:
        assert read_coded(form, paper, sender) == points.tolist()
    if form.kind.share == 1 and form.kind.number in (0, 1_000_000):
        assert form.read(paper, sender).tobytes() == ranking.tobytes()


@pytest.mark.parametrize("kind", fuzz.KINDS)
@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 255, 256, 257, 65_537, 1_000_003])
def test_layers_of_any_size(kind: str, size: int) -> None:
    layout = Layout.of([("before", (3,)), ("layer", (size,)), ("after", (2,))])
    rng = np.random.default_rng(size)
    reference = random_ranking(layout, rng)
    form = Form(layout, Kind.parse(kind), reference)
    ranking = near(reference, layout, rng, 0.01)
    points = points_of(form, form.fill_in(ranking, SENDER))
    by_position = [points[layer.edges][ranking[layer.edges]] for layer in layout]
    assert all((np.diff(rising) >= 0).all() for rising in by_position)
    if "exact" in kind:
        assert all(rising.tolist() == list(range(0, 2 * rising.size, 2)) for rising in by_position)
    elif "levels" in kind:
        levels = {len(np.unique(rising)) for rising in by_position}
        assert max(levels) <= min(form.kind.number, size if size > 3 else 3)


@pytest.mark.slow
def test_a_group_too_large_for_the_quick_division_is_coded_too() -> None:
    layout = Layout.of([("layer", (17_000_000,))])
    rng = np.random.default_rng(0)
    form = Form(layout, Kind.parse("exact coded"), random_ranking(layout, rng))
    ranking = random_ranking(layout, rng)
    assert form.read(form.fill_in(ranking)).tobytes() == ranking.tobytes()


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_vectors(vector: dict) -> None:
    layout = Layout.of((name, tuple(shape)) for name, shape in vector["layout"])
    form = Form(
        layout,
        Kind.parse(vector["kind"]),
        np.array(vector["reference"], np.int32),
        bytes.fromhex(vector["run"]),
        vector["round"],
        Purpose[vector["purpose"].upper()],
    )
    ranking = np.array(vector["ranking"], np.int32)
    paper = bytes.fromhex("".join(vector["bytes"]))
    assert form.fill_in(ranking, vector["sender"]) == paper
    assert points_of(form, paper, vector["sender"]).tolist() == vector["points"]


@given(st.integers(1, 10**6), st.integers(2, 10**6), st.integers(0, 2**16 - 1))
def test_borders_are_exact_fractions(size: int, levels: int, shift: int) -> None:
    levels = min(size, levels)
    borders = level_borders(size, levels, shift)
    for q in {1, levels // 3, levels // 2, levels - 1} & set(range(1, levels)):
        assert borders[q] == ((2 * q - 1) * 2**16 + 2 * shift) * size // (levels * 2**17)


def test_borders_of_the_largest_layers_do_not_overflow() -> None:
    borders = level_borders(2**31 - 1, 3_000_000, 2**16 - 1)
    assert borders[-2] == ((2 * 2_999_999 - 1) * 2**16 + 2 * (2**16 - 1)) * (2**31 - 1) // (3_000_000 * 2**17)
    assert (np.diff(borders) > 0).all()


def test_dither_differs_between_clients_and_averages_out() -> None:
    """The mean over many clients' shifts tells apart what one client's levels do not."""
    layout = Layout.of([("layer", (1000,))])
    form = Form(layout, Kind.parse("levels=16 dithered"))
    ranking = np.arange(1000, dtype=np.int32)
    tally = Tally(form)
    for client in range(500):
        tally.add(client, form.fill_in(ranking, client))
    means = tally.total / 500 / 2
    middle = slice(94, 906)  # one and a half levels from either end
    assert np.abs(means[middle] - np.arange(1000)[middle]).max() < 4
    assert len(np.unique(points_of(form, form.fill_in(ranking, 1), 1))) == 16


@pytest.mark.parametrize(
    "words", ["exact packed", "levels=16 dithered coded", "top=0.1% packed", "top=50% coded"]
)
def test_a_kind_is_written_as_it_is_read(words: str) -> None:
    assert str(Kind.parse(words)) == words


@pytest.mark.parametrize(
    "words",
    [
        *("", "exacts", "exact=3", "levels", "levels=1", "levels=x", "levels=16 dithered dithered", "top=50"),
        *(
            "top=inf%",
            "top=nan%",
            "top=0%",
            "top=101%",
            "top=0.00001%",
            "exact dithered",
            "exact packed coded",
            "levels=-4",
        ),
        "exact unpacked",
    ],
)
def test_a_kind_that_does_not_exist_is_refused(words: str) -> None:
    with pytest.raises(ConfigError):
        Kind.parse(words)


# --- cheats -----------------------------------------------------------------------------------

LAYOUT = Layout.of([("first", (70,)), ("second", (70,))])
SECTIONS = HEADER.size + 4 * len(LAYOUT)


def form_of(kind: str) -> Form:
    reference = random_ranking(LAYOUT, np.random.default_rng(1))
    return Form(LAYOUT, Kind.parse(kind), reference, run=b"this is the run.", round=4)


def honest(form: Form, seed: int = 2) -> bytes:
    return form.fill_in(random_ranking(form.layout, np.random.default_rng(seed)), SENDER)


def refused(form: Form, paper: bytes, complaint: str) -> None:
    """A ballot must be refused for the right reason and leave no trace."""
    tally = Tally(form)
    tally.add(1, form.fill_in(random_ranking(form.layout, np.random.default_rng(3)), 1))
    before = tally.total.tobytes()
    with pytest.raises(BallotError) as refusal:
        tally.add(SENDER, paper)
    assert complaint in str(refusal.value)
    assert tally.total.tobytes() == before
    assert tally.voters == {1}


def with_numbers(form: Form, numbers: list[int], layer: int = 1) -> bytes:
    """A packed ballot in which one layer holds these numbers."""
    paper = honest(form)
    width, length = form.kind.width(70), form.kind.packed_bytes(70)
    bits = sum(number << i * width for i, number in enumerate(numbers))
    at = SECTIONS + layer * length
    return fuzz.sealed(paper[:at] + bits.to_bytes(length, "little") + paper[at + length :])


def test_cheat_duplicate_rank() -> None:
    refused(
        form_of("exact"), with_numbers(form_of("exact"), [*range(69), 68]), "'second' names an edge twice"
    )
    edges = [*range(34), 33]
    refused(form_of("top=50%"), with_numbers(form_of("top=50%"), edges), "'second' names an edge twice")


def test_cheat_rank_beyond_the_layer() -> None:
    refused(form_of("exact"), with_numbers(form_of("exact"), [*range(69), 70]), "out of range")
    refused(form_of("top=50%"), with_numbers(form_of("top=50%"), [*range(34), 70]), "out of range")
    refused(form_of("levels=5"), with_numbers(form_of("levels=5"), [5] * 70), "out of range")


def test_cheat_one_edge_given_all_the_weight() -> None:
    refused(form_of("exact"), with_numbers(form_of("exact"), [69] + [0] * 69), "names an edge twice")
    refused(form_of("levels=4"), with_numbers(form_of("levels=4"), [3] + [0] * 69), "too many edges")


@pytest.mark.parametrize("kind", ["levels=7", "levels=7 dithered"])
def test_cheat_bucket_overfilled(kind: str) -> None:
    levels = [6] * 20 + [0] * 8 + [1] * 8 + [2] * 8 + [3] * 8 + [4] * 8 + [5] * 10
    refused(form_of(kind), with_numbers(form_of(kind), levels), "too many edges")


@pytest.mark.parametrize(
    "kind", ["levels=7 coded", "levels=7 dithered coded", "exact coded", "top=50% coded"]
)
def test_cheat_bucket_overfilled_in_a_coded_ballot(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that codes well but puts one edge more into a level than belongs there."""
    form = form_of(kind)
    from fedrank.rank import form as module

    note = module.note_levels

    def cheat(ranking: np.ndarray, borders: np.ndarray, out: np.ndarray) -> None:
        note(ranking, borders, out)
        out[ranking[0]] = out[ranking[-1]]

    monkeypatch.setattr(module, "note_levels", cheat)
    paper = honest(form)
    monkeypatch.undo()
    with pytest.raises(BallotError):
        points_of(form, paper)


def test_cheat_two_layers_swapped() -> None:
    layout = Layout.of([("first", (70,)), ("second", (71,))])
    form = Form(layout)
    paper = form.fill_in(random_ranking(layout, np.random.default_rng(0)), SENDER)
    first, second = (form.kind.packed_bytes(layer.size) for layer in layout)
    body = paper[SECTIONS:-4]
    swapped = struct.pack("<2I", second, first) + body[first:] + body[:first]
    refused(
        form, fuzz.sealed(paper[: HEADER.size] + swapped + paper[-4:]), "'first' does not end where it should"
    )


@pytest.mark.parametrize(
    ("place", "change", "complaint"),
    [
        (0, b"FRLX", "magic number is 46524c58"),
        (4, b"\x02", "the version is 2, but 1 was asked for"),
        (5, b"\x02", "the purpose is 2"),
        (6, b"\x01", "the shape is 1, but 0 was asked for"),
        (7, b"\x01", "the coding is 1"),
        (8, b"\x04\0\0\0", "the number of levels is 4, but 0 was asked for"),
        (12, b"\x03\0\0\0", "the round is 3, but 4 was asked for"),
        (16, b"\x08", "the sender is 8, but 9 was asked for"),
        (24, b"that", "the run is 74686174"),
        (40, b"\xff\xff\xff\xff", "the layout is ffffffff"),
    ],
)
def test_cheat_in_the_header(place: int, change: bytes, complaint: str) -> None:
    paper = bytearray(honest(form_of("exact")))
    paper[place : place + len(change)] = change
    refused(form_of("exact"), fuzz.sealed(bytes(paper)), complaint)


def test_cheat_levels_changed_in_the_header() -> None:
    paper = bytearray(honest(form_of("levels=4 coded")))
    paper[8] = 2
    refused(
        form_of("levels=4 coded"), fuzz.sealed(bytes(paper)), "number of levels is 2, but 4 was asked for"
    )


@pytest.mark.parametrize("kind", ["exact", "levels=4 coded"])
def test_cheat_gigabyte_length_field(kind: str) -> None:
    paper = bytearray(honest(form_of(kind)))
    struct.pack_into("<I", paper, HEADER.size, 2**30)
    refused(form_of(kind), fuzz.sealed(bytes(paper)), "the sections of the layers have 1073")


def test_a_gigabyte_of_anything_is_refused_unread() -> None:
    form = form_of("exact coded")
    refused(form, bytes(50_000_000), "bytes, this one has 50000000")


@pytest.mark.parametrize("kind", ["exact", "top=50%", "levels=4 coded"])
def test_cheat_trailing_bytes(kind: str) -> None:
    paper = honest(form_of(kind))
    refused(form_of(kind), fuzz.sealed(paper[:-4] + b"\0\0\0\0" + paper[-4:]), "bytes")


def test_cheat_trailing_words_inside_a_coded_section() -> None:
    form = form_of("levels=4 coded")
    paper = honest(form)
    first, second = struct.unpack_from("<2I", paper, HEADER.size)
    lengths = struct.pack("<2I", first, second + 4)
    longer = paper[: HEADER.size] + lengths + paper[SECTIONS:-4] + bytes(4) + paper[-4:]
    refused(form, fuzz.sealed(longer), "'second' does not end where it should")


def test_cheat_bits_behind_the_last_number() -> None:
    form = form_of("exact")  # 70 numbers of 7 bits leave 6 bits in the last byte
    paper = bytearray(honest(form))
    paper[-5] |= 0x80
    refused(form, fuzz.sealed(bytes(paper)), "'second' has bits set behind its last number")


def test_cheat_another_rounds_ballot() -> None:
    form = form_of("exact")
    earlier = Form(form.layout, form.kind, form.reference, form.run, round=3)
    refused(form, honest(earlier), "the round is 3, but 4 was asked for")


def test_cheat_a_broadcast_sent_back() -> None:
    form = form_of("exact")
    broadcast = Form(form.layout, form.kind, None, form.run, form.round, Purpose.BROADCAST)
    refused(form, honest(broadcast), "the purpose is 2, but 1 was asked for")


def test_damage_on_the_way_is_noticed() -> None:
    paper = bytearray(honest(form_of("exact")))
    paper[100] ^= 1
    refused(form_of("exact"), bytes(paper), "the checksum is wrong")


@pytest.mark.parametrize("paper", [b"", b"FRLB", bytes(56), "text", None, bytearray(200)])
def test_what_is_no_ballot_at_all_is_refused(paper: object) -> None:
    refused(form_of("exact"), paper, "")  # type: ignore[arg-type]


def test_the_round_of_rubbish_is_not_asked_for() -> None:
    with pytest.raises(BallotError, match="this is no ballot"):
        round_of(b"FRLB")


def test_a_coded_ballot_needs_the_broadcast() -> None:
    form = Form(LAYOUT, Kind.parse("exact coded"))
    with pytest.raises(BallotError, match="needs the ranking that it is coded against"):
        honest(form)


@pytest.mark.parametrize("kind", fuzz.KINDS)
def test_fuzzing_finds_no_illegal_ballot(kind: str) -> None:
    result = fuzz.fuzz(Kind.parse(kind), 1500, seed=1)
    assert result.illegal == []
    assert result.accepted < result.ballots


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_a_coded_ballot_is_shorter_the_closer_it_is_to_the_broadcast(seed: int) -> None:
    layout = Layout.of([("layer", (4000,))])
    rng = np.random.default_rng(seed)
    reference = random_ranking(layout, rng)
    form = Form(layout, Kind.parse("levels=16 coded"), reference)
    lengths = [len(form.fill_in(near(reference, layout, rng, noise))) for noise in (0.0, 0.01, 0.1, 10.0)]
    assert lengths == sorted(lengths)
    assert lengths[0] < 4000 * 4 / 8 / 5
