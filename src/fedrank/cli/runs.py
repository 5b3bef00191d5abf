"""Commands that run experiments and inspect them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrank.cli.base import (
    DataDir,
    Device,
    Imports,
    Log,
    RunDirArgument,
    SameDevice,
    Workers,
    app,
    build_run,
    check_log,
    complete_chart,
    complete_preset,
    out,
    run_to_the_end,
    say,
    train_run,
)
from fedrank.errors import ConfigError, RunError

if TYPE_CHECKING:
    from fedrank.experiment.config import Experiment
    from fedrank.experiment.rundir import RunDirectory

ConfigArgument = Annotated[Path | None, typer.Argument(help="Configuration file (TOML).")]
Preset = Annotated[
    str | None,
    typer.Option(
        "--preset",
        "-p",
        help="A built-in configuration instead of a file.",
        autocompletion=complete_preset,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="Override a setting; repeatable."),
]


@app.command(rich_help_panel="Experiments")
def demo(
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Directory for the runs.", show_default="runs/demo-DATE-TIME"),
    ] = None,
    workers: Workers = None,
) -> None:
    """Quick tour: FRL and FedAvg on handwritten digits, without and under attack."""
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
        setup = build_run(experiment, default_data_dir(), "cpu")
        environment = describe(default_data_dir(), workers, "cpu")
        directories.append(RunDirectory.create(path / name, experiment, environment))
        results[name] = train_run(directories[-1], setup, workers, "cpu", name)
    out.print(demo_table(results))
    from fedrank.report.page import REPORT, write_report

    write_report(list(zip(results, directories, strict=True)), path / REPORT)
    say(f"  Curves and details: {path / REPORT}")


@app.command(rich_help_panel="Experiments")
def run(
    config: ConfigArgument = None,
    preset: Preset = None,
    settings: Settings = None,
    imports: Imports = None,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Run directory to create.", show_default="runs/NAME-DATE-TIME"),
    ] = None,
    data_dir: DataDir = None,
    workers: Workers = None,
    device: Device = "cpu",
    log: Log = None,
) -> None:
    """Run an experiment.

    [bold]fedrank run --preset mnist --set rounds=50 --set wire.ballots=top=50%[/]
    [bold]fedrank run my.toml --out runs/first[/]

    'fedrank show PRESET' prints all settings. Ctrl-C finishes the current round and saves.
    """
    check_log(log)
    experiment = _experiment(config, preset, settings, imports)
    from fedrank.data import default_data_dir
    from fedrank.engine import default_workers
    from fedrank.experiment.environment import describe
    from fedrank.experiment.rundir import RunDirectory

    data_dir = data_dir or default_data_dir()
    workers = workers or default_workers()
    path = out_dir or Path("runs") / f"{experiment.name}-{datetime.now():%Y%m%d-%H%M%S}"
    RunDirectory.check_free(path)
    setup = build_run(experiment, data_dir, device)
    directory = RunDirectory.create(path, experiment, describe(data_dir, workers, device))
    run_to_the_end(directory, setup, workers, device, log)


def _experiment(
    config: Path | None, preset: str | None, settings: list[str] | None, imports: list[str] | None
) -> Experiment:
    """Return the configuration in a file or preset."""
    from fedrank.experiment.config import load_file, load_preset

    if preset is not None and config is None:
        return load_preset(preset, settings or (), imports or ())
    if config is not None and preset is None:
        return load_file(config, settings or (), imports or ())
    raise ConfigError("expected either a TOML file or --preset; 'fedrank presets' lists the presets")


@app.command(rich_help_panel="Experiments")
def diagnose(
    config: ConfigArgument = None,
    preset: Preset = None,
    settings: Settings = None,
    imports: Imports = None,
    data_dir: DataDir = None,
) -> None:
    """Show the layers, the inputs and the clients of an experiment before the first round, with warnings.

    [bold]fedrank diagnose --preset digits --set network.keep=0.8[/]
    """
    experiment = _experiment(config, preset, settings, imports)

    from fedrank import diagnosis
    from fedrank.data import default_data_dir
    from fedrank.methods import FRL

    setup = build_run(experiment, data_dir or default_data_dir(), "cpu")
    if not isinstance(setup.method, FRL):
        raise ConfigError(f"method.name is {experiment.method.name!r}, but only frl can be diagnosed")
    found = diagnosis.diagnose(setup.method.network, setup.federation, setup.method.local)
    out.print(found)


@app.command(rich_help_panel="Experiments")
def resume(
    run_dir: RunDirArgument,
    data_dir: DataDir = None,
    workers: Workers = None,
    device: SameDevice = None,
    log: Log = None,
) -> None:
    """Resume a stopped run from its last completed round.

    The result is byte-for-byte identical to an uninterrupted run.
    """
    from fedrank.engine import default_workers
    from fedrank.experiment.build import build_method
    from fedrank.experiment.environment import describe, differences
    from fedrank.experiment.rundir import RunDirectory
    from fedrank.experiment.runner import last_state
    from fedrank.report.page import REPORT, own_report

    check_log(log)
    directory = RunDirectory.open(run_dir)
    experiment = directory.configuration
    summary, state = directory.read_summary(), last_state(directory, build_method(experiment))
    if summary is not None and min(summary.rounds, state.round) >= experiment.rounds:
        say(f"{run_dir}: all {experiment.rounds} rounds are done. 'fedrank evaluate' shows the result.")
        if not (run_dir / REPORT).exists():
            say(own_report(directory))
        return
    data_dir, device = data_dir or directory.data_dir, device or directory.device
    workers = workers or default_workers()
    changed = differences(directory.environment, describe(data_dir, workers, device))
    if changed:
        out.print(f"Note: {'; '.join(changed)}. The result may differ in rounding.")
    setup = build_run(experiment, data_dir, device)
    run_to_the_end(directory, setup, workers, device, log)


@app.command(rich_help_panel="Experiments")
def evaluate(
    run_dir: RunDirArgument,
    data_dir: DataDir = None,
    workers: Workers = None,
    device: SameDevice = None,
) -> None:
    """Evaluate the model of a run on every client's own test data and on the global test set."""
    from fedrank.engine import default_workers
    from fedrank.experiment import runner
    from fedrank.experiment.rundir import RunDirectory
    from fedrank.report.terminal import summary_table

    directory = RunDirectory.open(run_dir)
    data_dir, device = data_dir or directory.data_dir, device or directory.device
    setup = build_run(directory.configuration, data_dir, device)
    with out.status("evaluating"):
        result = runner.evaluate(directory, setup, workers=workers or default_workers(), device=device)
    out.print(summary_table(directory, result, "time of this evaluation"))


@app.command(rich_help_panel="Experiments")
def report(
    run_dirs: Annotated[list[Path], typer.Argument(help="Run directories to report on.")],
    out_file: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Output file.", show_default="report.html; for one run, in its directory"
        ),
    ] = None,
) -> None:
    """Write a self-contained HTML report: curves, clients, traffic, votes, settings.

    Every run writes its own report when it ends. Pass several runs to compare them on one page.
    """
    from fedrank.report.page import REPORT, write_report

    runs = _named(run_dirs)
    path = out_file or (run_dirs[0] / REPORT if len(runs) == 1 else Path(REPORT))
    write_report(runs, path)
    say(f"Wrote {path}")


def _named(run_dirs: list[Path]) -> list[tuple[str, RunDirectory]]:
    """Open runs and give them distinct short names."""
    from fedrank.experiment.rundir import RunDirectory
    from fedrank.report.run_charts import short_names

    if len({path.resolve() for path in run_dirs}) < len(run_dirs):
        raise ConfigError("the same run is given twice")
    return list(zip(short_names(run_dirs), [RunDirectory.open(path) for path in run_dirs], strict=True))


@app.command(rich_help_panel="Experiments")
def plot(
    run_dirs: Annotated[list[Path], typer.Argument(help="Run directories, one curve each.")],
    chart: Annotated[str, typer.Option(help="Chart to draw.", autocompletion=complete_chart)] = "accuracy",
    out_file: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Output file: .svg, .png or .html.", show_default="CHART.svg"),
    ] = None,
) -> None:
    """Draw one chart of the report.

    Charts: accuracy, loss, clients, traffic, edges, agreement, malicious, refused.
    """
    from fedrank.parameters import did_you_mean
    from fedrank.report.charts import save
    from fedrank.report.run_charts import RUN_CHARTS, RunView

    if chart not in RUN_CHARTS:
        raise ConfigError(f"unknown chart {chart!r}{did_you_mean(chart, RUN_CHARTS)}")
    drawn = RUN_CHARTS[chart]([RunView.read(name, run) for name, run in _named(run_dirs)])
    if drawn is None:
        raise RunError(f"{run_dirs[0]}: has no data for the chart {chart!r}")
    path = out_file or Path(f"{chart}.svg")
    save(drawn.properties(width=520, height=300), path)
    say(f"Wrote {path}")


@app.command(rich_help_panel="Experiments")
def audit(
    run_dir: RunDirArgument,
    round_number: Annotated[
        int | None, typer.Option("--round", min=1, help="Round to audit.", show_default="the last")
    ] = None,
    data_dir: DataDir = None,
    workers: Workers = None,
    device: SameDevice = None,
) -> None:
    """Show how safe a vote was: how many edges extra ballots could flip, and which ballots are outliers.

    The paper's vote discards ballots as it counts them. To show single ballots, this command runs the next
    round without saving it.
    """
    from fedrank.engine import default_workers
    from fedrank.experiment import runner
    from fedrank.experiment.config import Experiment
    from fedrank.experiment.rundir import RunDirectory
    from fedrank.paper.tables import failure_table
    from fedrank.report import audits

    directory = RunDirectory.open(run_dir)
    votes = audits.recorded_votes(directory)
    number = round_number or max(votes)
    if number not in votes:
        raise RunError(f"{run_dir}: no vote in round {number}; the last was in round {max(votes)}")
    vote = votes[number]
    out.print(audits.layer_table(vote))
    out.print(audits.history_table(votes))
    measured = audits.measured_table(votes, directory.experiment.data.clients)
    if measured is not None:
        out.print(measured)
    if isinstance(directory.experiment, Experiment) and not vote.audit.ballots:
        data_dir, device = data_dir or directory.data_dir, device or directory.device
        setup = build_run(directory.configuration, data_dir, device)
        with out.status("running the next round"):
            done = runner.rehearse(directory, setup, workers=workers or default_workers(), device=device)
        vote = audits.votes_in([runner.record_of(done)])[done.number]
    if vote.audit.ballots:
        out.print(audits.ballot_table(vote))
    experiment = directory.experiment
    out.print(failure_table(experiment.clients_per_round, experiment.attack.share))
