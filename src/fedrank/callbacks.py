"""Callbacks of `fedrank.train`: they see the run after every round, and may stop it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedrank.data import Federation
from fedrank.errors import ConfigError, RunError
from fedrank.experiment.rundir import RunDirectory
from fedrank.parameters import did_you_mean
from fedrank.run import BEST_BY, Run, read_run

RISING = ("test_accuracy", "worst_class", "clients_mean", "clients_min", "clients_max")
FALLING = ("test_loss", "train_loss", "clients_std")


class Callback:
    """Watches a run. Override what you need."""

    def begin(self, run: Run) -> bool | None:
        """Called before the first round, with the earlier rounds of a resumed run; True stops the run."""

    def round_done(self, run: Run) -> bool | None:
        """Called after every round, the last of `run.history`; True stops the run."""


class Watching(Callback):
    """Watches a metric, and knows which of its values are better than others."""

    def __init__(self, metric: str, min_delta: float = 0.0) -> None:
        if metric not in RISING + FALLING:
            raise ConfigError(f"unknown metric {metric!r}{did_you_mean(metric, RISING + FALLING)}")
        if not min_delta >= 0:
            raise ConfigError(f"min_delta must be at least 0, got {min_delta}")
        self.metric = metric
        self.min_delta = min_delta
        self.best: float | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.metric!r})"

    def check(self, clients: Federation) -> None:
        """Raise ConfigError if these clients do not have the metric: it would be watched in vain."""
        if self.metric.startswith("clients_") and not any(client.test.size for client in clients):
            raise ConfigError(
                f"{type(self).__name__} watches {self.metric}, but no client has test data of its own; "
                "watch test_accuracy or test_loss, or give clients a test_share"
            )

    def improves(self, value: float) -> bool:
        """Return whether a value is the best so far, by more than `min_delta`, and remember it if it is."""
        gain = 0.0 if self.best is None else value - self.best
        if self.metric in FALLING:
            gain = -gain
        better = self.best is None or gain > self.min_delta
        if better:
            self.best = value
        return better


class EarlyStopping(Watching):
    """Stops a run whose metric has not improved for some evaluations.

    Parameters
    ----------
    metric : a number of `Run.to_records`, such as test_accuracy or test_loss; rounds without it do not count.
    patience : how many evaluations without improvement to wait for.
    min_delta : what counts as an improvement.
    """

    def __init__(self, metric: str = "test_accuracy", *, patience: int = 10, min_delta: float = 0.0) -> None:
        super().__init__(metric, min_delta)
        if patience < 1:
            raise ConfigError(f"patience must be at least 1, got {patience}")
        self.patience = patience
        self.waited = 0

    def begin(self, run: Run) -> bool:
        """Start anew, from the earlier rounds of a resumed run."""
        self.best, self.waited = None, 0
        for row in run.to_records():
            self._see(row[self.metric])
        return self.waited >= self.patience

    def round_done(self, run: Run) -> bool:
        """Stop if the metric has not improved for too long."""
        self._see(run.history[-1].to_dict()[self.metric])
        return self.waited >= self.patience

    def _see(self, value: float | None) -> None:
        if value is not None:
            self.waited = 0 if self.improves(value) else self.waited + 1


class BestCheckpoint(Watching):
    """Keeps the run as it was after its best round, as `run` and, given a path, as a run directory.

    Parameters
    ----------
    path : a run directory of its own, for `fedrank.load`. A resumed run keeps the best round that is there
        unless a later one is better; a run that starts anew replaces it. Everything else is refused: another
        run, a run that is not a best checkpoint, and a best round after more rounds than `train` is asked
        for. Without a path, a resumed run starts anew.
    metric : a number of `Run.to_records`, such as test_accuracy or test_loss.
    """

    def __init__(self, path: str | Path | None = None, *, metric: str = "test_accuracy") -> None:
        super().__init__(metric)
        self.path = None if path is None else Path(path)
        self.run: Run | None = None

    def begin(self, run: Run) -> None:
        """Start anew; if the run is resumed, from the best round that is kept on disk."""
        self.best, self.run = None, None
        directory = None if self.path is None else RunDirectory.at(self.path)
        if directory is None:
            return
        run.check_is_in(directory)
        self._check_is_checkpoint(directory)
        kept, rounds = read_run(directory, run.method), run.origin().settings.rounds
        if kept.state.round > rounds:
            raise RunError(
                f"{self.path}: has {kept.state.round} completed rounds, but rounds is {rounds}. "
                "Pass at least as many, or choose another directory."
            )
        if run.history and kept.history:
            self.run = replace(kept, origin=run.origin)
            self.best = kept.to_records()[-1][self.metric]

    def round_done(self, run: Run) -> None:
        """Keep the run if it is the best so far."""
        value = run.history[-1].to_dict()[self.metric]
        if value is not None and self.improves(value):
            self.run = run
            if self.path is not None:
                self._write(run, self.path)

    def _write(self, run: Run, path: Path) -> None:
        directory = run.directory(path, best_by=self.metric)
        self._check_is_checkpoint(directory)
        with directory.locked():
            run.write(directory)

    def _check_is_checkpoint(self, directory: RunDirectory) -> None:
        """Raise RunError if a directory of this run is not what this callback may replace."""
        metric = directory.environment.get(BEST_BY)
        if metric is None:
            raise RunError(f"{self.path}: contains a run, not a best checkpoint. Choose another directory.")
        if metric != self.metric:
            raise RunError(
                f"{self.path}: contains the best round by {metric}, not by {self.metric}. "
                "Choose another directory."
            )
