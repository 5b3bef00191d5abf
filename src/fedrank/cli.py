"""The command line. Heavy imports wait until a command needs them."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedrank import __version__
from fedrank.errors import ConfigError, FedrankError, TrainingError

if TYPE_CHECKING:
    from fedrank.experiment.config import Experiment
    from fedrank.experiment.rundir import RunDirectory
    from fedrank.experiment.runner import Prepared, Result

app = typer.Typer(
    help="""Federated Rank Learning: clients rank the edges of a random network, the server takes a vote.

    Begin with [bold]fedrank demo[/]; it needs no download.""",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(
    help="List, download and look at data sets.", no_args_is_help=True, rich_markup_mode="rich"
)
app.add_typer(data_app, name="data")
out = Console()


def _print_version(wanted: bool) -> None:
    if wanted:
        out.print(f"fedrank {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True),
    ] = False,
) -> None: ...


def _complete_preset() -> list[str]:
    from fedrank.experiment.config import preset_names

    return preset_names()


def _complete_data() -> list[str]:
    from fedrank.data.sources import SOURCES

    return list(SOURCES)


RunDirArgument = Annotated[Path, typer.Argument(help="A directory that 'fedrank run' made.")]
DataName = Annotated[
    str, typer.Argument(help="digits, mnist, cifar10 or femnist.", autocompletion=_complete_data)
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Where data sets lie, a folder each.",
        show_default="$FEDRANK_DATA or the user's cache",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Worker processes, one thread each.", show_default="one for each core"),
]
Device = Annotated[str, typer.Option(help="Where workers compute: cpu or cuda.")]
SameDevice = Annotated[
    str | None,
    typer.Option(help="Where workers compute: cpu or cuda.", show_default="that of the run so far"),
]


@app.command()
def demo(
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Where the runs go.", show_default="runs/demo-DATE-TIME"),
    ] = None,
    workers: Workers = None,
) -> None:
    """See the point of it all: FRL and FedAvg on handwritten digits, in peace and under attack."""
    from fedrank.data import default_data_dir
    from fedrank.engine import default_workers
    from fedrank.experiment.demo import demo_experiments
    from fedrank.experiment.environment import describe
    from fedrank.experiment.rundir import RunDirectory
    from fedrank.report.terminal import demo_table

    path = out_dir or Path("runs") / f"demo-{datetime.now():%Y%m%d-%H%M%S}"
    RunDirectory.check_free(path)
    workers = workers or default_workers()
    results, directories = {}, []
    for name, experiment in demo_experiments().items():
        prepared = _prepare(experiment, default_data_dir(), "cpu")
        environment = describe(default_data_dir(), workers, "cpu")
        directories.append(RunDirectory.create(path / name, experiment, environment))
        results[name] = _play(directories[-1], prepared, workers, "cpu", name)
    out.print(demo_table(results))
    from fedrank.report.charts import accuracy_chart, save

    save(accuracy_chart(directories, names=list(results)), path / "demo.svg")
    out.print(f"  A chart of it lies in {path / 'demo.svg'}", soft_wrap=True, highlight=False)


@app.command()
def run(
    config: Annotated[Path | None, typer.Argument(help="A TOML file that describes the run.")] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset",
            "-p",
            help="A shipped configuration instead.",
            autocompletion=_complete_preset,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="Change one setting; can be repeated."),
    ] = None,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The run directory.", show_default="runs/NAME-DATE-TIME"),
    ] = None,
    data_dir: DataDir = None,
    workers: Workers = None,
    device: Device = "cpu",
) -> None:
    """Run an experiment.

    [bold]fedrank run --preset mnist --set rounds=50 --set wire.ballots=top=50%[/]
    [bold]fedrank run my.toml --out runs/first[/]

    'fedrank show PRESET' prints every setting. Ctrl-C finishes the round and saves.
    """
    from fedrank.experiment.config import load_file, load_preset

    if (config is None) == (preset is None):
        raise ConfigError("name either a TOML file or a --preset; 'fedrank presets' lists them")
    if preset is not None:
        experiment = load_preset(preset, settings or ())
    else:
        assert config is not None
        experiment = load_file(config, settings or ())

    from fedrank.data import default_data_dir
    from fedrank.engine import default_workers
    from fedrank.experiment.environment import describe
    from fedrank.experiment.rundir import RunDirectory

    data_dir = data_dir or default_data_dir()
    workers = workers or default_workers()
    path = out_dir or Path("runs") / f"{experiment.name}-{datetime.now():%Y%m%d-%H%M%S}"
    RunDirectory.check_free(path)
    prepared = _prepare(experiment, data_dir, device)
    directory = RunDirectory.create(path, experiment, describe(data_dir, workers, device))
    _run(directory, prepared, workers, device)


@app.command()
def resume(
    run_dir: RunDirArgument,
    data_dir: DataDir = None,
    workers: Workers = None,
    device: SameDevice = None,
) -> None:
    """Go on with a run that was stopped, from its last finished round.

    The end is the same, byte for byte, as that of a run that was never stopped.
    """
    from fedrank.engine import default_workers
    from fedrank.experiment.environment import describe, differences
    from fedrank.experiment.rundir import RunDirectory

    directory = RunDirectory.open(run_dir)
    rounds = directory.experiment.rounds
    summary = directory.read_summary()
    if summary is not None and summary["rounds"] >= rounds:
        out.print(f"{run_dir}: all {rounds} rounds are done. 'fedrank evaluate' shows the result.")
        return
    data_dir, device = data_dir or directory.data_dir, device or directory.device
    workers = workers or default_workers()
    changed = differences(directory.environment, describe(data_dir, workers, device))
    if changed:
        out.print(f"Note: {'; '.join(changed)}. The result may differ in rounding.")
    prepared = _prepare(directory.experiment, data_dir, device)
    _run(directory, prepared, workers, device)


@app.command()
def evaluate(
    run_dir: RunDirArgument,
    data_dir: DataDir = None,
    workers: Workers = None,
    device: SameDevice = None,
) -> None:
    """Test the model of a run again: every client on its own data, and all test data."""
    from fedrank.engine import default_workers
    from fedrank.experiment import runner
    from fedrank.experiment.rundir import RunDirectory
    from fedrank.report.terminal import summary_table

    directory = RunDirectory.open(run_dir)
    data_dir, device = data_dir or directory.data_dir, device or directory.device
    prepared = _prepare(directory.experiment, data_dir, device)
    with out.status("testing"):
        result = runner.evaluate(directory, prepared, workers=workers or default_workers(), device=device)
    out.print(summary_table(directory.experiment.name, result))


@app.command()
def presets() -> None:
    """List the shipped configurations."""
    from fedrank.experiment.config import preset_names, preset_text
    from fedrank.report.lists import listing

    rows = ((name, preset_text(name).splitlines()[0].removeprefix("# "), "") for name in preset_names())
    out.print(listing(rows))


@app.command()
def show(
    preset: Annotated[str, typer.Argument(help="One of 'fedrank presets'.", autocompletion=_complete_preset)],
) -> None:
    """Print a preset with all its settings, as TOML that 'fedrank run' takes.

    [bold]fedrank show mnist > my.toml[/]
    """
    from fedrank.experiment.config import load_preset

    typer.echo(load_preset(preset).to_toml(), nl=False)


@app.command()
def plot(
    run_dirs: Annotated[list[Path], typer.Argument(help="Run directories, a curve each.")],
    out_file: Annotated[Path, typer.Option("--out", "-o", help="The picture: .svg, .png or .html.")] = Path(
        "accuracy.svg"
    ),
) -> None:
    """Draw the accuracy of runs over their rounds."""
    from fedrank.experiment.rundir import RunDirectory
    from fedrank.report.charts import accuracy_chart, save

    save(accuracy_chart([RunDirectory.open(path) for path in run_dirs]), out_file)
    out.print(f"{out_file} is written.")


@app.command()
def bench(
    quick: Annotated[bool, typer.Option("--quick", help="Measure less, in about a minute.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="step, round, vote, ballot, start or fuzz; can be repeated."),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the numbers here too.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Measure how fast fedrank is on this machine, and how far from what the machine could do."""
    from fedrank.bench import ALL_SECTIONS, SECTIONS, run
    from fedrank.data import default_data_dir
    from fedrank.report.terminal import print_measurements

    unknown = set(only or ()) - set(ALL_SECTIONS)
    if unknown:
        raise ConfigError(f"--only {unknown.pop()}: there are {', '.join(ALL_SECTIONS)}")
    rows = run(data_dir or default_data_dir(), only=only or SECTIONS, quick=quick)
    measured = print_measurements(out, rows)
    if json_file is not None:
        from dataclasses import asdict

        try:
            json_file.write_text(json.dumps([asdict(row) for row in measured], indent=2) + "\n")
        except OSError as error:
            raise ConfigError(f"{json_file}: cannot be written ({error.strerror})") from error


@app.command()
def methods() -> None:
    """List the federated algorithms: values of [bold]method.name[/]."""
    from fedrank.methods import METHODS
    from fedrank.report.lists import listing

    rows = ((name, (method.__doc__ or "").splitlines()[0], "") for name, method in METHODS.items())
    out.print(listing(rows))


@app.command()
def attacks() -> None:
    """List what malicious clients can do: values of [bold]attack.name[/]."""
    from fedrank.attacks import ATTACKS
    from fedrank.report.lists import listing

    out.print(
        listing((a.name, a.summary, f"{a.source}. On {a.target}; knows {a.knows}.") for a in ATTACKS.values())
    )


@app.command()
def aggregators() -> None:
    """List the rules that turn updates into one: values of [bold]method.aggregator[/], joined by +."""
    from fedrank.aggregators import LISTED, MIXINGS
    from fedrank.report.lists import listing

    rows = (
        (f"{entry.name}+" if entry.name in MIXINGS else entry.name, entry.summary, f"{entry.source}.")
        for entry in LISTED.values()
    )
    out.print(listing(rows))


def _complete_network() -> list[str]:
    from fedrank.nn import NETWORKS

    return list(NETWORKS)


@app.command()
def traffic(
    network: Annotated[
        str, typer.Option("--net", help="Which network.", autocompletion=_complete_network)
    ] = "lenet",
    plot_file: Annotated[
        Path | None, typer.Option("--plot", help="Draw cost against parameters: .svg, .png or .html.")
    ] = None,
) -> None:
    """Print what a client sends and receives in a round, for every method and kind of ballot.

    [bold]fedrank traffic --net conv8[/]
    [bold]fedrank traffic --plot traffic.svg[/]
    """
    from fedrank.nn import NETWORKS, supernetwork
    from fedrank.paper.traffic import traffic_table
    from fedrank.report.terminal import traffic_listing

    if network not in NETWORKS:
        raise ConfigError(f"--net {network}: there are {', '.join(NETWORKS)}")
    layout = supernetwork(NETWORKS[network](), seed=0).layout
    out.print(traffic_listing(network, layout.size, traffic_table(layout)))
    if plot_file is not None:
        from fedrank.report.charts import save, traffic_chart

        save(traffic_chart(), plot_file)
        out.print(f"  The chart lies in {plot_file}", highlight=False)


@data_app.command("list")
def data_list(data_dir: DataDir = None) -> None:
    """List the data sets and whether they are here."""
    from rich.table import Table

    from fedrank.data import SOURCES, default_data_dir
    from fedrank.data.sources import availability

    folder = data_dir or default_data_dir()
    table = Table(box=None, padding=(0, 2))
    for column in ("name", "here", "what"):
        table.add_column(column)
    for source in SOURCES.values():
        table.add_row(source.name, availability(source, folder), source.about)
    out.print(table)
    out.print(f"Data directory: {folder}")


@data_app.command("get")
def data_get(name: DataName, data_dir: DataDir = None) -> None:
    """Download a data set from the Hugging Face hub.

    A download that broke off goes on where it stopped. $HF_ENDPOINT names a mirror.
    """
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from fedrank.data import default_data_dir, find_source
    from fedrank.data.download import fetch, list_files

    source = find_source(name)
    if source.embedded:
        out.print(f"{name} comes with fedrank: there is nothing to download.")
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
    out.print(f"{name} is complete in {folder}.")


@data_app.command("show")
def data_show(
    name: DataName,
    partition: Annotated[
        str | None,
        typer.Option(help="dirichlet, shards, iid or writer.", show_default="that of the preset"),
    ] = None,
    clients: Annotated[
        int | None, typer.Option(help="How many clients.", show_default="that of the preset")
    ] = None,
    beta: Annotated[float, typer.Option(help="Of the Dirichlet distribution.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Deals the same hands again.")] = 7,
    data_dir: DataDir = None,
) -> None:
    """Draw how the classes spread over the clients."""
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


def _check_device(device: str) -> None:
    import torch

    try:
        torch.ones(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"--device {device} cannot be used here: {reason}") from None


def _prepare(experiment: Experiment, data_dir: Path, device: str) -> Prepared:
    from fedrank.experiment.runner import prepare

    _check_device(device)
    with out.status("loading data"):
        return prepare(experiment, data_dir)


def _run(directory: RunDirectory, prepared: Prepared, workers: int, device: str) -> None:
    from fedrank.report.terminal import summary_table

    result = _play(directory, prepared, workers, device)
    out.print(summary_table(directory.experiment.name, result))
    out.print(f"  Results lie in {directory.path}", soft_wrap=True, highlight=False)


def _play(
    directory: RunDirectory, prepared: Prepared, workers: int, device: str, label: str = "round"
) -> Result:
    from fedrank.experiment import runner
    from fedrank.report.terminal import RunProgress, stderr_console

    console = stderr_console()
    with RunProgress(console, label) as bar:
        result = runner.run(directory, prepared, workers=workers, device=device, observer=bar)
    if result is None:
        console.print(f"Stopped and saved. Go on with: fedrank resume {directory.path}", soft_wrap=True)
        raise typer.Exit(130)
    return result


def main() -> None:
    """Run the command line; what a user can mend ends in one sentence, not in a traceback."""
    try:
        app()
    except FedrankError as error:
        console = Console(stderr=True)
        console.print("[red]error:[/]", end=" ")
        console.print(str(error), markup=False, highlight=False, soft_wrap=True)
        for note in getattr(error, "__notes__", ()):
            console.print(note, markup=False, highlight=False, soft_wrap=True)
        sys.exit(1 if isinstance(error, TrainingError) else 2)
    except KeyboardInterrupt:
        sys.exit(130)
