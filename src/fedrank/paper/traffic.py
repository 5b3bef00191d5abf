"""The traffic of one client and round: the paper's table and figure, with our ballot formats added."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.table import Table

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
    """`paper` if the paper counts it too, `packed` for our formats, `measured` if it depends on the data."""

    @property
    def upload_mebibytes(self) -> float:
        return self.upload / 2**20

    @property
    def download_mebibytes(self) -> float:
        return self.download / 2**20


def traffic_table(layout: Layout) -> Iterator[TrafficRow]:
    """Yield the rows of the paper's table for any network, then ours.

    A weight has 32 bits, a sign 1. TopK sends the chosen weights, and one bit for every weight to say
    which were chosen.
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
    """Yield the table for networks of one layer of each size: the paper's figure."""
    for size in sizes:
        for row in traffic_table(Layout.of([("layer", (size,))])):
            yield size, row


def traffic_listing(network: str, edges: int, rows: Iterable[TrafficRow]) -> Table:
    """Return what a client sends and receives with every method, for the terminal."""
    table = Table(
        title=f"{network}, {edges:,} edges: one client and round, in MiB",
        caption="measured: bits per edge on MNIST, rounds 1 to 30; they depend on the data",
        title_justify="left",
        caption_justify="left",
        box=None,
        padding=(0, 2),
    )
    table.add_column("method")
    table.add_column("upload", justify="right")
    table.add_column("download", justify="right")
    table.add_column("counted")
    for row in rows:
        counted = {"paper": "as in the paper", "packed": "packed", "measured": "measured"}[row.source]
        table.add_row(row.name, f"{row.upload_mebibytes:.2f}", f"{row.download_mebibytes:.2f}", counted)
    return table
