"""Kinds of ballots: what of a ranking is sent, and how it is written down."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from fedrank.errors import ConfigError
from fedrank.rank.layout import top_count

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
class Kind:
    """A kind of ballot, or of broadcast. The server chooses it for a whole run.

    Parameters
    ----------
    shape : what is sent.
    number : the number of levels, or the top share in millionths; 0 for exact rankings.
    dithered : shift the borders between levels by a fraction of a level, other for every client.
    coded : entropy-coded against the ranking that both sides know; otherwise packed in fixed widths.
    """

    shape: Shape = Shape.EXACT
    number: int = 0
    dithered: bool = False
    coded: bool = False

    def __post_init__(self) -> None:
        legal = {
            Shape.EXACT: self.number == 0,
            Shape.LEVELS: 2 <= self.number < 2**31,
            Shape.TOP: 0 < self.number <= MILLION,
        }
        if not legal[self.shape]:
            raise ConfigError(f"{self}: levels are at least 2, a top share lies between 0% and 100%")
        if self.dithered and self.shape is not Shape.LEVELS:
            raise ConfigError(f"{self}: only levels can be dithered")

    @classmethod
    def parse(cls, text: str) -> Kind:
        """Read a kind from words.

        >>> Kind.parse("levels=16 dithered coded")
        Kind(shape=<Shape.LEVELS: 1>, number=16, dithered=True, coded=True)
        >>> str(Kind.parse("top=50%"))
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
                    return cls(Shape.EXACT, 0, dithered, coded)
                case "levels":
                    return cls(Shape.LEVELS, int(number), dithered, coded)
                case "top" if number.endswith("%"):
                    millionths = Decimal(number[:-1]) * (MILLION // 100)
                    if millionths == int(millionths):
                        return cls(Shape.TOP, int(millionths), dithered, coded)
        except (ValueError, InvalidOperation, OverflowError) as error:
            raise _unreadable(text) from error
        raise _unreadable(text)

    @property
    def share(self) -> float:
        """The share of every layer's edges that a ballot names."""
        return self.number / MILLION if self.shape is Shape.TOP else 1.0

    def named(self, size: int) -> int:
        """Return how many numbers a packed ballot holds for a layer: one for each edge that it names."""
        return top_count(size, self.share)

    def width(self, size: int) -> int:
        """Return the bits of each of these numbers: ceil(log2) of how many there are to choose from."""
        choices = min(self.number, size) if self.shape is Shape.LEVELS else size
        return (choices - 1).bit_length()

    def packed_bytes(self, size: int) -> int:
        """Return the length of a packed layer."""
        return (self.named(size) * self.width(size) + 7) // 8

    def __str__(self) -> str:
        number = {
            Shape.EXACT: "",
            Shape.LEVELS: f"={self.number}",
            Shape.TOP: f"={Decimal(self.number) / (MILLION // 100):f}%",
        }[self.shape]
        words = [self.shape.name.lower() + number]
        if self.dithered:
            words.append("dithered")
        words.append("coded" if self.coded else "packed")
        return " ".join(words)


def _unreadable(text: str) -> ConfigError:
    return ConfigError(
        f"{text!r} is no kind of ballot: write 'exact', 'levels=16' or 'top=50%', "
        "then 'dithered' (levels only) if you like, then 'packed' or 'coded'"
    )
