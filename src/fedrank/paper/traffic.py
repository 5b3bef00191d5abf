"""What a client and round cost to communicate: the paper's table and figure, with our kinds added."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fedrank.ballots import BallotFormat
from fedrank.ballots.traffic import least_bits, packed_bits
from fedrank.rank import Layout

CODED_BITS = {
    "exact coded": (13.73, 16.08),
    "levels=256 coded": (2.64, 5.10),
    "levels=16 dithered coded": (0.60, 5.61),
    "levels=4 dithered coded": (0.15, 6.15),
}
"""Bits per edge of ballots and broadcasts, measured on MNIST and LeNet: docs/results/ballots.md."""


@dataclass(frozen=True)
class TrafficRow:
    """What one client sends and receives in one round, in bytes."""

    name: str
    upload: float
    download: float
    source: str
    """`paper` where the paper counts so too, `packed` for our kinds, `measured` where data decides."""

    @property
    def upload_mebibytes(self) -> float:
        return self.upload / 2**20

    @property
    def download_mebibytes(self) -> float:
        return self.download / 2**20


def traffic_table(layout: Layout) -> Iterator[TrafficRow]:
    """Yield the rows of the paper's table for any network, then ours.

    A weight has 32 bits, a sign 1. TopK sends the chosen weights, and one bit for every weight that
    says which were chosen.
    """
    weights, signs = 4.0 * layout.size, layout.size / 8
    ranking = packed_bits(layout, BallotFormat.parse("exact")) / 8
    yield TrafficRow("FedAvg", weights, weights, "paper")
    yield TrafficRow("FRL", ranking, ranking, "paper")
    for share in (50, 10):
        sparse = packed_bits(layout, BallotFormat.parse(f"top={share}%")) / 8
        yield TrafficRow(f"Sparse-FRL, top {share}%", sparse, ranking, "paper")
    yield TrafficRow("SignSGD", signs, weights, "paper")
    for share in (50, 10):
        yield TrafficRow(f"TopK {share}%", weights * share / 100 + signs, weights, "paper")
    least = least_bits(layout) / 8
    yield TrafficRow("FRL, lower bound log2(n!)", least, least, "paper")
    for levels in (256, 16, 4):
        packed = packed_bits(layout, BallotFormat.parse(f"levels={levels}")) / 8
        yield TrafficRow(f"FRL, levels={levels} packed", packed, packed, "packed")
    for kind, (up, down) in CODED_BITS.items():
        yield TrafficRow(f"FRL, {kind}", up * layout.size / 8, down * layout.size / 8, "measured")


def traffic_by_size(sizes: list[int]) -> Iterator[tuple[int, TrafficRow]]:
    """Yield the table for networks of one layer with so many parameters: the paper's figure."""
    for size in sizes:
        for row in traffic_table(Layout.of([("layer", (size,))])):
            yield size, row
