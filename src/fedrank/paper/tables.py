"""The tables of the paper and beyond, our numbers beside the published ones."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from rich.console import Group
from torch import nn

from fedrank import __version__
from fedrank.ballots.failure import failure_bound, failure_probability, whole_share
from fedrank.errors import RunError
from fedrank.experiment.records import CellResult, FinishedCell, UnfinishedCell
from fedrank.experiment.sweep import SEED
from fedrank.nn import NETWORKS, supernetwork
from fedrank.paper.published import ARCHITECTURES
from fedrank.paper.recipes import FEMNIST_CLIENTS, Recipe, Shows
from fedrank.paper.traffic import TrafficRow, traffic_table
from fedrank.report.audits import audit_table, with_note
from fedrank.report.comparison import Metric as Quantity
from fedrank.report.pivot import Pivot
from fedrank.report.text_table import TextTable

SMOOTHED = 3
"""Accuracies on small data are noisy, so this many last measurements are averaged."""
Metric = Literal["mean", "std", "min", "max"]
SPREAD: tuple[Metric, ...] = ("mean", "std", "min", "max")
PERCENT = Quantity("accuracy in percent")
PAPER = "paper"
BOUND_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4)
"""Rounded up to whole clients, because 10% of 25 is not a whole number."""
NETWORK_OF = {"mnist": "lenet", "cifar10": "conv8", "femnist": "lenet-62"}


def results_table(recipe: Recipe, rows: Sequence[CellResult], notes: Sequence[str] = ()) -> TextTable:
    """Return the results of a recipe's runs as a table; runs that are not finished are marked."""
    published = any(row.published for row in rows)
    pivot = Pivot.of(rows, recipe.rows, recipe.columns)
    metrics: Sequence[Metric | None] = SPREAD if recipe.shows is Shows.SPREAD else (None,)
    keys = [*recipe.rows, *(["metric"] if recipe.shows is Shows.SPREAD else [])]
    headings = list(keys)
    for column in pivot.columns:
        for name in _columns(recipe, " ".join(column)):
            headings += [name, *([_theirs_heading(recipe, name)] if published else [])]
    lines = []
    for position in pivot.rows:
        for metric in metrics:
            line = [*position, *([metric] if metric else [])]
            for column in pivot.columns:
                cell = pivot.cells.get((position, column), ())
                blank = [""] * len(_columns(recipe, ""))
                ours = _ours(recipe, cell, metric) if cell else blank
                theirs = _theirs(recipe, cell[0], metric) if cell and published else blank
                for pair in zip(ours, theirs, strict=True):
                    line += pair if published else pair[:1]
            lines.append(line)
    problems = _in_order(
        f"{row.state.capitalize()}: {row.problem or row.failure}"
        for row in rows
        if isinstance(row, UnfinishedCell) and (row.problem or row.failure)
    )
    return TextTable(
        f"{recipe.source}: {recipe.title}",
        headings,
        lines,
        [_legend(recipe, rows), *notes, *problems],
        keys=len(keys),
        together=len(_columns(recipe, "")) * (2 if published else 1),
        reference=PAPER,
    )


def _columns(recipe: Recipe, column: str) -> list[str]:
    traffic = ["upload", "download"] if recipe.shows in (Shows.TRAFFIC, Shows.SENT) else []
    return [column or "accuracy", *traffic]


def _theirs_heading(recipe: Recipe, name: str) -> str:
    """Return the heading of the paper's numbers, with the name of the number if a run has several."""
    return PAPER if len(_columns(recipe, "")) == 1 else f"{PAPER} {name}"


def _ours(recipe: Recipe, cell: Sequence[CellResult], metric: Metric | None) -> list[str]:
    if recipe.shows is Shows.TRAFFIC:
        sizes = _mebibytes(cell[0].coordinates)
        return [_accuracy(recipe, cell, metric), *(f"{each:.2f}" for each in sizes)]
    if recipe.shows is Shows.SENT:
        return [_accuracy(recipe, cell, metric), *_kibibytes(cell)]
    return [_accuracy(recipe, cell, metric)]


def _accuracy(recipe: Recipe, cell: Sequence[CellResult], metric: Metric | None) -> str:
    """Return what some runs that differ only in the seed reached, or why there is nothing."""
    finished = _finished(cell)
    if not finished:
        return ", ".join(_in_order(row.state for row in cell))
    text = _numbers(recipe, finished, metric)
    if len(finished) < len(cell):
        text += f" ({len(finished)} of {len(cell)})"
    backdoors = [row.evaluation.backdoor for row in finished if row.evaluation.backdoor is not None]
    if backdoors:
        text += f" (backdoor {100 * statistics.fmean(backdoors):.0f})"
    return text if {row.made_with.fedrank for row in finished} == {__version__} else f"{text} *"


def _numbers(recipe: Recipe, rows: Sequence[FinishedCell], metric: Metric | None) -> str:
    if metric is not None:
        return PERCENT.text([_of_clients(row, metric) for row in rows])
    match recipe.shows:
        case Shows.SMOOTHED:
            return PERCENT.text([accuracy_of(row) for row in rows])
        case Shows.WORST:
            return f"{PERCENT.text([accuracy_of(row) for row in rows])} ({_worst(rows)})"
        case Shows.SENT:
            return PERCENT.text([row.evaluation.test_accuracy for row in rows])
    deviation = statistics.fmean(_of_clients(row, "std") for row in rows)
    return f"{PERCENT.text([_of_clients(row, 'mean') for row in rows])} ({100 * deviation:.1f})"


def _of_clients(row: FinishedCell, metric: Metric) -> float:
    value: float | None = getattr(row.evaluation.clients, metric, None)
    if value is None:
        raise RunError(f"the result of {' '.join(row.coordinates.values())} has no {metric!r} of the clients")
    return value


def accuracy_of(row: FinishedCell) -> float:
    """Return a finished run's accuracy on all test data, averaged over its last measurements."""
    return statistics.fmean(row.curve.accuracy[-SMOOTHED:])


def _worst(rows: Sequence[FinishedCell]) -> str:
    """Return the worst measurement of the second half of runs, and their worst class at the end."""
    second_halves = (row.curve.accuracy[len(row.curve.accuracy) // 2 :] for row in rows)
    worst = f"{100 * min(min(measured) for measured in second_halves):.1f}"
    classes = [share for row in rows for share in row.curve.worst_class[-SMOOTHED:]]
    return f"{worst}, class {100 * min(classes):.0f}" if classes else worst


def smoothing(rows: Sequence[FinishedCell]) -> str:
    """Say how many measurements accuracies are averaged over, if more than one."""
    most = max((len(row.curve.accuracy[-SMOOTHED:]) for row in rows), default=SMOOTHED)
    return f", the mean of the last {most} measurements" if most > 1 else ""


def _theirs(recipe: Recipe, row: CellResult, metric: Metric | None) -> list[str]:
    numbers = row.published or {}
    match recipe.shows:
        case Shows.SPREAD:
            return [str(numbers[metric]) if metric in numbers else ""]
        case Shows.TRAFFIC:
            return [_with_deviation(numbers), str(numbers["upload"]), str(numbers["download"])]
        case _:
            return [_with_deviation(numbers)]


def _with_deviation(numbers: Mapping[str, float]) -> str:
    return f"{numbers['mean']} ({numbers['std']})" if numbers else ""


def _mebibytes(coordinates: dict[str, str]) -> tuple[float, float]:
    """Return what an algorithm sends and receives with the paper's network, as the paper counts."""
    row = next(
        row for row in _traffic(NETWORK_OF[coordinates["data"]]) if row.name == coordinates["algorithm"]
    )
    return row.upload_mebibytes, row.download_mebibytes


@functools.cache
def _traffic(network: str) -> list[TrafficRow]:
    return list(traffic_table(supernetwork(NETWORKS[network](), seed=0).layout))


def _kibibytes(cell: Sequence[CellResult]) -> list[str]:
    sent = [row.sent for row in _finished(cell)]
    if not sent:
        return ["", ""]
    both = ([each.upload_bytes for each in sent], [each.download_bytes for each in sent])
    return [f"{statistics.fmean(sizes) / 2**10:,.0f}" for sizes in both]


def _legend(recipe: Recipe, rows: Sequence[CellResult]) -> str:
    finished = _finished(rows)
    averaged = smoothing(finished) if recipe.shows is Shows.SMOOTHED else ""
    text = f"Numbers: {recipe.shows.value}{averaged}{_seeds(recipe, rows)}. {recipe.note}".strip()
    if others := sorted({row.made_with.fedrank for row in finished} - {__version__}):
        text += f" *: made by fedrank {', '.join(others)}, this is {__version__}."
    clients = (
        row.evaluation.clients.clients
        for row in finished
        if row.evaluation.clients and row.preset.startswith("femnist")
    )
    writers = {count for count in clients if count is not None}
    if writers and writers != {FEMNIST_CLIENTS}:
        text += f" femnist: {max(writers)} clients (paper: {FEMNIST_CLIENTS})."
    return text


def _seeds(recipe: Recipe, rows: Sequence[CellResult]) -> str:
    """Say over how many seeds numbers are averaged, unless seeds are rows or columns."""
    if recipe.has_seeds:
        return ""
    seeds = _in_order(row.coordinates[SEED] for row in rows if SEED in row.coordinates)
    if not seeds:
        return ""
    if len(seeds) == 1:
        return f"; seed {seeds[0]}"
    return f"; mean ± standard deviation over {len(seeds)} seeds ({', '.join(seeds)})"


def _finished(rows: Iterable[CellResult]) -> list[FinishedCell]:
    return [row for row in rows if isinstance(row, FinishedCell)]


def made(rows: Sequence[FinishedCell]) -> str:
    """Say when finished runs were made, and with which versions."""

    def told(key: str) -> str:
        values = sorted({str(getattr(row.made_with, key)) for row in rows})
        return values[0] if len(values) == 1 else f"{values[0]} to {values[-1]}"

    revisions = sorted({_short(row.made_with.revision) for row in rows if row.made_with.revision})
    source = f" (revision{'s' if len(revisions) > 1 else ''} {', '.join(revisions)})" if revisions else ""
    versions = f"fedrank {told('fedrank')}{source}, torch {told('torch')}, NumPy {told('numpy')}"
    return f"made {told('date')}, {versions}"


def _short(revision: str) -> str:
    """Return the first letters of a revision, and whether its source had been changed.

    >>> _short("75733fc0a1b2c3d4 with changes")
    '75733fc with changes'
    """
    name, _, changed = revision.partition(" ")
    return f"{name[:7]} {changed}".strip()


def bound_table(recipe: Recipe, clients: int = 25) -> TextTable:
    """Return the probability that a vote of so many clients fails."""
    shares = _in_order(whole_share(clients, share) for share in BOUND_SHARES)
    rows = [
        [
            f"{round(share * clients)} ({share:.0%})",
            *(
                text
                for p in (0.6, 0.7, 0.8, 0.9)
                for text in (
                    f"{failure_bound(clients, p, share):.3f}",
                    f"{failure_probability(clients, p, share):.3f}",
                )
            ),
        ]
        for share in shares
    ]
    headings = ["malicious", *(text for p in (0.6, 0.7, 0.8, 0.9) for text in (f"p={p}", "exact"))]
    note = (
        f"{clients} clients per round; a benign client favors a good edge with probability p. Each p has the "
        "paper's bound, which says nothing where it is 1, and the exact probability beside it."
    )
    return TextTable(f"{recipe.source}: {recipe.title}", headings, rows, [note], together=2)


def communication_table(recipe: Recipe) -> TextTable:
    """Return the traffic of every method on the paper's networks."""
    names = ("lenet", "conv8", "lenet-62")
    tables = {name: _traffic(name) for name in names}
    rows = [
        [
            row.name,
            *(
                f"{tables[name][number].upload_mebibytes:.2f} / {tables[name][number].download_mebibytes:.2f}"
                for name in names
            ),
        ]
        for number, row in enumerate(tables["lenet"])
    ]
    notes = [
        "MiB that one client sends / receives in one round.",
        "The lower bound holds for a ranking by itself. Coded ballots can be shorter, because they are coded "
        "against the broadcast, which a client's ranking resembles. Their size depends on the data; here "
        "it is that measured on MNIST.",
    ]
    return TextTable(f"{recipe.source}: {recipe.title}", ["method", *names], rows, notes)


def networks_table(recipe: Recipe) -> TextTable:
    """Return the layers of the paper's networks."""
    rows = []
    for name, published in ARCHITECTURES.items():
        ours = layers_of(NETWORKS[name]())
        rows += [
            [name, layer, _size(size), _size(theirs)]
            for (layer, size), (_, theirs) in zip(ours, published, strict=True)
        ]
        sums = [sum(size for _, size in layers if size) for layers in (ours, published)]
        rows.append([name, "all", *map(_size, sums)])
    headings = ["network", "layer", "parameters", PAPER]
    note = "Our networks pool before ReLU, which gives the same numbers. The paper prints no sums."
    return TextTable(
        f"{recipe.source}: {recipe.title}", headings, rows, [note], keys=2, together=2, reference=PAPER
    )


def failure_table(n: int, share: float) -> Group:
    """Return how likely a simplified vote of n clients fails, by the paper's bound and exactly."""
    alpha = whole_share(n, share)
    table = audit_table(f"How likely a vote of {n} ballots drops a good edge, {round(alpha * n)} malicious")
    for column in ("benign clients rank it on top", "the paper's bound", "exactly"):
        table.add_column(column, justify="right")
    for p in (0.6, 0.7, 0.8, 0.9):
        bound, exact = failure_bound(n, p, alpha), failure_probability(n, p, alpha)
        table.add_row(f"{p:.0%}", f"{bound:.3f}", f"{exact:.4f}")
    return with_note(table, "For the simplified vote of the paper's proof: each ballot only says in or out.")


def layers_of(network: nn.Module) -> list[tuple[str, int | None]]:
    """Return a network's layers in the paper's words, with their numbers of parameters.

    The paper lists an activation with the layer before it, and pooling after both.
    """
    found: list[tuple[str, int | None]] = []
    for module in network.modules():
        match module:
            case nn.Conv2d():
                found.append((f"Convolution({module.out_channels})", module.weight.numel()))
            case nn.Linear():
                found.append((f"FC({module.out_features})", module.weight.numel()))
            case nn.MaxPool2d():
                found.append((f"MaxPool({module.kernel_size}x{module.kernel_size})", None))
            case nn.ReLU():
                last = max(number for number, (_, size) in enumerate(found) if size)
                found[last] = (f"{found[last][0]} + ReLU", found[last][1])
    return found


def _size(parameters: int | None) -> str:
    return "-" if parameters is None else f"{parameters:,}"


COMPUTED = {"bound": bound_table, "communication": communication_table, "networks": networks_table}
"""Tables that need no run."""


def _in_order(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))
