"""The ServerApp of fedrank's own Flower app; writes a run directory like a local run."""

import logging
import sys
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedrank.engine import local_engine
from fedrank.errors import FedrankError, RunError
from fedrank.experiment.environment import describe
from fedrank.experiment.metrics import Evaluation
from fedrank.experiment.rounds import Rounds
from fedrank.experiment.rundir import CONFIG, RunDirectory
from fedrank.experiment.runner import record
from fedrank.flower.server_data import server_setup
from fedrank.flower.settings import Settings
from fedrank.flower.strategy import RankVote
from fedrank.methods import FRL
from fedrank.methods.frl import FRLState
from fedrank.report.page import own_report
from fedrank.report.terminal import RunProgress, stderr_console, summary_table

logger = logging.getLogger("flwr")
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the experiment. Errors that the user can fix log one sentence, not a traceback."""
    try:
        run(grid, Settings.read(context.run_config))
    except FedrankError:
        sys.tracebacklimit = 0  # Flower logs every exception with its traceback
        raise


def run(grid: Grid, settings: Settings) -> None:
    """Run the remaining rounds and record them."""
    setup = server_setup(settings.experiment, settings.server_data)
    method, schedule, federation = setup.method, setup.schedule, setup.federation
    assert isinstance(method, FRL)
    strategy = RankVote(
        method,
        clients_per_round=schedule.clients_per_round,
        min_available_nodes=settings.min_available_nodes or len(federation.clients),
        min_votes=settings.min_votes,
        deadline=settings.deadline,
        startup_timeout=settings.startup_timeout,
        max_retries=settings.max_retries,
        strikes=settings.strikes,
        without_data=federation.idle if federation.voters.size else (),
        adversary=setup.adversary,
    )
    directory = open_directory(settings)
    console = stderr_console()
    with (
        directory.locked(),
        local_engine(method, federation, workers=1) as engine,
        RunProgress(console) as progress,
    ):

        def measured(state: FRLState) -> Evaluation | None:
            return setup.measure(engine, state) if schedule.measures(state.round) else None

        def rounds(state: FRLState) -> Rounds:
            return strategy.rounds(grid, state, schedule.rounds, measured)

        result = record(directory, setup, engine, rounds, progress)
    assert result is not None
    console.print(summary_table(directory, result))
    console.print(f"  {own_report(directory)}", soft_wrap=True, highlight=False)


def open_directory(settings: Settings) -> RunDirectory:
    """Return the run directory: a new one, or that of an interrupted run."""
    path = Path(settings.out).resolve()
    experiment = settings.experiment
    if not (path / CONFIG).exists():
        environment = describe(settings.server_data, 1, "cpu")
        environment["command"] = ["flwr", "run"]  # this process's own arguments contain a secret
        return RunDirectory.create(path, experiment, environment)
    directory = RunDirectory.open(path)
    if directory.experiment != experiment:
        raise RunError(f"{path}: contains a run with other settings. Choose another directory (out=...).")
    summary = directory.read_summary()
    if summary is not None and summary.rounds >= experiment.rounds:
        raise RunError(f"{path}: contains a finished run. Choose another directory (out=...).")
    logger.info("Resuming the run in %s.", path)
    return directory
