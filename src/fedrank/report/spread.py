"""A drawing of how classes spread over clients."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from fedrank.data import Federation

COLORS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9",
    "#d55e00", "#f0e442", "#999999", "#8c564b", "#6a51a3",
)  # fmt: skip
BAR_WIDTH = 50
CLIENTS_DRAWN = 20


def class_counts(federation: Federation) -> NDArray[np.int64]:
    """Return how many samples of each class (columns) each client (rows) has."""
    classes = federation.dataset.classes
    labels = federation.dataset.labels
    return np.stack(
        [
            np.bincount(labels[np.concatenate([client.train, client.test])], minlength=classes)
            for client in federation
        ]
    )


def spread_drawing(name: str, federation: Federation) -> Group:
    """Draw a bar for each of some clients, a color for each class, and sum up all clients."""
    counts = class_counts(federation)
    sizes, classes_held = counts.sum(axis=1), (counts > 0).sum(axis=1)
    chosen = np.unique(np.linspace(0, len(counts) - 1, CLIENTS_DRAWN).astype(int))
    per_cell = max(1.0, sizes[chosen].max() / BAR_WIDTH)
    table = Table(box=None, padding=(0, 1), title=_title(name, counts), title_justify="left")
    for column in ("client", "samples", "classes"):
        table.add_column(column, justify="right")
    table.add_column("its samples by class")
    for client in chosen:
        bar = _bar(counts[client], per_cell)
        table.add_row(
            escape(str(federation.name_of(client))), str(sizes[client]), str(classes_held[client]), bar
        )
    facts = Text(
        f"samples per client: {_range(sizes)}\nclasses per client: {_range(classes_held)}\n"
        f"clients without samples: {np.count_nonzero(sizes == 0)}"
    )
    parts: list[Table | Text] = [table, facts]
    if counts.shape[1] <= len(COLORS):
        parts.insert(1, _legend(counts.shape[1]))
    return Group(*parts)


def _title(name: str, counts: NDArray[np.int64]) -> str:
    return f"{name}: {counts.sum():,} samples of {counts.shape[1]} classes dealt to {len(counts):,} clients"


def _range(values: NDArray[np.int64]) -> str:
    return f"{values.min()} to {values.max()}, median {np.median(values):g}"


def _bar(counts: NDArray[np.int64], per_cell: float) -> Text:
    bar = Text()
    ends = np.round(np.cumsum(counts) / per_cell).astype(int)
    begin = 0
    for label, end in enumerate(ends):
        bar.append("█" * int(end - begin), style=COLORS[label % len(COLORS)])
        begin = end
    return bar


def _legend(classes: int) -> Text:
    legend = Text("class ")
    for label in range(classes):
        legend.append("██", style=COLORS[label])
        legend.append(f" {label}  ")
    return legend
