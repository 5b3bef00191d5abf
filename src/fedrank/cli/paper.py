"""Commands that make the tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrank.cli.base import DataDir, app, out
from fedrank.errors import ConfigError

if TYPE_CHECKING:
    from fedrank.paper.recipes import Recipe
    from fedrank.paper.sweep import Cell

paper_app = typer.Typer(
    help="Run the experiments behind a table, and show it.", no_args_is_help=True, rich_markup_mode="rich"
)
app.add_typer(paper_app, name="paper", rich_help_panel="Measurements")


def _complete_table() -> list[str]:
    from fedrank.paper.recipes import RECIPES

    return list(RECIPES)


Table = Annotated[str, typer.Argument(help="One of 'fedrank paper list'.", autocompletion=_complete_table)]
Scale = Annotated[str, typer.Option(help="smoke (seconds) or laptop (hours on two cores).")]
Only = Annotated[list[str] | None, typer.Option(help="Only runs with this word in their place; repeatable.")]
Runs = Annotated[Path, typer.Option(help="Where the run directories are.")]


@paper_app.command("list")
def paper_list() -> None:
    """List the tables."""
    from fedrank.paper.recipes import RECIPES
    from fedrank.report.lists import listing

    out.print(listing((recipe.name, recipe.title, "") for recipe in RECIPES.values()))


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
    from fedrank.paper.sweep import run_cells
    from fedrank.report.terminal import stderr_console

    recipe = recipe_named(table)
    cells = chosen_cells(recipe, scale, only or ())
    folder = _folder(runs, table, scale)
    columns = (TextColumn("runs"), BarColumn(bar_width=20), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr_console()) as progress:
        task = progress.add_task("runs", total=len(cells))
        run_cells(
            cells,
            folder,
            data_dir or default_data_dir(),
            jobs=jobs or default_workers(),
            done=lambda _: progress.advance(task),
        )
    _render(recipe, cells, folder)


@paper_app.command("show")
def paper_show(
    table: Table, scale: Scale = "laptop", only: Only = None, runs: Runs = Path("runs/paper")
) -> None:
    """Print a table of the runs that are there; what is missing or unfinished is shown as such."""
    from fedrank.paper.recipes import chosen_cells, recipe_named

    recipe = recipe_named(table)
    cells, folder = chosen_cells(recipe, scale, only or ()), _folder(runs, table, scale)
    if not folder.is_dir():
        raise ConfigError(f"{folder}: there are no runs yet. Make them with 'fedrank paper run {table}'.")
    _render(recipe, cells, folder)


def _folder(runs: Path, table: str, scale: str) -> Path:
    return runs / table / scale


def _render(recipe: Recipe, cells: list[Cell], folder: Path) -> None:
    from fedrank.paper.sweep import results, write_results
    from fedrank.report.charts import save
    from fedrank.report.matrix import heat_map, matrix_table

    rows = results(cells, folder)
    typer.echo(matrix_table(recipe, rows))
    write_results(rows, folder / "results.json")
    for data in dict.fromkeys(row["place"]["data"] for row in rows if row["finished"]):
        save(heat_map(recipe, rows, data), folder / f"{data}.svg")
    typer.echo(f"\nresults.json and heat maps lie in {folder}")
