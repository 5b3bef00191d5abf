"""Commands that make the tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrank.cli.base import DataDir, app, out
from fedrank.errors import ConfigError

if TYPE_CHECKING:
    from fedrank.paper.recipes import Recipe
    from fedrank.paper.sweep import Cell
    from fedrank.report.tables import Grid

RUN_DIRECTORIES = "runs"
"""All tables share them: what one has run another need not run again."""

paper_app = typer.Typer(
    help="Run the experiments behind a table, and show it.", no_args_is_help=True, rich_markup_mode="rich"
)
app.add_typer(paper_app, name="paper", rich_help_panel="Measurements")


def _complete_table() -> list[str]:
    from fedrank.paper.recipes import RECIPES

    return list(RECIPES)


Table = Annotated[str, typer.Argument(help="One of 'fedrank paper list'.", autocompletion=_complete_table)]
Scale = Annotated[
    str, typer.Option(help="smoke (seconds), laptop (fewer rounds than published) or paper (as published).")
]
Only = Annotated[list[str] | None, typer.Option(help="Only runs with this word in their place; repeatable.")]
Runs = Annotated[Path, typer.Option(help="Where the run directories are.")]


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
        int | None, typer.Option(min=1, help="Runs at a time.", show_default="one for each core")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Run the experiments behind a table; what is done is not done again, what was stopped is resumed.

    [bold]fedrank paper run votes --only digits --only mirror[/]
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from fedrank.data import default_data_dir
    from fedrank.engine import default_workers
    from fedrank.paper.recipes import chosen_cells, recipe_named
    from fedrank.paper.sweep import results, run_cells
    from fedrank.report.page import own_report
    from fedrank.report.terminal import stderr_console

    recipe = recipe_named(table)
    cells = chosen_cells(recipe, scale, only or ())
    columns = (TextColumn("runs"), BarColumn(bar_width=20), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr_console()) as progress:
        task = progress.add_task("runs", total=len({cell.name for cell in cells}))
        run_cells(
            cells,
            runs / RUN_DIRECTORIES,
            data_dir or default_data_dir(),
            jobs=jobs or default_workers(),
            done=lambda _: progress.advance(task),
            finish=own_report,
        )
    _render(recipe, cells, results(cells, runs / RUN_DIRECTORIES), runs / f"{table}-{scale}")


@paper_app.command("show")
def paper_show(
    table: Table,
    scale: Scale = "laptop",
    only: Only = None,
    runs: Runs = Path("runs/paper"),
    results_file: Annotated[
        Path | None, typer.Option("--results", help="A file of results, in place of the runs themselves.")
    ] = None,
) -> None:
    """Print a table, ours beside the paper's; what is missing or unfinished is shown as such."""
    from fedrank.paper.recipes import chosen_cells, recipe_named
    from fedrank.paper.sweep import read_results, results

    recipe = recipe_named(table)
    cells = chosen_cells(recipe, scale, only or ())
    if results_file:
        places = {tuple(cell.place.values()) for cell in cells}
        rows = [row for row in read_results(results_file) if tuple(row["place"].values()) in places]
        _print(recipe, cells, rows)
        return
    if cells and not (runs / RUN_DIRECTORIES).is_dir():
        raise ConfigError(f"{runs}: there are no runs yet. Make them with 'fedrank paper run {table}'.")
    _render(recipe, cells, results(cells, runs / RUN_DIRECTORIES), runs / f"{table}-{scale}")


def _print(recipe: Recipe, cells: list[Cell], rows: list[dict[str, Any]]) -> Grid:
    from fedrank.paper.recipes import differences
    from fedrank.report.tables import COMPUTED, results_grid

    if recipe.name in COMPUTED:
        grid = COMPUTED[recipe.name](recipe)
    else:
        finished = {tuple(row["place"].values()) for row in rows if row["finished"]}
        made = [cell for cell in cells if tuple(cell.place.values()) in finished]
        differing = differences(recipe, made)
        notes = [f"Different from the paper: {'; '.join(differing)}."] if differing else []
        grid = results_grid(recipe, rows, notes)
    out.print(grid.terminal())
    return grid


def _render(recipe: Recipe, cells: list[Cell], rows: list[dict[str, Any]], folder: Path) -> None:
    """Print a table, and write it down with its results and charts."""
    from fedrank.paper.sweep import write_results
    from fedrank.report.charts import save
    from fedrank.report.figures import figures

    grid = _print(recipe, cells, rows)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.md").write_text(grid.markdown() + "\n", "utf-8")
    if rows:
        write_results(rows, folder / "results.json")
    for name, chart in figures(recipe.name, rows).items():
        save(chart, folder / f"{name}.svg")
    out.print(f"Table, results and charts lie in {folder}", soft_wrap=True, highlight=False)
