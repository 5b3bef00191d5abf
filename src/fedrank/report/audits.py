"""The audit of a run's votes, as tables."""

from __future__ import annotations

import statistics
from typing import Any

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fedrank.errors import RunError
from fedrank.experiment.config import Experiment
from fedrank.experiment.rundir import RunDirectory
from fedrank.paper.bound import failure_bound, failure_probability, whole_share

SHOWN_ROUNDS = 10
SHOWN_BALLOTS = 12
SHOWN_COUNTS = (1, 2, 5, 10)
APART = 5.0
"""How many times the usual deviation from the median a ballot stands apart."""

Record = dict[str, Any]


def recorded_votes(directory: RunDirectory) -> dict[int, Record]:
    """Return the rounds of a run that held a vote, by their numbers."""
    votes = {record["round"]: record for record in directory.read_metrics() if record.get("vote")}
    if not votes:
        raise RunError(
            f"{directory.path}: no vote on edges was held; method.name is {directory.experiment.method.name}"
        )
    return votes


def layer_rows(record: Record) -> tuple[list[str], list[list[str]]]:
    """Return what the vote of a round has done to each layer: headings and rows."""
    counts = _shown_counts(record)
    rows = [
        [
            layer["name"],
            f"{layer['edges']:,}",
            f"{layer['changed'] / layer['edges']:.2%}",
            f"{layer['agreement']:.3f}",
            *(f"{layer['flippable'][count] / layer['edges']:.0%}" for count in counts),
        ]
        for layer in record["vote"]["layers"]
    ]
    return ["layer", "edges", "changed", "agreement", *(f"by {count}" for count in counts)], rows


def layer_note(record: Record) -> str:
    """Explain the headings of `layer_rows`."""
    flipping = (
        "By N: edges that N further ballots could move across the border at most; no N ballots whatever can "
        "flip the others."
        if _shown_counts(record)
        else "How many ballots it takes to flip an edge is known for the vote 'borda' alone."
    )
    note = "Changed: edges that changed sides. Agreement: the ballots' mean rank correlation with the vote."
    return f"{note} {flipping}"


def layer_table(number: int, record: Record) -> Group:
    """Return what the vote of a round has done to each layer."""
    table = _table(f"The vote of round {number}, {len(record['clients'])} ballots")
    headings, rows = layer_rows(record)
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "layer" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return _with_note(table, layer_note(record))


def history_table(votes: dict[int, Record]) -> Table:
    """Return some rounds from the first to the last, all layers together."""
    table = _table("From round to round, all layers")
    shown = _shown_counts(votes[max(votes)])
    for column in ("round", "changed", "agreement", *(f"by {count}" for count in shown)):
        table.add_column(column, justify="right")
    numbers = sorted(votes)
    every = max(1, -(-len(numbers) // SHOWN_ROUNDS))
    for number in [*numbers[:-1:every], numbers[-1]]:
        layers = votes[number]["vote"]["layers"]
        edges = sum(layer["edges"] for layer in layers)
        flippable = (sum(layer["flippable"].get(count, 0) for layer in layers) for count in shown)
        table.add_row(
            str(number),
            f"{sum(layer['changed'] for layer in layers) / edges:.2%}",
            f"{statistics.fmean(layer['agreement'] for layer in layers):.3f}",
            *(f"{total / edges:.0%}" for total in flippable),
        )
    return table


BALLOT_HEADINGS = ("client", "length", "agreement", "stands apart", "")
BALLOT_NOTE = (
    "Length: how far a ballot moves edges from the broadcast (root mean square, in shares of a layer). "
    "Stands apart: how many usual deviations from the median, in length or agreement."
)


def ballot_rows(record: Record) -> list[list[str]]:
    """Return the ballots of a round that lie farthest from the others, under `BALLOT_HEADINGS`."""
    ballots, malicious = record["vote"]["ballots"], set(record["malicious"])
    order = sorted(zip(apartness(ballots), ballots, strict=True), key=lambda pair: -pair[0])
    return [
        [
            str(ballot["client"]),
            f"{ballot['length']:.1%}",
            f"{ballot['agreement']:.3f}",
            f"{apart:.1f}",
            "malicious" if ballot["client"] in malicious else "",
        ]
        for apart, ballot in order[:SHOWN_BALLOTS]
    ]


def ballot_table(record: Record) -> Group:
    """Return the ballots of a round that lie farthest from the others."""
    table = _table(f"Ballots of round {record['round']}, those that stand apart most first")
    for heading in BALLOT_HEADINGS:
        table.add_column(heading, justify="right" if heading else "left")
    for row in ballot_rows(record):
        table.add_row(*row, style="bold" if float(row[3]) > APART else None)
    return _with_note(table, BALLOT_NOTE)


def apartness(ballots: list[Record]) -> list[float]:
    """Return how far each ballot is from the median in length or agreement, in median deviations."""
    far = [0.0] * len(ballots)
    for key in ("length", "agreement"):
        values = [ballot[key] for ballot in ballots]
        middle = statistics.median(values)
        usual = statistics.median(abs(value - middle) for value in values) or 1e-12
        far = [max(before, abs(value - middle) / usual) for before, value in zip(far, values, strict=True)]
    return far


def failure_table(experiment: Experiment) -> Group:
    """Return how likely a simplified vote fails, by the paper's bound and exactly."""
    n = experiment.clients_per_round
    alpha = whole_share(n, experiment.attack.share)
    table = _table(f"How likely a vote of {n} ballots drops a good edge, {round(alpha * n)} malicious")
    for column in ("benign clients rank it on top", "the paper's bound", "exactly"):
        table.add_column(column, justify="right")
    for p in (0.6, 0.7, 0.8, 0.9):
        bound, exact = failure_bound(n, p, alpha), failure_probability(n, p, alpha)
        table.add_row(f"{p:.0%}", f"{bound:.3f}", f"{exact:.4f}")
    return _with_note(table, "For the simplified vote of the paper's proof: each ballot only says in or out.")


def _shown_counts(record: Record) -> list[Any]:
    """Return for which numbers of further ballots there is room; keys read from a file are words."""
    known = record["vote"]["layers"][0]["flippable"] or {}
    return [count for count in known if int(count) in SHOWN_COUNTS]


def _with_note(table: Table, note: str) -> Group:
    return Group(table, Padding(Text(note, style="dim"), (0, 2)))


def _table(title: str) -> Table:
    return Table(title=f"\n{title}", title_justify="left", box=None, padding=(0, 1))
