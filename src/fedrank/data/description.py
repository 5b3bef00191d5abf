"""Federations and samples as people see them: a line in a terminal, a table in a notebook."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fedrank.data.federation import Dataset, Federation, Samples

SHOWN_CLIENTS = 10


def of_dataset(dataset: Dataset) -> str:
    """Return a data set in a line."""
    return f"Dataset({_samples(dataset)}, {dataset.classes:,} classes)"


def of_samples(samples: Samples) -> str:
    """Return samples in a line."""
    return f"Samples({_samples(samples)})"


def of_federation(federation: Federation) -> str:
    """Return a federation in a line."""
    return f"Federation({len(federation):,} clients, {_facts(federation)})"


def as_html(federation: Federation) -> str:
    """Return a federation as a line and a table of its first clients."""
    labels = federation.dataset.labels
    rows = []
    for number, client in enumerate(federation.clients[:SHOWN_CLIENTS]):
        classes = np.unique(labels[client.train]).size
        cells = (federation.name_of(number), f"{client.train.size:,}", f"{client.test.size:,}", classes)
        rows.append("".join(f"<td>{escape(str(cell))}</td>" for cell in cells))
    headings = ("client", "training samples", "test samples", "classes")
    head = "".join(f"<th>{heading}</th>" for heading in headings)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    more = len(federation) - len(rows)
    rest = f"<p>and {more:,} more</p>" if more else ""
    title = f"<p><b>{len(federation):,} clients</b>: {escape(_facts(federation))}</p>"
    return f"{title}<table><tr>{head}</tr>{body}</table>{rest}"


def _facts(federation: Federation) -> str:
    train = sum(client.train.size for client in federation.clients)
    shape, classes = federation.dataset.inputs.shape[1:], federation.dataset.classes
    return (
        f"{train:,} training and {federation.test.size:,} test samples of shape {shape}, {classes:,} classes"
    )


def _samples(samples: Dataset | Samples) -> str:
    return (
        f"{len(samples.labels):,} samples of shape {samples.inputs.shape[1:]} and type {samples.inputs.dtype}"
    )
