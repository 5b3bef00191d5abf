"""Shared by all commands: the program itself, common options, and running an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedrank import __version__
from fedrank.errors import ConfigError

if TYPE_CHECKING:
    from fedrank.experiment.config import Experiment
    from fedrank.experiment.records import Summary
    from fedrank.experiment.rounds import RunSetup
    from fedrank.experiment.rundir import RunDirectory

app = typer.Typer(
    help="""Federated Rank Learning: clients rank the edges of a random network; the server holds a vote.

    Start with [bold]fedrank demo[/]; it needs no download.""",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
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


def complete_preset() -> list[str]:
    from fedrank.experiment.config import preset_names

    return preset_names()


def complete_chart() -> list[str]:
    from fedrank.report.run_charts import RUN_CHARTS

    return list(RUN_CHARTS)


RunDirArgument = Annotated[Path, typer.Argument(help="A run directory, created by 'fedrank run'.")]
DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Directory holding the data sets, one folder each.",
        show_default="$FEDRANK_DATA or the user's cache",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Worker processes, one thread each.", show_default="one per core"),
]
Device = Annotated[str, typer.Option(help="Device for training: cpu or cuda.")]
Log = Annotated[
    str | None,
    typer.Option("--log", help="Also log every round to: tensorboard.", show_default="nowhere"),
]
Imports = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE",
        help="Import a module with attacks and rules of your own; repeatable.",
    ),
]
SameDevice = Annotated[
    str | None,
    typer.Option(help="Device for training: cpu or cuda.", show_default="same as before"),
]


def say(text: str, console: Console = out) -> None:
    """Print text verbatim: no markup (paths may contain brackets) and no line wrapping."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def build_run(experiment: Experiment, data_dir: Path, device: str) -> RunSetup:
    from fedrank.engine import check_device
    from fedrank.experiment.build import build

    check_device(device)
    with out.status("loading data"):
        return build(experiment, data_dir)


def run_to_the_end(
    directory: RunDirectory, setup: RunSetup, workers: int, device: str, log: str | None = None
) -> None:
    from fedrank.report.page import own_report
    from fedrank.report.terminal import summary_table

    summary = train_run(directory, setup, workers, device, log=log)
    out.print(summary_table(directory, summary))
    say(f"  {own_report(directory)}")


def check_log(log: str | None) -> None:
    if log not in (None, "tensorboard"):
        raise ConfigError(f"unknown log {log!r}; choose tensorboard, or see docs/reports.md for others")
    if log:
        from fedrank.report.tensorboard import check_installed

        check_installed()


def train_run(
    directory: RunDirectory,
    setup: RunSetup,
    workers: int,
    device: str,
    label: str = "round",
    log: str | None = None,
) -> Summary:
    from fedrank.experiment import runner
    from fedrank.report.tensorboard import TensorBoardLog
    from fedrank.report.terminal import RunProgress, stderr_console

    console = stderr_console()
    watchers = [TensorBoardLog(directory.path / "tensorboard")] if log else []
    with RunProgress(console, label) as bar:
        observer = runner.Observers((bar, *watchers))
        summary = runner.run(directory, setup, workers=workers, device=device, observer=observer)
    if summary is None:
        say(f"Stopped and saved. {directory.how_to_resume}", console)
        raise typer.Exit(130)
    return summary
