"""Commands for data sets."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from fedrank.cli.base import DataDir, app, out, say

data_app = typer.Typer(
    help="List, download and inspect data sets.", no_args_is_help=True, rich_markup_mode="rich"
)
app.add_typer(data_app, name="data", rich_help_panel="Reference")


def _complete_data() -> list[str]:
    from fedrank.data.sources import SOURCES

    return list(SOURCES)


DataName = Annotated[
    str, typer.Argument(help="digits, mnist, cifar10 or femnist.", autocompletion=_complete_data)
]


@data_app.command("list")
def data_list(data_dir: DataDir = None) -> None:
    """List the data sets and whether they are available locally."""
    from rich.table import Table

    from fedrank.data import SOURCES, default_data_dir
    from fedrank.data.sources import availability

    folder = data_dir or default_data_dir()
    table = Table(box=None, padding=(0, 2))
    for column in ("name", "available", "description"):
        table.add_column(column)
    for source in SOURCES.values():
        table.add_row(source.name, availability(source, folder), source.about)
    out.print(table)
    say(f"Data directory: {folder}")


@data_app.command("get")
def data_get(name: DataName, data_dir: DataDir = None) -> None:
    """Download a data set from the Hugging Face hub.

    An interrupted download resumes where it stopped. Set $HF_ENDPOINT to use a mirror.
    """
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from fedrank.data import default_data_dir, find_source
    from fedrank.data.download import fetch, list_files

    source = find_source(name)
    if source.embedded:
        out.print(f"{name} ships with fedrank; nothing to download.")
        return
    folder = (data_dir or default_data_dir()) / name
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        for remote in list_files(source):
            task = progress.add_task(remote.name, total=remote.size)
            fetch(remote, folder, lambda done, task=task: progress.update(task, completed=done))  # type: ignore[misc]
    say(f"Downloaded {name} to {folder}")


@data_app.command("show")
def data_show(
    name: DataName,
    partition: Annotated[
        str | None,
        typer.Option(help="dirichlet, shards, iid or writer.", show_default="from the preset"),
    ] = None,
    clients: Annotated[
        int | None, typer.Option(help="Number of clients.", show_default="from the preset")
    ] = None,
    beta: Annotated[
        float, typer.Option(help="Concentration of the Dirichlet partition; smaller is less iid.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same partition.")] = 7,
    data_dir: DataDir = None,
) -> None:
    """Show how the classes are distributed over the clients."""
    from fedrank.data import default_data_dir, find_source
    from fedrank.experiment.config import load_preset

    find_source(name)
    settings = [f"seed={seed}", f"data.beta={beta}"]
    if partition is not None:
        settings.append(f"data.partition={partition}")
    if clients is not None:
        settings += [f"data.clients={clients}", "clients_per_round=1"]
    experiment = load_preset(name, settings)

    from fedrank.experiment.build import build_federation
    from fedrank.report.spread import spread_drawing

    with out.status("loading data"):
        federation = build_federation(experiment.data, seed, data_dir or default_data_dir())
    out.print(spread_drawing(name, federation))
