"""Coded ballots: an entropy coder that knows where the broadcast has put each edge.

Edges are coded in the order of the broadcast ranking, in which a client's levels rise slowly and with
little noise. An adaptive model predicts an edge's group of levels; where a group has several levels, the
level follows. The coder is rANS (Duda, 2013) with a state of 64 bits and words of 32. Everything is
integer arithmetic: any implementation gives the same bytes. docs/wire-format.md has the details.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from fedrank.ballots.packing import Fault

U64 = np.uint64
Integers = NDArray[np.int64]

PRECISION = 14
"""Probabilities of groups are multiples of 2^-14."""
FIRST_WAIT = 8
LONGEST_WAIT = 256
"""After how many edges a model adapts, or four times the number of groups if that is more."""
STEP = 32
MOST_COUNTED = 2**16
SEARCH_BITS = 8

_FIRST_STATE = 2**32
_OVERFULL, _OUT_OF_RANGE, _TOO_SHORT, _TOO_LONG = (
    int(fault) for fault in (Fault.OVERFULL, Fault.OUT_OF_RANGE, Fault.TOO_SHORT, Fault.TOO_LONG)
)


def most_bytes(size: int) -> int:
    """Return what no coded layer is longer than: two states, and at most two words for an edge."""
    return 4 * (4 + 2 * size)


@numba.njit(cache=True, error_model="numpy")
def phases_of(groups: int, size: int) -> int:
    """Return into how many phases, with a model each, the positions of a group are divided."""
    return max(1, min(max(4, 128 // groups), size // (16 * groups)))


@numba.njit(cache=True, error_model="numpy")
def _adapt(counts: Integers, total: int, cumulative: Integers, search: Integers) -> int:
    """Derive probabilities from counts, then let old counts fade. Return the new sum of the counts."""
    groups = counts.size
    scale = (1 << PRECISION) - groups
    likeliest = 0
    cumulative[0] = 0
    for group in range(groups):
        cumulative[group + 1] = 1 + counts[group] * scale // total
        if counts[group] > counts[likeliest]:
            likeliest = group
    used = 0
    for group in range(groups):
        used += cumulative[group + 1]
    cumulative[likeliest + 1] += (1 << PRECISION) - used
    for group in range(groups):
        cumulative[group + 1] += cumulative[group]
    group = 0
    for slot in range(search.size):
        while cumulative[group + 1] <= slot << (PRECISION - SEARCH_BITS):
            group += 1
        search[slot] = group
    if total > MOST_COUNTED:
        total = 0
        for group in range(groups):
            counts[group] = (counts[group] + 1) >> 1
            total += counts[group]
    return total


@numba.njit(cache=True, error_model="numpy")
def _models(phases: int, groups: int) -> tuple[Integers, Integers, Integers, Integers, Integers, Integers]:
    """Return one fresh model for each phase: its counts and their sum, its probabilities, when it adapts.

    A model begins with the expectation that edges stay near their place in the broadcast.
    """
    counts = np.empty((phases, groups), np.int64)
    for symbol in range(groups):
        counts[:, symbol] = 1 + 2 * STEP // (1 + min(symbol, groups - symbol))
    return (
        counts,
        counts.sum(axis=1),
        np.zeros((phases, groups + 1), np.int64),
        np.zeros((phases, 1 << SEARCH_BITS), np.int64),
        np.zeros(phases, np.int64),
        np.full(phases, FIRST_WAIT, np.int64),
    )


@numba.njit(cache=True, error_model="numpy")
def _numbers(count: int) -> NDArray[np.int32]:
    numbers = np.empty(count, np.int32)
    for number in range(count):
        numbers[number] = number
    return numbers


@numba.njit(cache=True, error_model="numpy")
def _parts(room: NDArray[np.int32], several: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return what one of m equally likely cases has of 2^32, for all m that can occur."""
    parts = np.zeros((room * several).max() + 1, np.int64)
    for cases in range(1, parts.size):
        parts[cases] = (np.int64(1) << 32) // cases
    return parts


@numba.njit(cache=True, error_model="numpy")
def level_of_positions(borders: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the level of every position."""
    levels = np.empty(borders[-1], np.int32)
    for level in range(borders.size - 1):
        levels[borders[level] : borders[level + 1]] = level
    return levels


@numba.njit(cache=True, error_model="numpy")
def decode(
    words: NDArray[np.uint32],
    borders: NDArray[np.int32],
    points: NDArray[np.int32],
    groups: NDArray[np.int32],
    distinct: bool,
    values: NDArray[np.int32],
) -> int:
    """Read the points of the edges in the order of the broadcast ranking; return a fault, 0 if there is none.

    Any words lead to an end after as many steps as there are edges, and only one string of words to each
    ballot: the states and the number of words must come out right in the end.
    """
    size = values.size
    group_count = groups.size - 1
    phases = phases_of(group_count, size)
    counts, counted, cumulative, search, wait, next_wait = _models(phases, group_count)
    longest_wait = max(LONGEST_WAIT, 4 * group_count)
    starts = borders[groups]
    room = starts[1:] - starts[:-1]
    several = groups[1:] - groups[:-1] > 1
    slots = _numbers(size if distinct else 0)
    level_of = slots if distinct or not several.any() else level_of_positions(borders)
    level_room = slots if distinct else borders[1:] - borders[:-1]
    parts = _parts(room, several)

    if words.size < 4:
        return _TOO_SHORT
    x = (U64(words[1]) << U64(32)) | U64(words[0])
    other = (U64(words[3]) << U64(32)) | U64(words[2])
    if x < U64(_FIRST_STATE) or other < U64(_FIRST_STATE):
        return _OUT_OF_RANGE
    at = 4
    position = 0
    low_bits = U64((1 << PRECISION) - 1)
    for home in range(group_count):
        start = np.int64(starts[home])
        length = np.int64(starts[home + 1]) - start
        for phase in range(phases):
            end = start + (phase + 1) * length // phases
            tally, bounds, finder = counts[phase], cumulative[phase], search[phase]
            while position < end:
                if wait[phase] == 0:
                    counted[phase] = _adapt(tally, counted[phase], bounds, finder)
                    wait[phase] = next_wait[phase]
                    next_wait[phase] = min(2 * next_wait[phase], longest_wait)
                wait[phase] -= 1
                slot = np.int64(x & low_bits)
                symbol = finder[slot >> (PRECISION - SEARCH_BITS)]
                while bounds[symbol + 1] <= slot:
                    symbol += 1
                first = bounds[symbol]
                x = U64(bounds[symbol + 1] - first) * (x >> U64(PRECISION)) + U64(slot - first)
                word = U64(words[at]) if at < words.size else U64(0)
                refill = x < U64(_FIRST_STATE)
                x = (x << U64(32)) | word if refill else x
                at += 1 if refill else 0
                tally[symbol] += STEP
                counted[phase] += STEP
                group = home + symbol
                if group >= group_count:
                    group -= group_count
                left = room[group]
                if left == 0:
                    return _OVERFULL
                room[group] = left - 1
                value = points[groups[group]]
                if several[group]:
                    begin = np.int64(starts[group])
                    among = np.int64(left) if distinct else np.int64(starts[group + 1]) - begin
                    part = parts[among]
                    low = np.int64(x & U64(0xFFFFFFFF))
                    if among < 65536:  # so few that the estimate is at most one too low
                        index = (low * among) >> 32
                        index += low - index * part >= part
                    else:
                        index = low // part
                    if index >= among:
                        return _OUT_OF_RANGE
                    if distinct:
                        value = 2 * slots[begin + index]
                        slots[begin + index] = slots[begin + left - 1]
                        share = part
                        below = index * part
                    else:
                        level = np.int64(level_of[begin + index])
                        if level_room[level] == 0:
                            return _OVERFULL
                        level_room[level] -= 1
                        share = np.int64(borders[level + 1] - borders[level]) * part
                        below = (np.int64(borders[level]) - begin) * part
                        value = points[level]
                    x = U64(share) * (x >> U64(32)) + U64(low - below)
                    word = U64(words[at]) if at < words.size else U64(0)
                    refill = x < U64(_FIRST_STATE)
                    x = (x << U64(32)) | word if refill else x
                    at += 1 if refill else 0
                values[position] = value
                position += 1
                x, other = other, x
    if at > words.size:
        return _TOO_SHORT
    if at < words.size or x != U64(_FIRST_STATE) or other != U64(_FIRST_STATE):
        return _TOO_LONG
    return 0


@numba.njit(cache=True, error_model="numpy")
def encode(
    levels: NDArray[np.int32],
    borders: NDArray[np.int32],
    groups: NDArray[np.int32],
    distinct: bool,
) -> NDArray[np.uint32]:
    """Return the words that tell of levels, given in the order of the broadcast ranking.

    The model runs forwards and the coder backwards, since rANS is a stack.
    """
    size = levels.size
    group_count = groups.size - 1
    phases = phases_of(group_count, size)
    counts, counted, cumulative, search, wait, next_wait = _models(phases, group_count)
    longest_wait = max(LONGEST_WAIT, 4 * group_count)
    starts = borders[groups]
    room = starts[1:] - starts[:-1]
    several = groups[1:] - groups[:-1] > 1
    group_of = np.empty(groups[-1], np.uint8)
    for number in range(group_count):
        group_of[groups[number] : groups[number + 1]] = number
    slots = _numbers(size if distinct else 0)
    where = slots.copy()
    parts = _parts(room, several)

    group_intervals = np.empty((size, 2), np.uint16)
    level_intervals = np.empty((size, 2), np.uint32)
    position = 0
    for home in range(group_count):
        start = np.int64(starts[home])
        length = np.int64(starts[home + 1]) - start
        for phase in range(phases):
            end = start + (phase + 1) * length // phases
            tally, bounds, finder = counts[phase], cumulative[phase], search[phase]
            while position < end:
                if wait[phase] == 0:
                    counted[phase] = _adapt(tally, counted[phase], bounds, finder)
                    wait[phase] = next_wait[phase]
                    next_wait[phase] = min(2 * next_wait[phase], longest_wait)
                wait[phase] -= 1
                level = np.int64(levels[position])
                group = np.int64(group_of[level])
                symbol = group - home if group >= home else group - home + group_count
                first = bounds[symbol]
                group_intervals[position, 0] = first
                group_intervals[position, 1] = bounds[symbol + 1] - first
                tally[symbol] += STEP
                counted[phase] += STEP
                level_intervals[position, 1] = 0
                if several[group]:
                    begin = np.int64(starts[group])
                    if distinct:
                        left = np.int64(room[group])
                        room[group] = left - 1
                        part = parts[left]
                        wanted = begin + level - groups[group]
                        index = np.int64(where[wanted])
                        last = slots[begin + left - 1]
                        slots[index] = last
                        where[last] = index
                        level_intervals[position, 0] = (index - begin) * part
                        level_intervals[position, 1] = part & 0xFFFFFFFF
                    else:
                        part = parts[np.int64(starts[group + 1]) - begin]
                        level_intervals[position, 0] = (np.int64(borders[level]) - begin) * part
                        level_intervals[position, 1] = (
                            np.int64(borders[level + 1] - borders[level]) * part & 0xFFFFFFFF
                        )
                position += 1

    words = np.empty(2 * size + 4, np.uint32)
    at = words.size
    x = other = U64(_FIRST_STATE)
    for back in range(size):
        position = size - 1 - back
        x, other = other, x
        share = U64(level_intervals[position, 1])
        if share > U64(0):  # 0 stands for 2^32, where there is nothing to tell
            if x >> U64(32) >= share:
                at -= 1
                words[at] = np.uint32(x & U64(0xFFFFFFFF))
                x >>= U64(32)
            x = ((x // share) << U64(32)) + x % share + U64(level_intervals[position, 0])
        share = U64(group_intervals[position, 1])
        if x >> U64(64 - PRECISION) >= share:
            at -= 1
            words[at] = np.uint32(x & U64(0xFFFFFFFF))
            x >>= U64(32)
        x = ((x // share) << U64(PRECISION)) + x % share + U64(group_intervals[position, 0])
    for state in (other, x):
        words[at - 1] = np.uint32(state >> U64(32))
        words[at - 2] = np.uint32(state & U64(0xFFFFFFFF))
        at -= 2
    return words[at:].copy()
