"""Commands for the tables and figures of the paper, and further ones."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrank.cli.base import DataDir, app, out, say
from fedrank.errors import ConfigError, RunError

if TYPE_CHECKING:
    from fedrank.experiment.records import CellResult
    from fedrank.paper.recipes import Recipe
    from fedrank.report.text_table import TextTable

RUN_DIRECTORIES = "runs"
"""Shared by all tables, so that identical runs are made only once."""

paper_app = typer.Typer(
    help="Run the experiments behind a table and show the results.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
app.add_typer(paper_app, name="paper", rich_help_panel="Measurements")


def _complete_table() -> list[str]:
    from fedrank.paper.recipes import RECIPES

    return list(RECIPES)


Table = Annotated[
    str, typer.Argument(help="A table; see 'fedrank paper list'.", autocompletion=_complete_table)
]
Scale = Annotated[
    str, typer.Option(help="smoke (seconds), laptop (fewer rounds than published) or paper (as published).")
]
Only = Annotated[
    list[str] | None,
    typer.Option(help="Only runs with this coordinate, such as mnist or FRL; repeatable."),
]
Runs = Annotated[Path, typer.Option(help="Directory of the runs.")]


@paper_app.command("list")
def paper_list() -> None:
    """List every table and figure of the paper."""
    from fedrank.paper.recipes import RECIPES
    from fedrank.report.lists import listing

    out.print(listing((each.name, f"{each.source}: {each.title}", "") for each in RECIPES.values()))


@paper_app.command("run")
def paper_run(
    table: Table,
    scale: Scale = "laptop",
    only: Only = None,
    runs: Runs = Path("runs/paper"),
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Number of parallel runs.", show_default="one per core")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Run the experiments behind a table; skips finished runs and resumes interrupted ones.

    [bold]fedrank paper run votes --only digits --only mirror[/]
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from fedrank.data import default_data_dir
    from fedrank.engine import default_workers
    from fedrank.experiment.rundir import write_output
    from fedrank.experiment.sweep import run_cells
    from fedrank.paper.figures import figures
    from fedrank.paper.recipes import chosen, recipe_named
    from fedrank.paper.results import results, write_results
    from fedrank.report.charts import save
    from fedrank.report.page import own_report
    from fedrank.report.terminal import stderr_console

    recipe = recipe_named(table)
    cells = chosen(recipe.cells(_known(scale)), only or ())
    rounds = sum(cell.experiment.rounds for cell in {cell.name: cell for cell in cells}.values())
    columns = (TextColumn("rounds"), BarColumn(bar_width=20), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=stderr_console()) as progress:
            task = progress.add_task("rounds", total=rounds)
            run_cells(
                cells,
                runs / RUN_DIRECTORIES,
                data_dir or default_data_dir(),
                jobs=jobs or default_workers(),
                progress=lambda done: progress.update(task, completed=done),
                finish=own_report,
            )
    except KeyboardInterrupt:
        stderr_console().print("Stopped and saved. Repeat the command to continue.")
        raise typer.Exit(130) from None
    words = [word for each in only or () for word in ("--only", each)]
    command = shlex.join(["fedrank", "paper", "run", table, "--scale", scale, *words])
    rows = results(recipe, cells, runs / RUN_DIRECTORIES)
    shown = _text_table(recipe, rows, f"`{command}`")
    out.print(shown)
    folder = runs / re.sub(r"[^\w.%-]+", "-", "-".join([table, scale, *(only or ())])).lower()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder}: cannot be created ({error.strerror})") from error
    write_output(folder / "table.md", f"{shown.markdown()}\n".encode())
    if rows:
        write_results(rows, folder / "results.json")
    for name, chart in figures(recipe, rows).items():
        save(chart, folder / f"{name}.svg")
    say(f"Wrote {folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")


@paper_app.command("show")
def paper_show(
    table: Table,
    scale: Scale = "laptop",
    only: Only = None,
    runs: Runs = Path("runs/paper"),
    results_file: Annotated[
        Path | None, typer.Option("--results", help="Read a results file instead of the runs.")
    ] = None,
) -> None:
    """Print a table with our numbers beside the paper's; marks missing and unfinished runs."""
    from fedrank.paper.recipes import chosen, recipe_named
    from fedrank.paper.results import cell_of, read_results, results

    recipe = recipe_named(table)
    if results_file:
        rows = read_results(results_file, (*recipe.rows, *recipe.columns))
        wanted = [cell.coordinates for cell in chosen([cell_of(row) for row in rows], only or ())]
        rows = [row for row in rows if row.coordinates in wanted]
        out.print(_text_table(recipe, rows, str(results_file)))
        return
    cells = chosen(recipe.cells(_known(scale)), only or ())
    if cells and not (runs / RUN_DIRECTORIES).is_dir():
        raise ConfigError(f"{runs}: contains no runs yet. Start them with 'fedrank paper run {table}'.")
    out.print(_text_table(recipe, results(recipe, cells, runs / RUN_DIRECTORIES), str(runs)))


def _known(scale: str) -> str:
    from fedrank.paper.recipes import SCALES
    from fedrank.parameters import did_you_mean

    if scale not in SCALES:
        raise ConfigError(f"unknown scale {scale!r}{did_you_mean(scale, SCALES)}")
    return scale


def _text_table(recipe: Recipe, rows: list[CellResult], source: str) -> TextTable:
    from fedrank.experiment.records import FinishedCell
    from fedrank.paper.recipes import assumptions, caption
    from fedrank.paper.results import cell_of
    from fedrank.paper.tables import COMPUTED, made, results_table

    if recipe.name in COMPUTED:
        return COMPUTED[recipe.name](recipe)
    finished = [row for row in rows if isinstance(row, FinishedCell)]
    cells = [cell_of(row) for row in finished]
    notes = [*caption(recipe, cells), *(assumptions(cells) if recipe.published else [])]
    notes += [f"{source}: {made(finished)}."] if finished else []
    return results_table(recipe, rows, notes)
