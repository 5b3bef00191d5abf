"""A run of `fedrank.train`: its model and history, kept in a run directory and read again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from fedrank.errors import ConfigError, ModelError, RunError
from fedrank.experiment.build import build_method
from fedrank.experiment.config import Experiment
from fedrank.experiment.metrics import Evaluation
from fedrank.experiment.parts import Parts
from fedrank.experiment.records import RoundRecord, Summary
from fedrank.experiment.rounds import Round
from fedrank.experiment.rundir import RunDirectory, RunSettings, write_output
from fedrank.experiment.runner import last_state, record_of, round_of, summarize
from fedrank.methods import Method
from fedrank.nn import Supernetwork
from fedrank.nn.rebuild import MissingModel
from fedrank.report.page import render
from fedrank.report.run_charts import RunView
from fedrank.report.words import plural

BEST_BY = "best_by"
"""The entry of environment.json with the metric of a best checkpoint."""


class Origin(NamedTuple):
    """What a run directory says of a run beside its results."""

    settings: RunSettings
    environment: dict[str, Any]
    parts: Parts | None = None
    """Of a configuration with a model or data of the user's own."""


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A trained model and its training history.

    Parameters
    ----------
    method : the federated algorithm, with its network.
    state : what the server knows at the end: the global ranking or weights.
    history : the rounds so far.
    interrupted : whether Ctrl-C ended the run before its last round.
    """

    method: Method[Any]
    state: Any
    history: tuple[Round, ...]
    measured: Evaluation | None = field(default=None, repr=False)
    interrupted: bool = False
    origin: Callable[[], Origin] = field(kw_only=True)

    @property
    def evaluation(self) -> Evaluation:
        """The evaluation of the trained model; while training, the latest one."""
        known = (done.evaluation for done in reversed(self.history) if done.evaluation)
        found = self.measured or next(known, None)
        if found is None:
            raise RunError("no round of this run has been evaluated yet")
        return found

    def subnetwork(self) -> nn.Module:
        """Return the trained model: an ordinary module, in evaluation mode."""
        skeleton = self.method.network.skeleton
        if isinstance(skeleton, MissingModel):
            raise ModelError(skeleton.reason)
        return self.method.model(self.state)

    def to_records(self) -> list[dict[str, float | None]]:
        """Return one dictionary of numbers for each round: `pandas.DataFrame(run.to_records())`."""
        return [done.to_dict() for done in self.history]

    def after(self, state: Any, done: Round) -> Run:
        """Return the run with one more round."""
        return replace(self, state=state, history=(*self.history, done), measured=done.evaluation)

    def save(self, path: str | Path) -> None:
        """Write a run directory, or bring that of this run up to date, unless it has more rounds."""
        directory = self.directory(Path(path))
        with directory.locked():
            kept = last_state(directory, self.method).round
            if kept > self.state.round:
                raise RunError(
                    f"{path}: has {plural(kept, 'completed round')} of this run, but only "
                    f"{self.state.round} would be saved. Choose another directory."
                )
            self.write(directory)

    def directory(self, path: Path, best_by: str | None = None) -> RunDirectory:
        """Return the directory of this run at a path, or a new one, perhaps of a best checkpoint."""
        found = RunDirectory.at(path)
        if found is not None:
            self.check_is_in(found)
            return found
        environment = {key: value for key, value in self.origin().environment.items() if key != BEST_BY}
        if best_by is not None:
            environment[BEST_BY] = best_by
        return RunDirectory.create(path, self._settings(path.resolve().name), environment)

    def check_is_in(self, directory: RunDirectory) -> None:
        """Raise RunError if a directory contains another run."""
        directory.check_same(self.origin().settings)
        if parts := self.origin().parts:
            parts.check_same(directory)

    def write(self, directory: RunDirectory) -> None:
        """Write the run to its directory, which the caller has locked."""
        records = self._records()
        directory = directory.having(self._settings(directory.path.resolve().name))
        if parts := self.origin().parts:
            parts.write(directory)
        directory.write_metrics(records)
        directory.write_checkpoint(self.method.pack(self.state))
        if summary := self._summary(records):
            directory.write_summary(summary)
        elif (kept := directory.read_summary()) and kept.rounds != self.state.round:
            directory.forget_summary()

    def report(self, path: str | Path) -> None:
        """Write a self-contained HTML report; needs `pip install 'fedrank[plot]'`."""
        path = Path(path)
        if path.suffix.lower() not in (".html", ".htm"):
            raise ConfigError(f"a report is an HTML page: name it {path.with_suffix('.html')}, not {path}")
        settings, records = self._settings(path.stem), self._records()
        directory = RunDirectory(path, settings, self.origin().environment)
        view = RunView(settings.name, directory, records, self._summary(records))
        write_output(path, render([view]).encode())

    def _settings(self, name: str) -> RunSettings:
        """Return the settings; a run that was not interrupted was meant to end where it has ended."""
        settings = self.origin().settings
        rounds = settings.rounds if self.interrupted else self.state.round
        return settings.model_copy(update={"name": settings.name or name, "rounds": rounds})

    def _records(self) -> list[RoundRecord]:
        return [record_of(done) for done in self.history]

    def _summary(self, records: list[RoundRecord]) -> Summary | None:
        if self.measured is None or not records:
            return None
        return summarize(self.method, self.state.round, records, self.measured)

    def __repr__(self) -> str:
        known = any(done.evaluation for done in self.history) or self.measured
        accuracy = f", accuracy {self.evaluation.test_accuracy:.1%}" if known else ""
        ended = ", interrupted" if self.interrupted else ""
        return f"<Run: {type(self.method).__name__}, {plural(self.state.round, 'round')}{accuracy}{ended}>"


def load(path: str | Path, *, net: nn.Module | Supernetwork | None = None) -> Run:
    """Read a run directory, of `fedrank.train(..., out=...)`, `Run.save` or `fedrank run`.

    Parameters
    ----------
    path : the run directory.
    net : the model that was trained, or its supernetwork. It may be omitted if its class can be imported and
        takes no arguments. Without the model, only `Run.subnetwork` fails.

    Nothing in the directory is executed, but modules that it names are imported, and so run: for a
    configuration, those of its network and its `imports`; else those of classes and functions. A model that
    is not the one of the run raises an error.
    """
    if not isinstance(path, str | Path):
        raise ConfigError(f"path must be the path of a run directory, got {path!r}")
    _check_net(net)
    directory = RunDirectory.open(Path(path))
    settings = directory.experiment
    if not isinstance(settings, Experiment):
        return read_run(directory, settings.rebuild(net))
    if net is not None:
        raise ConfigError(f"{path}: its configuration says which network it has; leave out net=...")
    return read_run(directory, build_method(settings))


def _check_net(net: object) -> None:
    if net is None or isinstance(net, nn.Module | Supernetwork):
        return
    got = (
        f"the class {net.__name__}; call it: net={net.__name__}(...)" if isinstance(net, type) else repr(net)
    )
    raise ModelError(f"net must be the model that was trained, or its supernetwork, got {got}")


def read_run(directory: RunDirectory, method: Method[Any]) -> Run:
    """Return the run in a directory, after its last checkpoint."""
    state, summary = last_state(directory, method), directory.read_summary()
    rounds = (round_of(record) for record in directory.read_metrics())
    origin = Origin(directory.experiment, directory.environment, Parts.read(directory))
    return Run(
        method,
        state,
        tuple(done for done in rounds if done.number <= state.round),
        summary.evaluation if summary is not None and summary.rounds == state.round else None,
        interrupted=0 < state.round < directory.experiment.rounds,
        origin=lambda: origin,
    )
