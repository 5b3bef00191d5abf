"""Commands for the tables and figures of the paper, and further ones."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrank.cli.base import DataDir, app, out, say
from fedrank.cli.sweep import Jobs, finish_sweep, run_all
from fedrank.errors import ConfigError

if TYPE_CHECKING:
    from fedrank.experiment.records import CellResult
    from fedrank.paper.recipes import Recipe
    from fedrank.report.text_table import TextTable

paper_app = typer.Typer(
    help="Run the experiments behind a table and show the results.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
app.add_typer(paper_app, name="paper", rich_help_panel="Measurements")


def complete_table() -> list[str]:
    from fedrank.paper.recipes import RECIPES

    return list(RECIPES)


def complete_scale() -> list[tuple[str, str]]:
    from fedrank.paper.recipes import SCALES

    return list(SCALES.items())


Table = Annotated[
    str, typer.Argument(help="A table; see 'fedrank paper list'.", autocompletion=complete_table)
]
Scale = Annotated[
    str,
    typer.Option(
        help="smoke (seconds), laptop (30 rounds), night (200, CIFAR10 60) or paper (2000, as published).",
        autocompletion=complete_scale,
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(help="Only runs with this coordinate, such as mnist or FRL; repeatable."),
]
Seeds = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Number of seeds of every run; tables show mean ± standard deviation.",
        show_default="one, the preset's",
    ),
]
Runs = Annotated[Path, typer.Option(help="Directory of the runs, shared by all tables.")]


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
    seeds: Seeds = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Stop and save after this time, such as 2h, 90m or 1h30m.", show_default="none"),
    ] = None,
    runs: Runs = Path("runs/paper"),
    jobs: Jobs = None,
    data_dir: DataDir = None,
) -> None:
    """Run the experiments behind a table; skips finished runs and resumes interrupted ones.

    [bold]fedrank paper run votes --only digits --only mirror[/]
    [bold]fedrank paper run robustness --scale night --budget 8h[/]

    Begun runs come first, then one seed of everything, cheap runs before expensive ones.
    When the budget is used up, the current rounds are finished and saved.
    The same command goes on from there.
    """
    from fedrank.engine import default_workers
    from fedrank.experiment.budget import budget_seconds
    from fedrank.experiment.progress import most_useful_first, progress_of
    from fedrank.experiment.results import results
    from fedrank.experiment.sweep import RUNS
    from fedrank.paper.recipes import recipe_named, runs_of
    from fedrank.paper.status import work_done

    began = time.time()
    until = None if budget is None else began + budget_seconds(budget)
    recipe = recipe_named(table)
    cells = runs_of(recipe, scale, only or (), seeds)
    before = progress_of(cells, runs / RUNS)
    failed, interrupted = run_all(most_useful_first(before), runs / RUNS, data_dir, jobs, until)
    rows = results(cells, runs / RUNS, published=recipe.numbers, failed=failed)
    shown = _text_table(recipe, rows, f"`{_command(table, scale, only or (), seeds)}`")
    out.print(shown)
    _write(recipe, rows, shown, runs / _folder_name(table, scale, only or (), seeds))
    if cells and budget and not interrupted:
        after = progress_of(cells, runs / RUNS)
        say(work_done(before, after, time.time() - began, jobs or default_workers()))
    finish_sweep(failed, interrupted)


def _command(table: str, scale: str, only: Sequence[str], seeds: int | None) -> str:
    words = ["fedrank", "paper", "run", table, "--scale", scale]
    words += [word for each in only for word in ("--only", each)]
    return shlex.join([*words, *([] if seeds is None else ["--seeds", str(seeds)])])


def _folder_name(table: str, scale: str, only: Sequence[str], seeds: int | None) -> str:
    from fedrank.report.words import plural

    several = [] if seeds is None else [plural(seeds, "seed")]
    return re.sub(r"[^\w.%-]+", "-", "-".join([table, scale, *only, *several])).lower()


def _write(recipe: Recipe, rows: list[CellResult], shown: TextTable, folder: Path) -> None:
    """Write a table, its results and its charts."""
    from fedrank.experiment.results import write_csv, write_results
    from fedrank.experiment.rundir import write_output
    from fedrank.experiment.sweep import make_folder
    from fedrank.paper.figures import figures
    from fedrank.report.charts import save

    make_folder(folder)
    write_output(folder / "table.md", f"{shown.markdown()}\n".encode())
    write_output(folder / "table.tex", f"{shown.latex()}\n".encode())
    if rows:
        write_results(rows, folder / "results.json")
        write_csv(rows, folder / "results.csv")
    for name, chart in figures(recipe, rows).items():
        save(chart, folder / f"{name}.svg")
    say(f"Wrote {folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")


@paper_app.command("show")
def paper_show(
    table: Table,
    scale: Scale = "laptop",
    only: Only = None,
    seeds: Seeds = None,
    runs: Runs = Path("runs/paper"),
    results_file: Annotated[
        Path | None, typer.Option("--results", help="Read a results file instead of the runs.")
    ] = None,
) -> None:
    """Print a table with our numbers beside the paper's; marks missing and unfinished runs."""
    from fedrank.experiment.results import cell_of, read_results, results
    from fedrank.experiment.sweep import RUNS
    from fedrank.paper.recipes import chosen, recipe_named, runs_of

    recipe = recipe_named(table)
    if results_file:
        if seeds is not None:
            raise ConfigError(
                "--seeds selects runs, but --results shows all seeds in the file; use one of them"
            )
        rows = read_results(results_file, (*recipe.rows, *recipe.columns))
        wanted = [cell.coordinates for cell in chosen([cell_of(row) for row in rows], only or ())]
        rows = [row for row in rows if row.coordinates in wanted]
        out.print(_text_table(recipe, rows, str(results_file)))
        return
    cells = runs_of(recipe, scale, only or (), seeds)
    if cells and not (runs / RUNS).is_dir():
        raise ConfigError(f"{runs}: contains no runs yet. Start them with 'fedrank paper run {table}'.")
    rows = results(cells, runs / RUNS, published=recipe.numbers)
    out.print(_text_table(recipe, rows, str(runs)))


def _text_table(recipe: Recipe, rows: list[CellResult], source: str) -> TextTable:
    from fedrank.experiment.records import FinishedCell
    from fedrank.experiment.results import cell_of
    from fedrank.paper.recipes import assumptions, caption
    from fedrank.paper.tables import COMPUTED, made, results_table

    if recipe.name in COMPUTED:
        return COMPUTED[recipe.name](recipe)
    finished = [row for row in rows if isinstance(row, FinishedCell)]
    cells = [cell_of(row) for row in finished]
    notes = [*caption(recipe, cells), *(assumptions(cells) if recipe.published else [])]
    notes += [f"{source}: {made(finished)}."] if finished else []
    return results_table(recipe, rows, notes)
