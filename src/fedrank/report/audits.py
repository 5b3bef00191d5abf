"""The audit of a run's votes as tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Group
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fedrank.aggregators.measured import dishonest_majority
from fedrank.ballots.audit import Audit, BallotAudit
from fedrank.ballots.candidates import Measured
from fedrank.errors import RunError
from fedrank.experiment.records import RoundRecord
from fedrank.experiment.rundir import METRICS, RunDirectory

SHOWN_ROUNDS = 10
SHOWN_BALLOTS = 12
SHOWN_COUNTS = (1, 2, 5, 10)
APART = 5.0
"""A ballot this many median deviations from the median is an outlier."""


@dataclass(frozen=True)
class Vote:
    """A round that held a vote on edges, with its audit."""

    round: int
    clients: tuple[int | str, ...]
    malicious: tuple[int | str, ...]
    audit: Audit
    measured: Measured | None = None


def votes_in(records: Iterable[RoundRecord]) -> dict[int, Vote]:
    """Return the rounds that held a vote, by their numbers."""
    return {
        record.round: Vote(record.round, record.clients, record.malicious, record.vote, record.measured)
        for record in records
        if record.vote is not None
    }


def recorded_votes(directory: RunDirectory) -> dict[int, Vote]:
    """Return the votes of a run, by their rounds; a run without any is refused."""
    records = directory.read_metrics()
    if not records:
        raise RunError(f"{directory.path}: {METRICS} has no completed round, so there is no vote to show")
    votes = votes_in(records)
    if not votes:
        method = directory.experiment.method.name
        raise RunError(f"{directory.path}: the run held no vote on edges (method.name is {method})")
    return votes


def layer_rows(audit: Audit) -> tuple[list[str], list[list[str]]]:
    """Return what a vote did to each layer: headings and rows."""
    counts = _shown_counts(audit)
    rows = [
        [
            layer.name,
            f"{layer.edges:,}",
            f"{layer.changed / layer.edges:.2%}",
            f"{layer.agreement:.3f}",
            *(f"{(layer.flippable or {})[count] / layer.edges:.0%}" for count in counts),
        ]
        for layer in audit.layers
    ]
    return ["layer", "edges", "changed", "agreement", *(f"by {count}" for count in counts)], rows


def layer_note(audit: Audit) -> str:
    """Explain the headings of `layer_rows`."""
    flipping = (
        "By N: edges that N further ballots could flip at most; no N ballots can flip the others."
        if _shown_counts(audit)
        else "How many ballots it takes to flip an edge is known only for the vote 'borda'."
    )
    note = "Changed: edges that changed sides. Agreement: the ballots' mean rank correlation with the vote."
    return f"{note} {flipping}"


def layer_table(vote: Vote) -> Group:
    """Return what a vote did to each layer."""
    table = audit_table(f"The vote of round {vote.round}, {len(vote.clients)} ballots")
    headings, rows = layer_rows(vote.audit)
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "layer" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return with_note(table, layer_note(vote.audit))


def history_table(votes: dict[int, Vote]) -> Table:
    """Return a selection of rounds from first to last, all layers together."""
    table = audit_table("From round to round, all layers")
    shown = _shown_counts(votes[max(votes)].audit)
    for column in ("round", "changed", "agreement", *(f"by {count}" for count in shown)):
        table.add_column(column, justify="right")
    numbers = sorted(votes)
    every = max(1, -(-len(numbers) // SHOWN_ROUNDS))
    for number in [*numbers[:-1:every], numbers[-1]]:
        layers = votes[number].audit.layers
        edges = sum(layer.edges for layer in layers)
        flippable = (sum((layer.flippable or {}).get(count, 0) for layer in layers) for count in shown)
        table.add_row(
            str(number),
            f"{sum(layer.changed for layer in layers) / edges:.2%}",
            f"{statistics.fmean(layer.agreement for layer in layers):.3f}",
            *(f"{total / edges:.0%}" for total in flippable),
        )
    return table


SHARES = (0.1, 0.2, 0.3, 0.4)
SHOWN_SHARE = 0.2
MANY_CLIENTS = 10**6
"""Taken where the number of clients is not known."""


def measured_table(votes: dict[int, Vote], clients: int | None) -> Group | None:
    """Return what validators measured, for a selection of rounds; None if nobody did."""
    numbers = [number for number in sorted(votes) if votes[number].measured]
    if not numbers:
        return None
    table = audit_table("Measured by validators")
    for column in ("round", "validators", "answered", "kept", "change", "error", "adopted", "bad draw"):
        table.add_column(column, justify="right", no_wrap=True)
    every = max(1, -(-len(numbers) // SHOWN_ROUNDS))
    for number in [*numbers[:-1:every], numbers[-1]]:
        vote, measured = votes[number], votes[number].measured
        assert measured is not None
        table.add_row(
            str(number),
            str(len(measured.validators)),
            str(measured.answers),
            f"{len(measured.kept)}/{len(vote.clients)}",
            "unknown" if measured.change is None else f"{measured.change:+.4f}",
            "unknown" if measured.error is None else f"{measured.error:.4f}",
            "yes" if measured.adopted else "no",
            f"{_bad_draw(measured, clients, SHOWN_SHARE):.0e}",
        )
    last = votes[numbers[-1]].measured
    assert last is not None
    chances = ", ".join(f"{_bad_draw(last, clients, share):.0e} at {share:.0%}" for share in SHARES)
    note = (
        "Change: the median over validators of what the result changes in the loss on their own data. "
        "Error: its standard error. If the loss rises by more than twice the error, the result is "
        "discarded and the model stays as it was. So as long as most validators are honest, the change lies "
        "between two honest reports, and the loss does not rise beyond sampling error. Bad draw: the "
        f"probability that half or more of the validators are malicious, if {SHOWN_SHARE:.0%} of all clients "
        f"are ({chances})."
    )
    return with_note(table, note)


def _bad_draw(measured: Measured, clients: int | None, share: float) -> float:
    everyone = clients or MANY_CLIENTS
    return dishonest_majority(everyone, round(share * everyone), len(measured.validators))


BALLOT_HEADINGS = ("client", "length", "agreement", "stands apart", "")
BALLOT_NOTE = (
    "Length: how far a ballot moves edges from the broadcast (root mean square, as a share of the layer). "
    "Stands apart: distance from the median in length or agreement, in median deviations."
)


def ballot_rows(vote: Vote) -> list[list[str]]:
    """Return the ballots that lie farthest from the others, under `BALLOT_HEADINGS`."""
    ballots = vote.audit.ballots
    order = sorted(zip(apartness(ballots), ballots, strict=True), key=lambda pair: -pair[0])
    return [
        [
            str(ballot.client),
            f"{ballot.length:.1%}",
            f"{ballot.agreement:.3f}",
            f"{apart:.1f}",
            "malicious" if ballot.client in vote.malicious else "",
        ]
        for apart, ballot in order[:SHOWN_BALLOTS]
    ]


def ballot_table(vote: Vote) -> Group:
    """Return the ballots that lie farthest from the others."""
    table = audit_table(f"Ballots of round {vote.round}, outliers first")
    for heading in BALLOT_HEADINGS:
        table.add_column(heading, justify="right" if heading else "left")
    for row in ballot_rows(vote):
        table.add_row(*map(escape, row), style="bold" if float(row[3]) > APART else None)
    return with_note(table, BALLOT_NOTE)


def apartness(ballots: Sequence[BallotAudit]) -> list[float]:
    """Return how far each ballot is from the median in length or agreement, in median deviations."""
    far = [0.0] * len(ballots)
    for values in ([ballot.length for ballot in ballots], [ballot.agreement for ballot in ballots]):
        middle = statistics.median(values)
        usual = statistics.median(abs(value - middle) for value in values) or 1e-12
        far = [max(before, abs(value - middle) / usual) for before, value in zip(far, values, strict=True)]
    return far


def _shown_counts(audit: Audit) -> list[int]:
    """Return the numbers of further ballots that are shown."""
    return [count for count in audit.layers[0].flippable or {} if count in SHOWN_COUNTS]


def with_note(table: Table, note: str) -> Group:
    """Return a table with an explanation below it."""
    return Group(table, Padding(Text(note, style="dim"), (0, 2)))


def audit_table(title: str) -> Table:
    """Return an empty table in the style of an audit."""
    return Table(title=f"\n{title}", title_justify="left", box=None, padding=(0, 1))
