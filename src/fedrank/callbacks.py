"""Callbacks of `fedrank.train`: they see the run after every round, and may stop it."""

from __future__ import annotations

from pathlib import Path

from fedrank.errors import ConfigError
from fedrank.experiment.rundir import ENVIRONMENT, RunDirectory
from fedrank.experiment.runner import round_of
from fedrank.parameters import did_you_mean
from fedrank.run import Run

RISING = ("test_accuracy", "worst_class", "clients_mean", "clients_min", "clients_max")
FALLING = ("test_loss", "train_loss", "clients_std")


class Callback:
    """Watches a run. Override what you need."""

    def begin(self, run: Run) -> bool | None:
        """Called before the first round, with the earlier rounds of a resumed run; True stops the run."""

    def round_done(self, run: Run) -> bool | None:
        """Called after every round, the last of `run.history`; True stops the run."""


class _Watching(Callback):
    """Knows which values of a metric are better than others."""

    def __init__(self, metric: str, min_delta: float = 0.0) -> None:
        if metric not in RISING + FALLING:
            raise ConfigError(f"unknown metric {metric!r}{did_you_mean(metric, RISING + FALLING)}")
        if not min_delta >= 0:
            raise ConfigError(f"min_delta must be at least 0, got {min_delta}")
        self.metric = metric
        self.min_delta = min_delta
        self.best: float | None = None

    def improves(self, value: float) -> bool:
        """Return whether a value is the best so far, by more than `min_delta`, and remember it if it is."""
        gain = 0.0 if self.best is None else value - self.best
        if self.metric in FALLING:
            gain = -gain
        better = self.best is None or gain > self.min_delta
        if better:
            self.best = value
        return better


class EarlyStopping(_Watching):
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


class BestCheckpoint(_Watching):
    """Keeps the run as it was after its best round, as `run` and, given a path, as a run directory.

    Parameters
    ----------
    path : a run directory to write and overwrite, for `fedrank.load`. Without one, a resumed run starts anew.
    metric : a number of `Run.to_records`, such as test_accuracy or test_loss.
    """

    def __init__(self, path: str | Path | None = None, *, metric: str = "test_accuracy") -> None:
        super().__init__(metric)
        self.path = None if path is None else Path(path)
        self.run: Run | None = None

    def begin(self, run: Run) -> None:
        """Start anew, or from the best round that is kept on disk."""
        self.best, self.run = None, None
        if self.path is None or not (self.path / ENVIRONMENT).exists():
            return
        kept = RunDirectory.open(self.path).read_metrics()
        if run.history and kept:
            self.best = round_of(kept[-1]).to_dict()[self.metric]

    def round_done(self, run: Run) -> None:
        """Keep the run if it is the best so far."""
        value = run.history[-1].to_dict()[self.metric]
        if value is not None and self.improves(value):
            self.run = run
            if self.path is not None:
                run.save(self.path)
