"""The command for sweeps: any settings times seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrank.cli.base import DataDir, app, out, say
from fedrank.errors import ConfigError

if TYPE_CHECKING:
    from fedrank.experiment.grid import Grid
    from fedrank.experiment.sweep import Cell
    from fedrank.report.comparison import Comparison

Jobs = Annotated[
    int | None, typer.Option(min=1, help="Number of parallel runs.", show_default="one per core")
]


def _complete_metric() -> list[str]:
    from fedrank.report.comparison import METRICS

    return list(METRICS)


@app.command(rich_help_panel="Experiments")
def sweep(
    grid_file: Annotated[Path, typer.Argument(metavar="GRID", help="Grid file (TOML).")],
    runs: Annotated[
        Path | None, typer.Option(help="Directory of the runs and tables.", show_default="runs/GRID")
    ] = None,
    jobs: Jobs = None,
    data_dir: DataDir = None,
    metric: Annotated[
        str, typer.Option(help="Number that the table shows.", autocompletion=_complete_metric)
    ] = "test_accuracy",
    show: Annotated[
        bool, typer.Option("--show", help="Print the table of the existing runs; run nothing.")
    ] = False,
) -> None:
    """Run every combination of some settings with several seeds, and compare them.

    [bold]fedrank sweep grid.toml --runs runs/grid --jobs 2[/]

    Skips finished runs and resumes interrupted ones. docs/sweeps.md explains the file.
    """
    from fedrank.experiment.grid import Grid
    from fedrank.experiment.sweep import RUNS
    from fedrank.report.comparison import metric_named

    metric_named(metric)
    grid = Grid.read(grid_file)
    folder = runs or Path("runs") / grid.name
    if show:
        if not (folder / RUNS).is_dir():
            raise ConfigError(f"{folder}: contains no runs yet. Start them with 'fedrank sweep {grid_file}'.")
        out.print(_comparison(grid, folder).table(metric))
        return
    failed, interrupted = run_all(grid.cells, folder / RUNS, data_dir, jobs)
    comparison = _comparison(grid, folder, failed, interrupted)
    out.print(comparison.table(metric))
    say(comparison.save(folder, metric))
    finish_sweep(failed, interrupted)


def _comparison(
    grid: Grid, folder: Path, failed: dict[str, str] | None = None, interrupted: bool = False
) -> Comparison:
    from fedrank.experiment.results import results
    from fedrank.experiment.sweep import RUNS
    from fedrank.report.comparison import Comparison

    found = results(grid.cells, folder / RUNS, failed=failed)
    return Comparison(grid.name, tuple(found), grid.rows, grid.columns, interrupted)


def run_all(
    cells: Sequence[Cell],
    folder: Path,
    data_dir: Path | None,
    jobs: int | None,
    until: float | None = None,
) -> tuple[dict[str, str], bool]:
    """Run what is not finished, with a progress bar; return the failed runs, and whether Ctrl-C ended it."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from fedrank.data import default_data_dir
    from fedrank.engine import default_workers
    from fedrank.experiment.sweep import run_cells
    from fedrank.report.page import own_report
    from fedrank.report.terminal import stderr_console

    rounds = sum(cell.experiment.rounds for cell in {cell.name: cell for cell in cells}.values())
    columns = (TextColumn("rounds"), BarColumn(bar_width=20), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr_console()) as progress:
        task = progress.add_task("rounds", total=rounds)
        try:
            failed = run_cells(
                cells,
                folder,
                data_dir or default_data_dir(),
                jobs=jobs or default_workers(),
                progress=lambda done: progress.update(task, completed=done),
                finish=own_report,
                until=until,
            )
        except KeyboardInterrupt:
            return {}, True
    return failed, False


def finish_sweep(failed: dict[str, str], interrupted: bool) -> None:
    """Say what is left to do, and exit with an error code, unless every run is finished."""
    from fedrank.report.terminal import stderr_console
    from fedrank.report.words import plural

    if interrupted:
        say("Stopped and saved. Repeat the command to continue.", stderr_console())
        raise typer.Exit(130)
    if failed:
        say(f"{plural(len(failed), 'run')} failed. Repeat the command to try again.", stderr_console())
        raise typer.Exit(1)
