"""Ballots on the wire: round trips, an independent reader, handmade cheats, fuzzing."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrank.ballots import BallotCodec, BallotFormat, MessageType, Tally
from fedrank.ballots.codec import FRAME, round_of
from fedrank.ballots.levels import level_borders
from fedrank.bench import fuzz
from fedrank.errors import BallotError, ConfigError
from fedrank.rank import Layout
from tests.support import oracle
from tests.support.oracle_coder import read_coded
from tests.support.strategies import codecs, near, random_ranking

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text())
SENDER = 9


def points_of(codec: BallotCodec, ballot: bytes, sender: int = SENDER) -> np.ndarray:
    points = np.zeros(codec.layout.size, np.int64)
    codec.add_to(ballot, sender, points)
    return points


@given(
    codecs(most=700), st.integers(0, 2**32), st.integers(0, 2**64 - 1), st.sampled_from([0.001, 0.05, 1.0])
)
def test_what_is_filled_in_is_counted(codec: BallotCodec, seed: int, sender: int, noise: float) -> None:
    ranking = near(codec.reference, codec.layout, np.random.default_rng(seed), noise)  # type: ignore[arg-type]
    ballot = codec.encode(ranking, sender)
    points = points_of(codec, ballot, sender)
    assert points.tolist() == oracle.points_of(codec, ranking.tolist(), sender)
    if codec.ballot_format.coded:
        assert read_coded(codec, ballot, sender) == points.tolist()
    if codec.ballot_format.share == 1 and codec.ballot_format.levels == 0:
        assert codec.decode(ballot, sender).tobytes() == ranking.tobytes()


@pytest.mark.parametrize("ballot_format", fuzz.FORMATS)
@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 255, 256, 257, 65_537, 1_000_003])
def test_layers_of_any_size(ballot_format: str, size: int) -> None:
    layout = Layout.of([("before", (3,)), ("layer", (size,)), ("after", (2,))])
    rng = np.random.default_rng(size)
    reference = random_ranking(layout, rng)
    codec = BallotCodec(layout, BallotFormat.parse(ballot_format), reference)
    ranking = near(reference, layout, rng, 0.01)
    points = points_of(codec, codec.encode(ranking, SENDER))
    by_position = [points[layer.edges][ranking[layer.edges]] for layer in layout]
    assert all((np.diff(rising) >= 0).all() for rising in by_position)
    if "exact" in ballot_format:
        assert all(rising.tolist() == list(range(0, 2 * rising.size, 2)) for rising in by_position)
    elif "levels" in ballot_format:
        levels = {len(np.unique(rising)) for rising in by_position}
        assert max(levels) <= min(codec.ballot_format.levels, size if size > 3 else 3)


@pytest.mark.slow
def test_a_group_too_large_for_the_quick_division_is_coded_too() -> None:
    layout = Layout.of([("layer", (17_000_000,))])
    rng = np.random.default_rng(0)
    codec = BallotCodec(layout, BallotFormat.parse("exact coded"), random_ranking(layout, rng))
    ranking = random_ranking(layout, rng)
    assert codec.decode(codec.encode(ranking)).tobytes() == ranking.tobytes()


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_vectors(vector: dict) -> None:
    layout = Layout.of((name, tuple(shape)) for name, shape in vector["layout"])
    codec = BallotCodec(
        layout,
        BallotFormat.parse(vector["format"]),
        np.array(vector["reference"], np.int32),
        bytes.fromhex(vector["run"]),
        vector["round"],
        MessageType[vector["message_type"].upper()],
    )
    ranking = np.array(vector["ranking"], np.int32)
    ballot = bytes.fromhex("".join(vector["bytes"]))
    assert codec.encode(ranking, vector["sender"]) == ballot
    assert points_of(codec, ballot, vector["sender"]).tolist() == vector["points"]


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
    codec = BallotCodec(layout, BallotFormat.parse("levels=16 dithered"))
    ranking = np.arange(1000, dtype=np.int32)
    tally = Tally(codec)
    for client in range(500):
        tally.add(client, codec.encode(ranking, client))
    means = tally.total / 500 / 2
    middle = slice(94, 906)  # one and a half levels from either end
    assert np.abs(means[middle] - np.arange(1000)[middle]).max() < 4
    assert len(np.unique(points_of(codec, codec.encode(ranking, 1), 1))) == 16


@pytest.mark.parametrize(
    "words", ["exact packed", "levels=16 dithered coded", "top=0.1% packed", "top=50% coded"]
)
def test_a_kind_is_written_as_it_is_read(words: str) -> None:
    assert str(BallotFormat.parse(words)) == words


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
        BallotFormat.parse(words)


# --- cheats -----------------------------------------------------------------------------------

LAYOUT = Layout.of([("first", (70,)), ("second", (70,))])
SECTIONS = FRAME.header_bytes + 4 * len(LAYOUT)


def form_of(ballot_format: str) -> BallotCodec:
    reference = random_ranking(LAYOUT, np.random.default_rng(1))
    return BallotCodec(LAYOUT, BallotFormat.parse(ballot_format), reference, run=b"this is the run.", round=4)


def honest(codec: BallotCodec, seed: int = 2) -> bytes:
    return codec.encode(random_ranking(codec.layout, np.random.default_rng(seed)), SENDER)


def refused(codec: BallotCodec, ballot: bytes, complaint: str) -> None:
    """A ballot must be refused for the right reason and leave no trace."""
    tally = Tally(codec)
    tally.add(1, codec.encode(random_ranking(codec.layout, np.random.default_rng(3)), 1))
    before = tally.total.tobytes()
    with pytest.raises(BallotError) as refusal:
        tally.add(SENDER, ballot)
    assert complaint in str(refusal.value)
    assert tally.total.tobytes() == before
    assert tally.voters == {1}


def with_numbers(codec: BallotCodec, numbers: list[int], layer: int = 1) -> bytes:
    """A packed ballot in which one layer holds these numbers."""
    ballot = honest(codec)
    width, length = codec.ballot_format.width(70), codec.ballot_format.packed_bytes(70)
    bits = sum(number << i * width for i, number in enumerate(numbers))
    at = SECTIONS + layer * length
    return fuzz.sealed(ballot[:at] + bits.to_bytes(length, "little") + ballot[at + length :])


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


@pytest.mark.parametrize("ballot_format", ["levels=7", "levels=7 dithered"])
def test_cheat_bucket_overfilled(ballot_format: str) -> None:
    levels = [6] * 20 + [0] * 8 + [1] * 8 + [2] * 8 + [3] * 8 + [4] * 8 + [5] * 10
    refused(form_of(ballot_format), with_numbers(form_of(ballot_format), levels), "too many edges")


@pytest.mark.parametrize(
    "ballot_format", ["levels=7 coded", "levels=7 dithered coded", "exact coded", "top=50% coded"]
)
def test_cheat_bucket_overfilled_in_a_coded_ballot(
    ballot_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that codes well but puts one edge more into a level than belongs there."""
    codec = form_of(ballot_format)
    from fedrank.ballots import codec as module

    note = module.note_levels

    def cheat(ranking: np.ndarray, borders: np.ndarray, out: np.ndarray) -> None:
        note(ranking, borders, out)
        out[ranking[0]] = out[ranking[-1]]

    monkeypatch.setattr(module, "note_levels", cheat)
    ballot = honest(codec)
    monkeypatch.undo()
    with pytest.raises(BallotError):
        points_of(codec, ballot)


def test_cheat_two_layers_swapped() -> None:
    layout = Layout.of([("first", (70,)), ("second", (71,))])
    codec = BallotCodec(layout)
    ballot = codec.encode(random_ranking(layout, np.random.default_rng(0)), SENDER)
    first, second = (codec.ballot_format.packed_bytes(layer.size) for layer in layout)
    body = ballot[SECTIONS:-4]
    swapped = struct.pack("<2I", second, first) + body[first:] + body[:first]
    refused(
        codec,
        fuzz.sealed(ballot[: FRAME.header_bytes] + swapped + ballot[-4:]),
        "'first' does not end where it should",
    )


@pytest.mark.parametrize(
    ("place", "change", "complaint"),
    [
        (0, b"FRLX", "magic number is 46524c58"),
        (4, b"\x02", "the version is 2, expected 1"),
        (5, b"\x02", "the message type is 2"),
        (6, b"\x01", "the shape is 1, expected 0"),
        (7, b"\x01", "the coding is 1"),
        (8, b"\x04\0\0\0", "the number of levels is 4, expected 0"),
        (12, b"\x03\0\0\0", "the round is 3, expected 4"),
        (16, b"\x08", "the sender is 8, expected 9"),
        (24, b"that", "the run is 74686174"),
        (40, b"\xff\xff\xff\xff", "the layout is ffffffff"),
    ],
)
def test_cheat_in_the_header(place: int, change: bytes, complaint: str) -> None:
    ballot = bytearray(honest(form_of("exact")))
    ballot[place : place + len(change)] = change
    refused(form_of("exact"), fuzz.sealed(bytes(ballot)), complaint)


def test_cheat_levels_changed_in_the_header() -> None:
    ballot = bytearray(honest(form_of("levels=4 coded")))
    ballot[8] = 2
    refused(form_of("levels=4 coded"), fuzz.sealed(bytes(ballot)), "number of levels is 2, expected 4")


@pytest.mark.parametrize("ballot_format", ["exact", "levels=4 coded"])
def test_cheat_gigabyte_length_field(ballot_format: str) -> None:
    ballot = bytearray(honest(form_of(ballot_format)))
    struct.pack_into("<I", ballot, FRAME.header_bytes, 2**30)
    refused(form_of(ballot_format), fuzz.sealed(bytes(ballot)), "the layers' sections have 1073")


def test_a_gigabyte_of_anything_is_refused_unread() -> None:
    codec = form_of("exact coded")
    refused(codec, bytes(50_000_000), "bytes, got 50000000")


@pytest.mark.parametrize("ballot_format", ["exact", "top=50%", "levels=4 coded"])
def test_cheat_trailing_bytes(ballot_format: str) -> None:
    ballot = honest(form_of(ballot_format))
    refused(form_of(ballot_format), fuzz.sealed(ballot[:-4] + b"\0\0\0\0" + ballot[-4:]), "bytes")


def test_cheat_trailing_words_inside_a_coded_section() -> None:
    codec = form_of("levels=4 coded")
    ballot = honest(codec)
    first, second = struct.unpack_from("<2I", ballot, FRAME.header_bytes)
    lengths = struct.pack("<2I", first, second + 4)
    longer = ballot[: FRAME.header_bytes] + lengths + ballot[SECTIONS:-4] + bytes(4) + ballot[-4:]
    refused(codec, fuzz.sealed(longer), "'second' does not end where it should")


def test_cheat_bits_behind_the_last_number() -> None:
    codec = form_of("exact")  # 70 numbers of 7 bits leave 6 bits in the last byte
    ballot = bytearray(honest(codec))
    ballot[-5] |= 0x80
    refused(codec, fuzz.sealed(bytes(ballot)), "'second' has bits set behind its last number")


def test_cheat_another_rounds_ballot() -> None:
    codec = form_of("exact")
    earlier = BallotCodec(codec.layout, codec.ballot_format, codec.reference, codec.run, round=3)
    refused(codec, honest(earlier), "the round is 3, expected 4")


def test_cheat_a_broadcast_sent_back() -> None:
    codec = form_of("exact")
    broadcast = BallotCodec(
        codec.layout, codec.ballot_format, None, codec.run, codec.round, MessageType.BROADCAST
    )
    refused(codec, honest(broadcast), "the message type is 2, expected 1")


def test_damage_on_the_way_is_noticed() -> None:
    ballot = bytearray(honest(form_of("exact")))
    ballot[100] ^= 1
    refused(form_of("exact"), bytes(ballot), "wrong checksum")


@pytest.mark.parametrize("ballot", [b"", b"FRLB", bytes(56), "text", None, bytearray(200)])
def test_what_is_no_ballot_at_all_is_refused(ballot: object) -> None:
    refused(form_of("exact"), ballot, "")  # type: ignore[arg-type]


def test_the_round_of_rubbish_is_not_asked_for() -> None:
    with pytest.raises(BallotError, match="its header alone has 56"):
        round_of(b"FRLB")


def test_a_coded_ballot_needs_the_broadcast() -> None:
    codec = BallotCodec(LAYOUT, BallotFormat.parse("exact coded"))
    with pytest.raises(BallotError, match="needs its reference ranking"):
        honest(codec)


@pytest.mark.parametrize("ballot_format", fuzz.FORMATS)
def test_fuzzing_finds_no_illegal_ballot(ballot_format: str) -> None:
    result = fuzz.fuzz(BallotFormat.parse(ballot_format), 1500, seed=1)
    assert result.illegal == []
    assert result.accepted < result.ballots


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_a_coded_ballot_is_shorter_the_closer_it_is_to_the_broadcast(seed: int) -> None:
    layout = Layout.of([("layer", (4000,))])
    rng = np.random.default_rng(seed)
    reference = random_ranking(layout, rng)
    codec = BallotCodec(layout, BallotFormat.parse("levels=16 coded"), reference)
    lengths = [len(codec.encode(near(reference, layout, rng, noise))) for noise in (0.0, 0.01, 0.1, 10.0)]
    assert lengths == sorted(lengths)
    assert lengths[0] < 4000 * 4 / 8 / 5
