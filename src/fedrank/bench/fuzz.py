"""Hostile ballots: whatever is done to the bytes, only legal ballots may be counted."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from fedrank.bench.measure import Row
from fedrank.errors import BallotError
from fedrank.rank import Form, Kind, Layout, Ranking
from fedrank.rank.form import HEADER, LENGTH

Mutation = Callable[[bytes, bytes, np.random.Generator], bytes]
KINDS = (
    *("exact", "levels=2", "levels=16", "levels=16 dithered", "levels=1000", "top=50%", "top=10%"),
    *("exact coded", "levels=2 coded", "levels=16 coded", "levels=16 dithered coded", "levels=1000 coded"),
    *("top=50% coded", "top=10% coded"),
)
LAYOUT = Layout.of([("convolution", (4, 1, 3, 3)), ("one edge", (1,)), ("linear", (20, 60))])
SENDER = 5


@dataclass(frozen=True)
class Fuzzed:
    """What became of some mutated ballots."""

    ballots: int
    accepted: int
    """Accepted because they were legal after all."""
    illegal: list[bytes]
    """Accepted although they were not: there must be none."""
    slowest: float
    """The longest time for one, in honest ballots."""


def fuzz(kind: Kind, count: int, seed: int = 0) -> Fuzzed:
    """Count mutated ballots, and check on each accepted one that it is what an honest client could send.

    That check does not trust the decoder: a legal ballot must be the one string of bytes that the
    encoder makes of the ranking it tells of. A refused one must leave the tally as it was.
    """
    rng = np.random.default_rng(seed)
    form = Form(LAYOUT, kind, random_ranking(rng), run=b"sixteen bytes...", round=3)
    honest = [form.fill_in(random_ranking(rng), SENDER) for _ in range(8)]
    total = rng.integers(0, 1000, LAYOUT.size)
    before = total.tobytes()
    started = time.process_time()
    for paper in honest * 4:
        form.count(paper, SENDER, np.zeros(LAYOUT.size, np.int64))
    usual = (time.process_time() - started) / (4 * len(honest))
    accepted, slowest = 0, 0.0
    illegal: list[bytes] = []
    for _ in range(count):
        first, second = (honest[i] for i in rng.integers(len(honest), size=2))
        paper = first
        for _ in range(int(rng.integers(1, 4))):
            mutate = MUTATIONS[int(rng.integers(len(MUTATIONS)))]
            paper = mutate(paper, second, rng)
        if rng.random() < 0.9:
            paper = sealed(paper)
        started = time.process_time()
        try:
            form.count(paper, SENDER, total)
        except BallotError:
            slowest = max(slowest, time.process_time() - started)
            if total.tobytes() != before:
                raise AssertionError(f"a refused ballot changed the tally: {paper.hex()}") from None
            continue
        accepted += 1
        total = np.frombuffer(before, np.int64).copy()
        if form.fill_in(form.read(paper, SENDER), SENDER) != paper:
            illegal.append(paper)
    return Fuzzed(count, accepted, illegal, slowest / usual)


def random_ranking(rng: np.random.Generator) -> Ranking:
    """Return some ranking of the fuzzed layout."""
    return np.concatenate([rng.permutation(layer.size) for layer in LAYOUT]).astype(np.int32)


def sealed(paper: bytes) -> bytes:
    """Return a ballot with the right checksum, as a cheat would send it."""
    body = paper[: -LENGTH.size]
    return body + LENGTH.pack(zlib.crc32(body))


def flip_bits(paper: bytes, _other: bytes, rng: np.random.Generator) -> bytes:
    """Flip a few bits anywhere."""
    data = bytearray(paper)
    for place in rng.integers(8 * len(data), size=int(rng.integers(1, 5))) if data else ():
        data[place // 8] ^= 1 << place % 8
    return bytes(data)


def flip_content(paper: bytes, _other: bytes, rng: np.random.Generator) -> bytes:
    """Write random bytes behind the header."""
    data = bytearray(paper)
    begin = HEADER.size + LENGTH.size * len(LAYOUT)
    for place in rng.integers(begin, max(begin + 1, len(data)), size=int(rng.integers(1, 9))):
        if place < len(data):
            data[place] = rng.integers(256)
    return bytes(data)


def truncate(paper: bytes, _other: bytes, rng: np.random.Generator) -> bytes:
    """Cut the end off."""
    return paper[: int(rng.integers(len(paper) + 1))]


def lengthen(paper: bytes, _other: bytes, rng: np.random.Generator) -> bytes:
    """Put something behind the end."""
    return paper + rng.bytes(int(rng.integers(1, 20)))


def splice(paper: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    """Begin with one ballot and end with another."""
    place = int(rng.integers(len(paper) + 1))
    return paper[:place] + other[place:]


def swap_pieces(paper: bytes, _other: bytes, rng: np.random.Generator) -> bytes:
    """Exchange two pieces of the ballot."""
    a, b, c = sorted(int(place) for place in rng.integers(len(paper) + 1, size=3))
    return paper[:a] + paper[b:c] + paper[a:b] + paper[c:]


def noise(paper: bytes, _other: bytes, rng: np.random.Generator) -> bytes:
    """Keep the header and the lengths, and send noise."""
    kept = HEADER.size + LENGTH.size * len(LAYOUT)
    return paper[:kept] + rng.bytes(max(0, len(paper) - kept))


def lie_about_lengths(paper: bytes, _other: bytes, rng: np.random.Generator) -> bytes:
    """Change the length of a section."""
    data = bytearray(paper)
    place = HEADER.size + LENGTH.size * int(rng.integers(len(LAYOUT)))
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
    """Fuzz every kind of ballot."""
    count = 5_000 if quick else 200_000
    section = f"{count:,} hostile ballots of each kind"
    for words in KINDS:
        result = fuzz(Kind.parse(words), count)
        yield Row(section, f"{words}: illegal ones accepted", len(result.illegal), "")
        yield Row(section, f"{words}: legal after all", result.accepted, "")
        yield Row(section, f"{words}: slowest", result.slowest, "honest")
