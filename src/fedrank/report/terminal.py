"""What the terminal shows: progress during a run, and a summary at its end."""

from __future__ import annotations

import math
import sys
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from fedrank.experiment.records import Summary
from fedrank.experiment.rounds import Round
from fedrank.experiment.rundir import RunDirectory
from fedrank.report.settings import attack_text, method_text
from fedrank.report.words import NO_CLIENTS_TESTED, loss_text, plural


class RunProgress:
    """A bar with round, accuracy, traffic and time left; one line per round if there is no terminal."""

    def __init__(self, console: Console, label: str = "round") -> None:
        self.console = console
        self.label = label
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[accuracy]}"),
            TextColumn("{task.fields[traffic]}"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            transient=not console.is_terminal,
        )
        self.task = TaskID(0)

    def __enter__(self) -> Self:
        self.progress.start()
        self.task = self.progress.add_task("starting workers", total=None, accuracy="", traffic="")
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.live.stop()  # Progress.stop would print an empty line where there is no terminal

    def begin(self, done: int, rounds: int) -> None:
        """Start counting rounds."""
        self.rounds = rounds
        self.progress.reset(
            self.task,
            description=self.label,
            total=rounds,
            completed=done,
            accuracy="",
            traffic="",
        )

    def round_done(self, played: Round) -> None:
        """Show that a round is done, and the accuracy of the model."""
        sent = played.sent
        traffic = f"↑ {mebibytes(sent.upload_bytes)} ↓ {mebibytes(sent.download_bytes)}"
        self.progress.update(self.task, completed=played.number, traffic=traffic)
        if played.evaluation is None:
            return
        accuracy = f"accuracy {played.evaluation.test_accuracy:.1%}"
        self.progress.update(self.task, accuracy=accuracy)
        if not self.console.is_terminal:
            lost = len(played.refused)
            missing = f"  {lost} of {len(played.clients)} votes did not count" if lost else ""
            self.console.print(f"{self.label} {played.number}/{self.rounds}  {accuracy}{missing}")

    def stopping(self) -> None:
        """Say that Ctrl-C was understood."""
        self.console.print("Finishing this round; press Ctrl-C again to stop at once.")


def mebibytes(count: float) -> str:
    """Return bytes in a unit that reads well.

    >>> mebibytes(4246772)
    '4.05 MiB'
    """
    if count < 2**20 / 10:
        return f"{count / 2**10:.1f} KiB"
    return f"{count / 2**20:.2f} MiB"


def rounds_table(directory: RunDirectory) -> Table:
    """Return a row for each round of a run."""
    table = Table(title=f"{directory.experiment.name}, round by round", title_justify="left", box=None)
    for heading in ("round", "accuracy", "votes", "sent by a client", "seconds"):
        table.add_column(heading, justify="right")
    for record in directory.read_metrics():
        measured, clients = record.evaluation, len(record.clients)
        table.add_row(
            str(record.round),
            f"[bold]{measured.test_accuracy:.1%}[/]" if measured else "",
            f"{clients - len(record.refused)} of {clients}",
            mebibytes(record.sent.upload_bytes),
            f"{record.wall_seconds:.1f}",
        )
    return table


def summary_table(directory: RunDirectory, summary: Summary, time: str = "time") -> Table:
    """Return what was run, and its result, as a table; `time` says what took so long."""
    settings = directory.experiment.flat()
    measured, sent, paper = summary.evaluation, summary.sent, summary.paper_traffic
    table = Table(
        title=f"{directory.experiment.name} after {plural(summary.rounds, 'round')}",
        title_justify="left",
        show_header=False,
        box=None,
        padding=(0, 2),
    )
    table.add_row("method", method_text(settings))
    table.add_row("attack", attack_text(settings))
    table.add_row(
        "accuracy on all test data",
        f"[bold]{measured.test_accuracy:.1%}[/]  ({measured.test_samples:,} samples, "
        f"{'loss ' if math.isfinite(measured.test_loss) else ''}{loss_text(measured.test_loss)})",
    )
    if clients := measured.clients:
        table.add_row(
            f"accuracy of {clients.clients:,} clients",
            f"mean [bold]{clients.mean:.1%}[/]  std {clients.std:.1%}  "
            f"min {clients.min:.1%}  max {clients.max:.1%}",
        )
    else:
        table.add_row("accuracy of clients", NO_CLIENTS_TESTED)
    if measured.backdoor is not None:
        table.add_row("the backdoor works on", f"[bold]{measured.backdoor:.1%}[/] of triggered samples")
    for name, real, counted in (
        ("upload per client, round", sent.upload_bytes, paper.upload_bytes),
        ("download per client, round", sent.download_bytes, paper.download_bytes),
    ):
        known = mebibytes(real) if real else "not recorded"
        table.add_row(name, f"{known}  (as the paper counts: {mebibytes(counted)})")
    table.add_row(time, f"{summary.wall_seconds:.0f} s")
    return table


def demo_table(summaries: dict[str, Summary]) -> Table:
    """Return the four runs of the demo as a table: a row for each method, without and under attack."""
    some = next(iter(summaries.values()))
    rounds = plural(some.rounds, "round")
    table = Table(
        title=f"Handwritten digits, 100 clients, after {rounds}: accuracy on all test data",
        title_justify="left",
        box=None,
        padding=(0, 2),
    )
    table.add_column("method")
    table.add_column("all clients honest", justify="right")
    table.add_column("20% malicious", justify="right")
    table.add_column("upload per client, round", justify="right")
    for method in (name for name in summaries if not name.endswith("-attacked")):
        honest, attacked = summaries[method], summaries[f"{method}-attacked"]
        table.add_row(
            method,
            f"{honest.evaluation.test_accuracy:.1%}",
            f"[bold]{attacked.evaluation.test_accuracy:.1%}[/]",
            mebibytes(honest.sent.upload_bytes),
        )
    return table


def stderr_console() -> Console:
    """Return the console for progress and errors.

    In a notebook it prints lines, as it does without a terminal: bars there would need ipywidgets.
    """
    lines_only = False if Console().is_jupyter else None
    return Console(file=sys.stderr, force_jupyter=False, force_terminal=lines_only)
