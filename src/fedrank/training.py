"""`fedrank.train`: federated training with your own model and data in one call."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from fedrank.arguments import check_kind, shown, whole_number
from fedrank.callbacks import Callback, Watching
from fedrank.data import Federation, check_federation
from fedrank.diagnosis import warn
from fedrank.engine import check_device, local_engine, suitable_workers
from fedrank.errors import ConfigError, ModelError, RunError
from fedrank.experiment.adversary import Adversary
from fedrank.experiment.description import Description
from fedrank.experiment.environment import describe
from fedrank.experiment.interrupt import Interrupt
from fedrank.experiment.rounds import Round, RunSetup, Schedule, run_rounds
from fedrank.experiment.rundir import RunDirectory
from fedrank.experiment.runner import save_round
from fedrank.methods import Method, check_method
from fedrank.nn import check_fit
from fedrank.report.page import REPORT, own_report
from fedrank.report.terminal import RunProgress, stderr_console
from fedrank.run import Origin, Run, read_run


def train(
    method: Method[Any],
    clients: Federation,
    *,
    rounds: int,
    clients_per_round: int,
    evaluate_every: int = 1,
    adversary: Adversary | None = None,
    workers: int | None = None,
    device: str = "cpu",
    progress: bool = True,
    on_round: Callable[[Round], object] = lambda _: None,
    callbacks: Sequence[Callback] = (),
    out: str | Path | None = None,
    name: str | None = None,
) -> Run:
    """Train on this machine and return the result.

    Parameters
    ----------
    method : for example `fedrank.FRL(network)`.
    clients : a federation, for example from `fedrank.split`.
    rounds : number of rounds.
    clients_per_round : clients to draw per round.
    evaluate_every : evaluate the model every so many rounds, and after the last one.
    adversary : malicious clients and their attack, to test robustness.
    workers : worker processes, one thread each; by default one per core, or none if the work is small.
    device : where workers compute, `cpu` or `cuda`.
    progress : show a progress bar on stderr.
    on_round : called after every round, for example for your own logger; if it returns True, the run stops.
    callbacks : for example `fedrank.EarlyStopping` and `fedrank.BestCheckpoint`.
    out : a run directory to keep the run in. If it already has this run, the run is resumed.
    name : the run's name in reports; by default that of the directory.

    Ctrl-C finishes the current round and returns the result so far, with `Run.interrupted` set; a second
    Ctrl-C raises KeyboardInterrupt. The result does not depend on the number of workers, nor on where a run
    was interrupted.
    """
    _check_machine(workers, device)
    _check_callbacks(callbacks, on_round)
    check_kind("out", out, str | os.PathLike | None, "a path")
    check_method(method)
    check_federation(clients)
    for callback in callbacks:
        if isinstance(callback, Watching):
            callback.check(clients)
    schedule = Schedule(rounds, clients_per_round, evaluate_every)
    setup = RunSetup.of(method, clients, schedule, adversary)
    start = method.init()
    try:
        check_fit(method.model(start), clients)
    except ModelError as error:
        raise ModelError(f"the model {error}") from error
    warn(method, clients)
    workers = workers or suitable_workers(method, clients, clients_per_round, rounds)
    path = None if out is None else Path(out)
    name = name or (path.resolve().name if path else "")
    origin = _Source(name, method, clients, setup, workers, device)
    console = stderr_console()
    console.quiet = not progress
    session = _Session(setup, (*callbacks, _Function(on_round)), workers, device, console)
    run = Run(method, start, (), origin=origin)
    if path is None:
        return session.finish(run)
    directory = _kept(path, origin())
    with directory.locked():
        run = _resumed(directory, run, rounds)
        return session.record(directory, run)


def _check_machine(workers: int | None, device: str) -> None:
    if workers is not None:
        whole_number("workers", workers, least=1)
    check_device(device)


def _check_callbacks(callbacks: Any, on_round: Any) -> None:
    if isinstance(callbacks, Callback) or not isinstance(callbacks, Sequence):
        raise ConfigError(f"callbacks must be a list of callbacks, got {shown(callbacks)}")
    for callback in callbacks:
        if isinstance(callback, type):
            name = callback.__name__
            raise ConfigError(f"callbacks must contain objects, got the class {name}: pass {name}()")
        if not isinstance(callback, Callback):
            raise ConfigError(
                f"callbacks must contain objects of fedrank.Callback, got {shown(callback)}; "
                "pass a function as on_round"
            )
    check_kind("on_round", on_round, Callable, "a function of a round")


class _Function(Callback):
    """A plain function as a callback."""

    def __init__(self, on_round: Callable[[Round], object]) -> None:
        self.on_round = on_round

    def round_done(self, run: Run) -> bool:
        reply = self.on_round(run.history[-1])
        return isinstance(reply, bool | np.bool_) and bool(reply)  # a logger may return anything


@dataclass(frozen=True)
class _Source:
    """Describes a run when that is needed: digests of large data take a moment."""

    name: str
    method: Method[Any]
    clients: Federation
    setup: RunSetup
    workers: int
    device: str

    def __call__(self) -> Origin:
        return self._origin

    @cached_property
    def _origin(self) -> Origin:
        schedule, adversary = self.setup.schedule, self.setup.adversary
        settings = Description.of(self.name, self.method, self.clients, schedule, adversary)
        return Origin(settings, describe(None, self.workers, self.device))


def _kept(path: Path, origin: Origin) -> RunDirectory:
    """Return the run directory: a new one, or that of the same run."""
    settings, environment, _ = origin
    directory = RunDirectory.at(path)
    if directory is None:
        return RunDirectory.create(path, settings, environment)
    assert isinstance(settings, Description)
    if not isinstance(directory.experiment, Description):
        raise RunError(f"{path}: contains a run of a configuration. Choose another directory (out=...).")
    if changes := directory.experiment.changes(settings):
        raise RunError(
            f"{path}: contains a run with other settings: {'; '.join(changes)}. "
            "Choose another directory (out=...)."
        )
    return directory


def _resumed(directory: RunDirectory, run: Run, rounds: int) -> Run:
    """Return the run after the last checkpoint of its directory, which now has its present settings."""
    kept = read_run(directory, run.method)
    if kept.state.round > rounds:
        raise RunError(
            f"{directory.path}: has {kept.state.round} completed rounds, but rounds is {rounds}. "
            "Pass at least as many, or choose another directory (out=...)."
        )
    directory.having(run.origin().settings)
    directory.forget_after(kept.state.round)
    return replace(kept, interrupted=False, origin=run.origin)


@dataclass(frozen=True)
class _Session:
    """One call of `train`: what happens around its rounds."""

    setup: RunSetup
    callbacks: Sequence[Callback]
    workers: int
    device: str
    console: Console

    def record(self, directory: RunDirectory, run: Run) -> Run:
        """Finish a run and keep all of it in its directory."""
        before = run.state.round
        run = self.finish(run, directory)
        run.write(directory)
        trained = run.state.round > before or not (directory.path / REPORT).exists()
        if trained and any(done.evaluation for done in run.history):
            told = own_report(directory)
            self.console.print(told, markup=False, highlight=False, soft_wrap=True)
        return run

    def finish(self, run: Run, directory: RunDirectory | None = None) -> Run:
        """Train the remaining rounds, unless a callback stops the run, and evaluate the model."""
        schedule, device = self.setup.schedule, self.device
        replies = [callback.begin(run) for callback in self.callbacks]
        complete = any(replies) or run.state.round >= schedule.rounds
        if complete and run.measured:
            return run
        with (
            RunProgress(self.console) as bar,
            local_engine(run.method, self.setup.federation, workers=self.workers, device=device) as engine,
            Interrupt(bar.stopping) as interrupt,
        ):
            bar.begin(run.state.round, schedule.rounds)
            for state, done in () if complete else run_rounds(self.setup, engine, run.state):
                if directory is not None:
                    save_round(directory, run.method, state, done)
                run = run.after(state, done)
                bar.round_done(done)
                replies = [callback.round_done(run) for callback in self.callbacks]
                complete = any(replies)
                if complete or interrupt.requested:
                    break
            measured = run.measured or self.setup.measure(engine, run.state)
        stopped = interrupt.requested and not complete and run.state.round < schedule.rounds
        return replace(run, measured=measured, interrupted=stopped)
