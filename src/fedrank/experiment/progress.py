"""How far the runs of a sweep are, what they still take on this machine, and which come first."""

from __future__ import annotations

import contextlib
import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrank.errors import FedrankError
from fedrank.experiment.config import Experiment
from fedrank.experiment.imported import IMPORTED_ROUNDS
from fedrank.experiment.rundir import METRICS, RunDirectory
from fedrank.experiment.sweep import Cell, is_finished

ROUGH_SECONDS = {"digits": 0.1, "mnist": 3.0, "femnist": 4.0, "cifar10": 14.0}
"""What an epoch of 25 clients takes one core, roughly. It decides only the order of runs never measured."""
COSTS = (
    "data.name", "data.partition", "data.clients", "network.name", "clients_per_round", "local.epochs",
    "local.batch_size", "local.precision", "method.name", "method.vote", "method.aggregator", "wire.ballots",
)  # fmt: skip
"""The settings that decide how long a round takes, beside the attack's; its share does so hardly."""


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Parameters
    ----------
    cell, path : the run, and where it is or will be.
    completed : the rounds that are done.
    finished : whether there is a result.
    begun : whether there is anything.
    seconds_per_round : as measured on this machine, or None.
    problem : why the run directory is unusable.
    """

    cell: Cell
    path: Path
    completed: int = 0
    finished: bool = False
    begun: bool = False
    seconds_per_round: float | None = None
    problem: str = ""

    @property
    def rounds_left(self) -> int:
        """The rounds that are missing."""
        return 0 if self.finished else max(0, self.cell.experiment.rounds - self.completed)

    @property
    def seconds_left(self) -> float | None:
        """What the run still takes; None if nothing like it has been measured here."""
        if self.finished:
            return 0.0
        return None if self.seconds_per_round is None else self.rounds_left * self.seconds_per_round

    @property
    def rough_seconds_left(self) -> float:
        """The same; a rough guess if nothing has been measured."""
        if (measured := self.seconds_left) is not None:
            return measured
        experiment = self.cell.experiment
        epoch = ROUGH_SECONDS.get(experiment.data.name, 1.0) * experiment.clients_per_round / 25
        return self.rounds_left * epoch * experiment.local.epochs


def progress_of(cells: Iterable[Cell], folder: Path) -> list[Progress]:
    """Return how far each different run is, with what it takes by the records of all runs in the folder."""
    speeds = _speeds(folder)
    different = {cell.name: cell for cell in cells}.values()
    return [_progress(cell, folder / cell.name, speeds) for cell in different]


def _progress(cell: Cell, path: Path, speeds: Mapping[tuple[str, ...], Sequence[float]]) -> Progress:
    try:
        finished = is_finished(cell, path.parent)
        rounds, seconds = _rounds(RunDirectory.open(path)) if path.exists() and not finished else (0, [])
    except FedrankError as error:
        return Progress(cell, path, begun=True, problem=str(error))
    if finished:
        return Progress(cell, path, cell.experiment.rounds, finished=True, begun=True)
    alike = seconds or speeds.get(_kind(cell.experiment), ())
    speed = statistics.fmean(alike) if alike else None
    return Progress(cell, path, rounds, begun=path.exists(), seconds_per_round=speed)


def _speeds(folder: Path) -> dict[tuple[str, ...], list[float]]:
    """Return the measured seconds per round of all runs in a folder, by their kind."""
    found: dict[tuple[str, ...], list[float]] = {}
    for directory in _directories(folder):
        if isinstance(directory.experiment, Experiment) and (seconds := _rounds(directory)[1]):
            found.setdefault(_kind(directory.experiment), []).append(statistics.fmean(seconds))
    return found


def _directories(folder: Path) -> Iterator[RunDirectory]:
    """Yield the runs in a folder; what cannot be read measures nothing, and is reported elsewhere."""
    for path in sorted(folder.glob(f"[!.]*/{METRICS}")):
        try:
            yield RunDirectory.open(path.parent)
        except FedrankError:
            continue


def _rounds(directory: RunDirectory) -> tuple[int, list[float]]:
    """Return the number of completed rounds, and the seconds of those that were run on this machine."""
    elsewhere = directory.environment.get(IMPORTED_ROUNDS, 0)
    seconds: dict[int, float] = {}
    try:
        lines = (directory.path / METRICS).read_bytes().splitlines()
    except OSError:
        return 0, []
    for line in lines:
        # a line that a crash cut off; records are not validated here, which takes ten times as long
        with contextlib.suppress(ValueError, KeyError, TypeError):
            record = json.loads(line)
            seconds[int(record["round"])] = float(record["wall_seconds"])
    here = [each for number, each in seconds.items() if number > elsewhere]
    return max(seconds, default=0), here[1:] or here  # the first one may have waited for a compiler


def _kind(experiment: Experiment) -> tuple[str, ...]:
    """Return the settings that runs with equally long rounds share."""
    settings = experiment.flat()
    keys = [key for key in settings if key.startswith("attack.") and key != "attack.share"]
    return tuple(f"{key}={settings.get(key)}" for key in (*COSTS, *keys))


def most_useful_first(runs: Sequence[Progress]) -> list[Cell]:
    """Return runs in the order in which a table fills up soonest.

    Begun runs first, as what they have cost shows nothing yet. Then one seed of every cell, as a table with
    gaps tells less than one without deviations. Then cheap runs before expensive ones. Runs that are alike
    in all this keep their order.
    """
    places: dict[tuple[str, ...], list[str]] = {}
    for each in runs:
        places.setdefault(each.cell.place, []).append(each.cell.name)

    def usefulness(run: Progress) -> tuple[bool, int, float]:
        turn = places[run.cell.place].index(run.cell.name)
        return not run.begun, 0 if run.begun else turn, run.rough_seconds_left

    return [run.cell for run in sorted(runs, key=usefulness)]


@dataclass(frozen=True)
class TimeLeft:
    """What some runs still take together.

    Parameters
    ----------
    seconds : of those that can be estimated.
    estimated, unknown : how many runs can be estimated, and how many cannot.
    """

    seconds: float
    estimated: int
    unknown: int

    @classmethod
    def of(cls, runs: Iterable[Progress], jobs: int) -> TimeLeft:
        """Add up what runs still take, so many at a time; no run is divided."""
        each = [run.seconds_left for run in runs if not run.finished]
        known = [seconds for seconds in each if seconds is not None]
        seconds = max(sum(known) / jobs, max(known, default=0.0))
        return cls(seconds, len(known), len(each) - len(known))
