"""Commands for the runs behind the paper's tables: how far they are, and moving them between machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedrank.cli.base import DataDir, out, say
from fedrank.cli.paper import Only, Runs, Scale, Seeds, Table, complete_table, paper_app
from fedrank.cli.sweep import Jobs
from fedrank.errors import ConfigError


@paper_app.command("status")
def paper_status(
    table: Annotated[
        str | None,
        typer.Argument(
            help="A table; see 'fedrank paper list'.",
            show_default="all tables",
            autocompletion=complete_table,
        ),
    ] = None,
    scale: Scale = "laptop",
    only: Only = None,
    seeds: Seeds = None,
    runs: Runs = Path("runs/paper"),
    jobs: Jobs = None,
) -> None:
    """Show which runs behind a table are done or begun, and how long the others take on this machine.

    [bold]fedrank paper status robustness --only mnist[/]

    Times come from rounds that this machine has run with the same data, method and attack.
    Without such rounds they are unknown.
    """
    from fedrank.engine import default_workers
    from fedrank.experiment.progress import progress_of
    from fedrank.experiment.sweep import RUNS
    from fedrank.paper.recipes import RECIPES, recipe_named, runs_of
    from fedrank.paper.status import overview_table, status_table

    folder, jobs = runs / RUNS, jobs or default_workers()
    if table is not None:
        recipe = recipe_named(table)
        cells = runs_of(recipe, scale, only or (), seeds)
        if not cells:
            raise ConfigError(f"the table {table!r} is computed and needs no runs")
        found = progress_of(cells, folder)
        out.print(status_table(recipe, found, str(folder), jobs=jobs, cells=len(cells)))
        return
    if only:
        raise ConfigError("--only selects runs of one table; name it: 'fedrank paper status TABLE'")
    tables = {
        name: progress_of(cells, folder)
        for name, recipe in RECIPES.items()
        if (cells := runs_of(recipe, scale, seeds=None if recipe.has_seeds else seeds))
    }
    out.print(overview_table(tables, str(folder), jobs))


@paper_app.command("export")
def paper_export(
    table: Table,
    out_file: Annotated[Path, typer.Option("--out", "-o", help="File to write.")],
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Add the state of unfinished runs; makes a ZIP archive.")
    ] = False,
    scale: Scale = "laptop",
    only: Only = None,
    seeds: Seeds = None,
    runs: Runs = Path("runs/paper"),
) -> None:
    """Write the results of a table's runs to a file, for another machine or 'paper show --results'.

    [bold]fedrank paper export robustness --scale night --out night.json[/]
    [bold]fedrank paper export robustness --scale night --checkpoints --out night.zip[/]

    Results are small: settings, learning curve and versions of each run.
    With --checkpoints, unfinished runs can go on elsewhere; one of MNIST adds 3 to 7 MB.
    """
    from fedrank.experiment.results import results
    from fedrank.experiment.sweep import RUNS
    from fedrank.experiment.transfer import export_runs
    from fedrank.paper.recipes import recipe_named, runs_of
    from fedrank.report.terminal import mebibytes
    from fedrank.report.words import plural

    recipe = recipe_named(table)
    cells = runs_of(recipe, scale, only or (), seeds)
    if not cells:
        raise ConfigError(f"the table {table!r} is computed and has no runs to export")
    rows = results(cells, runs / RUNS, published=recipe.numbers)
    if not any(row.begun for row in rows):
        raise ConfigError(
            f"{runs}: contains no runs of this table yet. Start them with 'fedrank paper run {table}'."
        )
    count = export_runs(rows, runs / RUNS, out_file, checkpoints=checkpoints)
    finished = plural(sum(row.finished for row in rows), "result")
    more = f" and {plural(count, 'checkpoint')}" if checkpoints else ""
    say(f"Wrote {out_file} ({mebibytes(out_file.stat().st_size)}): {finished}{more}")


@paper_app.command("import")
def paper_import(
    file: Annotated[Path, typer.Argument(help="A file that 'fedrank paper export' wrote.")],
    runs: Runs = Path("runs/paper"),
    data_dir: DataDir = None,
) -> None:
    """Take over results and checkpoints from another machine.

    [bold]fedrank paper import night.zip[/]

    Finished runs then count as done, and 'paper run' continues unfinished ones.
    A run that is as far or farther here is left as it is.
    """
    from fedrank.data import default_data_dir
    from fedrank.experiment.sweep import RUNS
    from fedrank.experiment.transfer import import_runs
    from fedrank.report.words import plural

    found = import_runs(file, runs / RUNS, data_dir or default_data_dir())
    kept = f"{plural(found.results, 'result')} and {plural(found.checkpoints, 'checkpoint')}"
    told = [f"Imported {kept} into {runs}"]
    if found.farther:
        told.append(f"{plural(found.farther, 'run')} already as far or farther here")
    if found.different:
        told.append(f"{plural(found.different, 'run')} left out: other settings in this version")
    say(f"{'; '.join(told)}.")
