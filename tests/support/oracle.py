"""Ballots and votes in plain Python: lists, dictionaries, fractions and sorted(). Slow and obvious."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import replace
from fractions import Fraction

from fedrank.ballots import BallotCodec, BallotFormat, Shape


def shift(codec: BallotCodec, sender: int) -> Fraction:
    """By what fraction of a level a client's borders are shifted."""
    if not codec.ballot_format.dithered:
        return Fraction(1, 2)
    message = struct.pack("<IQ", codec.round, sender) + codec.run
    return Fraction(int.from_bytes(hashlib.sha256(message).digest()[:2], "little"), 65536)


def points_of(codec: BallotCodec, ranking: list[int], sender: int) -> list[int]:
    """The points that a client's ranking gives to each edge."""
    points: list[int] = []
    for layer in codec.layout:
        order = list(ranking[layer.edges])
        size = len(order)
        by_edge = dict.fromkeys(range(size), 0)
        match codec.ballot_format.shape:
            case Shape.EXACT:
                for position, edge in enumerate(order):
                    by_edge[edge] = 2 * position
            case Shape.TOP:
                unsent = int((1 - codec.ballot_format.millionths / 1_000_000) * size)
                for position in range(unsent, size):
                    by_edge[order[position]] = 2 * position
            case Shape.LEVELS:
                levels = min(codec.ballot_format.levels, size)
                inner = [
                    int((q - Fraction(1, 2) + shift(codec, sender)) * size / levels) for q in range(1, levels)
                ]
                for begin, end in zip([0, *inner], [*inner, size], strict=True):
                    for edge in order[begin:end]:
                        by_edge[edge] = begin + end - 1  # twice the mean of begin, ..., end - 1
        points += [by_edge[edge] for edge in range(size)]
    return points


def displacements_of(codec: BallotCodec, ranking: list[int], sender: int) -> list[int]:
    """How far a client's ballot moves each edge from what the broadcast says in the same format."""
    told = points_of(codec, ranking, sender)
    assert codec.reference is not None
    unmoved = points_of(codec, codec.reference.tolist(), sender)
    exact = points_of(replace(codec, ballot_format=BallotFormat()), codec.reference.tolist(), sender)
    if codec.ballot_format.shape is not Shape.TOP:
        return [new - old for new, old in zip(told, unmoved, strict=True)]
    moves: list[int] = []
    for layer in codec.layout:
        unsent = int((1 - codec.ballot_format.millionths / 1_000_000) * layer.size)
        named = set(ranking[layer.edges][unsent:])
        for edge, (new, old) in enumerate(zip(told[layer.edges], exact[layer.edges], strict=True)):
            if edge in named:
                moves.append(new - old)
            else:
                moves.append(min(0, 2 * (unsent - 1) - old))
    return moves


def vote(codec: BallotCodec, rankings: list[list[int]]) -> list[int]:
    """The vote of clients 0, 1, 2, ..."""
    ballots = [points_of(codec, ranking, sender) for sender, ranking in enumerate(rankings)]
    totals = [sum(column) for column in zip(*ballots, strict=True)]
    result: list[int] = []
    for layer in codec.layout:
        of_layer = totals[layer.edges]
        result += sorted(range(layer.size), key=lambda edge: (of_layer[edge], edge))
    return result
