"""A reader of coded ballots in plain Python, written from docs/wire-format.md alone."""

from __future__ import annotations

import struct
from fractions import Fraction

from fedrank.ballots import BallotCodec, Shape
from tests.support import oracle


def read_coded(codec: BallotCodec, ballot: bytes, sender: int) -> list[int]:
    """Return the points of each edge of a coded ballot."""
    layers = list(codec.layout)
    lengths = struct.unpack_from(f"<{len(layers)}I", ballot, 56)
    at = 56 + 4 * len(layers)
    points: list[int] = []
    assert codec.reference is not None
    for layer, length in zip(layers, lengths, strict=True):
        order = codec.reference[layer.edges].tolist()
        borders, groups = _levels(codec, layer.size, sender)
        by_position = _read_layer(ballot[at : at + length], borders, groups, codec.ballot_format.shape)
        of_layer = dict(zip(order, by_position, strict=True))
        points += [of_layer[edge] for edge in range(layer.size)]
        at += length
    assert at + 4 == len(ballot)
    return points


def _even(items: int, parts: int) -> list[int]:
    return [part * items // parts for part in range(parts + 1)]


def _levels(codec: BallotCodec, size: int, sender: int) -> tuple[list[int], list[int]]:
    """Return where levels begin, and with which levels groups begin."""
    if codec.ballot_format.shape is Shape.EXACT:
        return list(range(size + 1)), _even(size, max(1, min(255, size // 64)))
    if codec.ballot_format.shape is Shape.TOP:
        unsent = int((1 - codec.ballot_format.millionths / 1_000_000) * size)
        groups = _even(size - unsent, max(1, min(255, (size - unsent) // 64)))
        if unsent == 0:
            return list(range(size + 1)), groups
        return [0, *range(unsent, size + 1)], [0, *(level + 1 for level in groups)]
    count = min(codec.ballot_format.levels, size)
    moved = oracle.shift(codec, sender) - Fraction(1, 2)
    inner = [int((q + moved) * size / count) for q in range(1, count)]
    return [0, *inner, size], _even(count, min(count, 256))


class _Model:
    def __init__(self, groups: int) -> None:
        self.counts = [1 + 64 // (1 + min(symbol, groups - symbol)) for symbol in range(groups)]
        self.next_wait, self.wait = 8, 0
        self.longest = max(256, 4 * groups)

    def intervals(self) -> list[tuple[int, int]]:
        """Return (first, width) of each symbol, adapting when it is time."""
        if self.wait == 0:
            groups, total = len(self.counts), sum(self.counts)
            widths = [1 + count * (2**14 - groups) // total for count in self.counts]
            widths[self.counts.index(max(self.counts))] += 2**14 - sum(widths)
            self.cached = [(sum(widths[:i]), widths[i]) for i in range(groups)]
            if total > 2**16:
                self.counts = [(count + 1) // 2 for count in self.counts]
            self.wait = self.next_wait
            self.next_wait = min(2 * self.next_wait, self.longest)
        self.wait -= 1
        return self.cached


def _read_layer(section: bytes, borders: list[int], groups: list[int], shape: Shape) -> list[int]:
    words = list(struct.unpack(f"<{len(section) // 4}I", section))
    states = [words[0] + (words[1] << 32), words[2] + (words[3] << 32)]
    words = words[4:]
    count = len(groups) - 1
    phases = max(1, min(max(4, 128 // count), borders[-1] // (16 * count)))
    models = [_Model(count) for _ in range(phases)]
    starts = [borders[level] for level in groups]
    free = [list(range(starts[g], starts[g + 1])) for g in range(count)]
    points = []

    def take(which: int, bits: int, first: int, width: int) -> None:
        low = states[which] % 2**bits
        states[which] = width * (states[which] >> bits) + low - first
        if states[which] < 2**32:
            states[which] = states[which] * 2**32 + words.pop(0)

    position = 0
    for home in range(count):
        for phase in range(phases):
            end = starts[home] + (phase + 1) * (starts[home + 1] - starts[home]) // phases
            while position < end:
                which, model = position % 2, models[phase]
                intervals = model.intervals()
                slot = states[which] % 2**14
                symbol = max(s for s, (first, _) in enumerate(intervals) if first <= slot)
                take(which, 14, *intervals[symbol])
                model.counts[symbol] += 32
                group = (home + symbol) % count
                level = groups[group]
                if groups[group + 1] - level > 1:
                    low = states[which] % 2**32
                    if shape is Shape.LEVELS:
                        part = 2**32 // (starts[group + 1] - starts[group])
                        at = starts[group] + low // part
                        level = max(lv for lv in range(len(borders) - 1) if borders[lv] <= at)
                        width = borders[level + 1] - borders[level]
                        take(which, 32, (borders[level] - starts[group]) * part, width * part)
                    else:
                        part = 2**32 // len(free[group])
                        index = low // part
                        take(which, 32, index * part, part)
                        level += free[group][index] - starts[group]
                        free[group][index] = free[group][-1]
                        free[group].pop()
                unsent = shape is Shape.TOP and level == 0 and borders[1] > 1
                points.append(0 if unsent else borders[level] + borders[level + 1] - 1)
                position += 1
    assert words == []
    assert states == [2**32, 2**32]
    return points
