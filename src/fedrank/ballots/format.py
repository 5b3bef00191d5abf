"""Ballot formats: what a ballot contains of a ranking, and its encoding."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from fedrank.errors import ConfigError
from fedrank.rank import top_count

MILLION = 1_000_000


class Shape(enum.IntEnum):
    """What a ballot says about a ranking."""

    EXACT = 0
    """Every edge's position."""
    LEVELS = 1
    """Every edge's level: its position, rounded to one of Q levels."""
    TOP = 2
    """The positions of the top x% of the edges (Sparse-FRL)."""


@dataclass(frozen=True)
class BallotFormat:
    """The format of ballots, or of broadcasts. The server chooses it for a whole run.

    Parameters
    ----------
    shape : what is sent.
    levels : how many levels there are; 0 where positions are not rounded to levels.
    millionths : the share of the edges that a ballot names, in millionths.
    dithered : shift the borders between levels by a fraction of a level, different for every client.
    coded : entropy-coded against the ranking that both sides know; otherwise packed in fixed widths.
    """

    shape: Shape = Shape.EXACT
    levels: int = 0
    millionths: int = MILLION
    dithered: bool = False
    coded: bool = False

    def __post_init__(self) -> None:
        if self.shape is Shape.LEVELS and not 2 <= self.levels < 2**31:
            raise ConfigError("there must be at least 2 levels")
        if self.shape is Shape.TOP and not 0 < self.millionths <= MILLION:
            raise ConfigError("the share must be more than 0% and at most 100%")
        if (self.levels and self.shape is not Shape.LEVELS) or (
            self.millionths != MILLION and self.shape is not Shape.TOP
        ):
            raise ConfigError("levels and a top share belong to the shapes of that name")
        if self.dithered and self.shape is not Shape.LEVELS:
            raise ConfigError("only levels can be dithered")

    @classmethod
    def parse(cls, text: str) -> BallotFormat:
        """Parse a format from text.

        >>> BallotFormat.parse("levels=16 dithered coded")
        BallotFormat(shape=<Shape.LEVELS: 1>, levels=16, millionths=1000000, dithered=True, coded=True)
        >>> str(BallotFormat.parse("top=50%"))
        'top=50% packed'
        """
        first, *others = text.split() or [""]
        shape, _, number = first.partition("=")
        known = {"dithered", "packed", "coded"}
        if len(set(others)) < len(others) or not set(others) <= known or {"packed", "coded"} <= set(others):
            raise _unreadable(text)
        dithered, coded = "dithered" in others, "coded" in others
        try:
            match shape:
                case "exact" if not number:
                    return cls(Shape.EXACT, dithered=dithered, coded=coded)
                case "levels":
                    return cls(Shape.LEVELS, levels=int(number), dithered=dithered, coded=coded)
                case "top" if number.endswith("%"):
                    millionths = Decimal(number[:-1]) * (MILLION // 100)
                    if millionths == int(millionths):
                        return cls(Shape.TOP, millionths=int(millionths), dithered=dithered, coded=coded)
        except (ValueError, InvalidOperation, OverflowError) as error:
            raise _unreadable(text) from error
        raise _unreadable(text)

    @property
    def share(self) -> float:
        """The share of every layer's edges that a ballot names."""
        return self.millionths / MILLION

    @property
    def header_number(self) -> int:
        """What a ballot's header says of the format: the levels, the millionths, or 0 for exact rankings."""
        return self.millionths if self.shape is Shape.TOP else self.levels

    def named(self, size: int) -> int:
        """Return how many numbers a packed ballot holds for a layer: one for each edge that it names."""
        return top_count(size, self.share)

    def width(self, size: int) -> int:
        """Return the bits of each of these numbers: ceil(log2) of how many there are to choose from."""
        choices = min(self.levels, size) if self.shape is Shape.LEVELS else size
        return (choices - 1).bit_length()

    def packed_bytes(self, size: int) -> int:
        """Return the length of a packed layer."""
        return (self.named(size) * self.width(size) + 7) // 8

    def __str__(self) -> str:
        number = {
            Shape.EXACT: "",
            Shape.LEVELS: f"={self.levels}",
            Shape.TOP: f"={Decimal(self.millionths) / (MILLION // 100):f}%",
        }[self.shape]
        words = [self.shape.name.lower() + number]
        if self.dithered:
            words.append("dithered")
        words.append("coded" if self.coded else "packed")
        return " ".join(words)


def _unreadable(text: str) -> ConfigError:
    return ConfigError(
        f"unknown ballot format {text!r}: write 'exact', 'levels=16' or 'top=50%', "
        "optionally 'dithered' (levels only), then 'packed' or 'coded'"
    )
