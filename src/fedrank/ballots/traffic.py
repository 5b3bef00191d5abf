"""What rankings cost to send, as the paper counts it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedrank.ballots.format import BallotFormat
from fedrank.rank import Layout


@dataclass(frozen=True)
class Traffic:
    """What one client transfers in one round."""

    upload_bytes: float
    download_bytes: float


def packed_bits(layout: Layout, ballot_format: BallotFormat) -> int:
    """Return the bits of a ballot's numbers: ceil(log2 n) for each edge it names, layer by layer.

    Source: the paper's section on communication efficiency.
    """
    return sum(ballot_format.named(layer.size) * ballot_format.width(layer.size) for layer in layout)


def least_bits(layout: Layout) -> float:
    """Return log2(n!) summed over the layers: what the paper names as the lower bound of a ranking."""
    return sum(math.lgamma(layer.size + 1) for layer in layout) / math.log(2)
