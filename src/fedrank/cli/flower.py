"""Commands that prepare and show runs over Flower."""

from __future__ import annotations

from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from fedrank.cli.base import DataDir, app, complete_preset, out, say
from fedrank.errors import ConfigError

flower_app = typer.Typer(
    help="Run over a real network, with Flower.", no_args_is_help=True, rich_markup_mode="rich"
)
app.add_typer(flower_app, name="flower", rich_help_panel="Networks")


@flower_app.callback()
def _check() -> None:
    if find_spec("flwr") is None:
        raise ConfigError("Flower is missing: pip install 'fedrank[flower]'")


@flower_app.command("app")
def new_app(folder: Annotated[Path, typer.Argument(help="A folder, for 'flwr run'.")]) -> None:
    """Write a Flower app that runs any experiment of fedrank's."""
    from fedrank.flower.deployment import write_app

    if (folder / "pyproject.toml").exists():
        raise ConfigError(f"{folder}: holds a pyproject.toml already and is left as it is")
    write_app(folder)
    say(f"{folder / 'pyproject.toml'} is written. Run it with: flwr run {folder} SUPERLINK --stream")


@flower_app.command()
def keys(
    folder: Annotated[Path, typer.Argument(help="Where certificates and keys go.")],
    nodes: Annotated[int, typer.Option(min=1, help="For how many SuperNodes.")] = 4,
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", help="A name or address of the SuperLink; can be repeated."),
    ] = None,
) -> None:
    """Make the certificates for TLS and the keys that SuperNodes are known by."""
    from fedrank.flower.certificates import Credentials

    made = Credentials.create(folder, nodes, hosts or ("localhost", "127.0.0.1"))
    say(f"{made.authority}: for every node and every user")
    say(f"{made.key} and {made.certificate.name}: for the SuperLink")
    say(f"{made.node_key(0)}, ...: one for each SuperNode; {made.node_public(0).name}, ... are registered")


@flower_app.command()
def deal(
    folder: Annotated[Path, typer.Argument(help="Where the files go: client-0.npz and so on.")],
    preset: Annotated[
        str, typer.Option("--preset", "-p", help="A shipped configuration.", autocompletion=complete_preset)
    ] = "digits",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="Change one setting; can be repeated."),
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Write each client's share of an experiment's data to a file of its own, for its node."""
    from fedrank.data import default_data_dir
    from fedrank.experiment.build import build_federation
    from fedrank.experiment.config import load_preset
    from fedrank.flower.nodes import write_own_data

    if next(folder.glob("client-*.npz"), None):
        raise ConfigError(f"{folder}: holds clients' files already, they are left as they are")
    experiment = load_preset(preset, ["clients_per_round=1", *(settings or ())])
    federation = build_federation(experiment.data, experiment.seed, data_dir or default_data_dir())
    files = write_own_data(federation, folder)
    say(f"{len(files)} files are written, from {files[0]} to {files[-1].name}.")


@flower_app.command()
def demo(
    nodes: Annotated[int, typer.Option(min=2, help="How many SuperNodes.")] = 4,
    rounds: Annotated[int, typer.Option(min=1, help="How many rounds.")] = 5,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The run directory.", show_default="runs/flower-DATE-TIME"),
    ] = None,
) -> None:
    """See a deployment on this machine: real processes, a run to its end, and all of it stopped again."""
    from fedrank.data import default_data_dir
    from fedrank.experiment.build import build_federation
    from fedrank.experiment.config import load_preset
    from fedrank.experiment.rundir import RunDirectory
    from fedrank.flower.demo import deploy
    from fedrank.report.terminal import rounds_table

    words = [f"rounds={rounds}", f"data.clients={nodes}", f"clients_per_round={nodes}"]
    experiment = load_preset("digits", words)
    path = out_dir or Path("runs") / f"flower-{datetime.now():%Y%m%d-%H%M%S}"
    RunDirectory.check_free(path)
    federation = build_federation(experiment.data, experiment.seed, default_data_dir())
    deploy(experiment, federation, path, say)
    out.print(rounds_table(RunDirectory.open(path)))
    say(f"  Everything is stopped. Results lie in {path}")
