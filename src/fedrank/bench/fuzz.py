"""Fuzzing: however the bytes are mutated, only legal ballots may be counted."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from fedrank.ballots import BallotCodec, BallotFormat
from fedrank.ballots.codec import FRAME, LENGTH
from fedrank.bench.measure import Row
from fedrank.errors import BallotError
from fedrank.rank import Layout, Ranking

Mutation = Callable[[bytes, bytes, np.random.Generator], bytes]
FORMATS = (
    *("exact", "levels=2", "levels=16", "levels=16 dithered", "levels=1000", "top=50%", "top=10%"),
    *("exact coded", "levels=2 coded", "levels=16 coded", "levels=16 dithered coded", "levels=1000 coded"),
    *("top=50% coded", "top=10% coded"),
)
LAYOUT = Layout.of([("convolution", (4, 1, 3, 3)), ("one edge", (1,)), ("linear", (20, 60))])
SENDER = 5


@dataclass(frozen=True)
class Fuzzed:
    """The outcome for some mutated ballots."""

    ballots: int
    accepted: int
    """Accepted because they were still legal."""
    illegal: list[bytes]
    """Accepted although illegal; must be empty."""
    slowest: float
    """The longest time for one ballot, in multiples of an honest one."""


def fuzz(ballot_format: BallotFormat, count: int, seed: int = 0) -> Fuzzed:
    """Count mutated ballots, and check that an honest client could have sent each accepted one.

    The check does not trust the decoder: a legal ballot must equal the bytes that the encoder makes of its
    decoded ranking. A rejected ballot must leave the tally unchanged.
    """
    rng = np.random.default_rng(seed)
    codec = BallotCodec(LAYOUT, ballot_format, random_ranking(rng), run=b"sixteen bytes...", round=3)
    honest = [codec.encode(random_ranking(rng), SENDER) for _ in range(8)]
    total = rng.integers(0, 1000, LAYOUT.size)
    before = total.tobytes()
    started = time.process_time()
    for ballot in honest * 4:
        codec.add_to(ballot, SENDER, np.zeros(LAYOUT.size, np.int64))
    usual = (time.process_time() - started) / (4 * len(honest))
    accepted, slowest = 0, 0.0
    illegal: list[bytes] = []
    for _ in range(count):
        first, second = (honest[i] for i in rng.integers(len(honest), size=2))
        ballot = first
        for _ in range(int(rng.integers(1, 4))):
            mutate = MUTATIONS[int(rng.integers(len(MUTATIONS)))]
            ballot = mutate(ballot, second, rng)
        if rng.random() < 0.9:
            ballot = sealed(ballot)
        started = time.process_time()
        try:
            codec.add_to(ballot, SENDER, total)
        except BallotError:
            slowest = max(slowest, time.process_time() - started)
            if total.tobytes() != before:
                raise AssertionError(f"a rejected ballot changed the tally: {ballot.hex()}") from None
            continue
        accepted += 1
        total = np.frombuffer(before, np.int64).copy()
        if codec.encode(codec.decode(ballot, SENDER), SENDER) != ballot:
            illegal.append(ballot)
    return Fuzzed(count, accepted, illegal, slowest / usual)


def random_ranking(rng: np.random.Generator) -> Ranking:
    """Return a random ranking of the fuzzed layout."""
    return np.concatenate([rng.permutation(layer.size) for layer in LAYOUT]).astype(np.int32)


def sealed(ballot: bytes) -> bytes:
    """Return a ballot with a valid checksum, as an attacker would send it."""
    body = ballot[: -LENGTH.size]
    return body + LENGTH.pack(zlib.crc32(body))


def flip_bits(ballot: bytes, _other: bytes, rng: np.random.Generator) -> bytes:
    """Flip a few bits anywhere."""
    data = bytearray(ballot)
    for place in rng.integers(8 * len(data), size=int(rng.integers(1, 5))) if data else ():
        data[place // 8] ^= 1 << place % 8
    return bytes(data)


def flip_content(ballot: bytes, _other: bytes, rng: np.random.Generator) -> bytes:
    """Write random bytes after the header."""
    data = bytearray(ballot)
    begin = FRAME.header_bytes + LENGTH.size * len(LAYOUT)
    for place in rng.integers(begin, max(begin + 1, len(data)), size=int(rng.integers(1, 9))):
        if place < len(data):
            data[place] = rng.integers(256)
    return bytes(data)


def truncate(ballot: bytes, _other: bytes, rng: np.random.Generator) -> bytes:
    """Cut the end off."""
    return ballot[: int(rng.integers(len(ballot) + 1))]


def lengthen(ballot: bytes, _other: bytes, rng: np.random.Generator) -> bytes:
    """Append random bytes."""
    return ballot + rng.bytes(int(rng.integers(1, 20)))


def splice(ballot: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    """Begin with one ballot and end with another."""
    place = int(rng.integers(len(ballot) + 1))
    return ballot[:place] + other[place:]


def swap_pieces(ballot: bytes, _other: bytes, rng: np.random.Generator) -> bytes:
    """Swap two pieces of the ballot."""
    a, b, c = sorted(int(place) for place in rng.integers(len(ballot) + 1, size=3))
    return ballot[:a] + ballot[b:c] + ballot[a:b] + ballot[c:]


def noise(ballot: bytes, _other: bytes, rng: np.random.Generator) -> bytes:
    """Keep the header and the lengths, and replace the rest by noise."""
    kept = FRAME.header_bytes + LENGTH.size * len(LAYOUT)
    return ballot[:kept] + rng.bytes(max(0, len(ballot) - kept))


def lie_about_lengths(ballot: bytes, _other: bytes, rng: np.random.Generator) -> bytes:
    """Change the length of a section."""
    data = bytearray(ballot)
    place = FRAME.header_bytes + LENGTH.size * int(rng.integers(len(LAYOUT)))
    if place + LENGTH.size <= len(data):
        LENGTH.pack_into(data, place, int(rng.choice([0, 1, 4, 2**30, 2**32 - 1, int(rng.integers(2**32))])))
    return bytes(data)


MUTATIONS: tuple[Mutation, ...] = (
    flip_bits,
    flip_content,
    truncate,
    lengthen,
    splice,
    swap_pieces,
    noise,
    lie_about_lengths,
)


def fuzzing(*, quick: bool) -> Iterator[Row]:
    """Fuzz every ballot format."""
    count = 5_000 if quick else 200_000
    section = f"{count:,} hostile ballots of each format"
    for words in FORMATS:
        result = fuzz(BallotFormat.parse(words), count)
        yield Row(section, f"{words}: illegal ones accepted", len(result.illegal), "")
        yield Row(section, f"{words}: legal after all", result.accepted, "")
        yield Row(section, f"{words}: slowest", result.slowest, "honest")
