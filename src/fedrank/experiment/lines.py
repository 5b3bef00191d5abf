"""The lines of metrics.jsonl: which of them are rounds, and what is wrong with the others."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import groupby

from pydantic import ValidationError

from fedrank.experiment.records import RoundRecord

START = b'{"round": '
"""How every line begins."""

Line = tuple[bytes, RoundRecord]


def read_lines(content: bytes, completed: int) -> tuple[list[Line], list[str]]:
    """Return the rounds in order, and what is wrong, to follow the file's name.

    `completed` rounds should be there. A process that was killed may have written another one, or part of it.
    """
    numbers, found, problems = [], [], []
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        try:
            found.append((line.rstrip(b"\r\n"), RoundRecord.model_validate_json(line)))
            numbers.append(number)
        except ValidationError:
            if not _is_cut_off(line):
                problems.append(f", line {number}: damaged; the round is left out")
    rounds = [record.round for _, record in found]
    kept = ascending(rounds)
    problems += [
        f", line {numbers[position]}: round {rounds[position]} is out of order; the line is left out"
        for position in sorted(set(range(len(rounds))) - set(kept))
    ]
    known = [rounds[position] for position in kept]
    missing = sorted(set(range(1, max([completed, *known]) + 1)) - set(known))
    if len(missing) > len(problems):  # else these are the lines that were reported
        problems.append(f": {_spans(missing)} missing; the history and reports go without")
    return [found[position] for position in kept], problems


def _is_cut_off(line: bytes) -> bool:
    return not line.endswith(b"\n") and (line.startswith(START) or START.startswith(line))


def ascending(numbers: Sequence[int]) -> list[int]:
    """Return the positions of the most numbers that ascend: a single wrong one costs no other.

    >>> ascending([1, 2, 7, 4, 5]), ascending([1, 2, 3, 2])
    ([0, 1, 3, 4], [0, 1, 2])
    """
    ends: list[int] = []  # for every length, the position of the lowest number that ends such a sequence
    before: list[int | None] = []
    for position, number in enumerate(numbers):
        length = bisect_left(ends, number, key=numbers.__getitem__)
        before.append(ends[length - 1] if length else None)
        if length == len(ends) or number < numbers[ends[length]]:
            ends[length : length + 1] = [position]
    found: list[int] = []
    step = ends[-1] if ends else None
    while step is not None:
        found.append(step)
        step = before[step]
    return found[::-1]


def _spans(rounds: Sequence[int]) -> str:
    """Name some rounds.

    >>> _spans([3]), _spans([1, 2, 3, 7])
    ('round 3 is', 'rounds 1 to 3, 7 are')
    """
    spans = []
    for _, group in groupby(enumerate(rounds), key=lambda each: each[1] - each[0]):
        first, *more = [number for _, number in group]
        spans.append(f"{first} to {more[-1]}" if more else str(first))
    return f"rounds {', '.join(spans)} are" if len(rounds) > 1 else f"round {rounds[0]} is"
