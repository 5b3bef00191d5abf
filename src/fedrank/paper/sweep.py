"""Sweeps: the runs behind a table, each an ordinary run directory that is made once.

What is finished is not run again, what was interrupted is resumed, and what fails stops the sweep.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Event, Thread
from typing import Any

from fedrank.errors import FedrankError, RunError
from fedrank.experiment.config import Experiment, load_preset
from fedrank.experiment.environment import describe
from fedrank.experiment.rundir import RunDirectory
from fedrank.experiment.runner import Observers, prepare, run
from fedrank.paper.published import Numbers

LONGEST_NAME = 200
MADE_WITH = ("fedrank", "torch", "numpy", "date")


@dataclass(frozen=True)
class Cell:
    """One run of a table: where it stands in it, and what is run.

    Parameters
    ----------
    place : what tells the run apart, such as {"vote": "borda", "attack": "mirror", "malicious": "20%"}.
    preset, settings : what `fedrank run` is called with.
    published : the numbers in the paper, if there are any.
    """

    place: dict[str, str]
    preset: str
    settings: tuple[str, ...]
    published: Numbers | None = None

    @cached_property
    def name(self) -> str:
        """The name of the run directory: what is different from the preset. Tables share equal runs."""
        plain, ours = load_preset(self.preset).flat(), self.experiment.flat()
        words = [self.preset, *(f"{key}={ours[key]}" for key in ours if ours[key] != plain.get(key))]
        return re.sub(r"[^\w.+=%-]+", "-", "_".join(words))[:LONGEST_NAME]

    @cached_property
    def experiment(self) -> Experiment:
        """What is run."""
        return load_preset(self.preset, self.settings)


def run_cells(
    cells: Sequence[Cell],
    folder: Path,
    data_dir: Path,
    *,
    jobs: int,
    done: Callable[[Cell], None] = lambda _: None,
    finish: Callable[[RunDirectory], object] | None = None,
) -> None:
    """Run what is not finished yet, `jobs` runs at a time in processes of their own, one worker each.

    `finish` is called there with every run that has ended. Ctrl-C finishes and saves the rounds that are
    being played.
    """
    waiting = []
    for cell in {cell.name: cell for cell in cells}.values():
        if is_finished(cell, folder):
            done(cell)
        else:
            waiting.append(cell)
    if not waiting:
        return
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(min(jobs, len(waiting)), get_context("spawn"), _outlive_nobody) as pool:
        playing = {pool.submit(_play, cell, folder, data_dir, finish): cell for cell in waiting}
        try:
            for future in as_completed(playing):
                cell = playing[future]
                try:
                    future.result()
                except (FedrankError, BrokenProcessPool) as error:
                    raise RunError(f"{folder / cell.name}: the run failed: {error}") from error
                done(cell)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


_leaving = Event()
"""In a process that plays: no further run is begun, though one may be waiting in the pool's queue."""


def _outlive_nobody() -> None:
    """If the sweep's own process is gone, finish and save the round that is being played, and leave."""

    def follow(parent: BaseProcess) -> None:
        parent.join()
        _leaving.set()
        os.kill(os.getpid(), signal.SIGTERM)

    if parent := parent_process():
        Thread(target=follow, args=(parent,), daemon=True).start()


def _play(cell: Cell, folder: Path, data_dir: Path, finish: Callable[[RunDirectory], object] | None) -> None:
    """Play a run to its end, from its last checkpoint if there is one."""
    if _leaving.is_set():
        return
    path = folder / cell.name
    prepared = prepare(cell.experiment, data_dir)
    if path.exists():
        directory = RunDirectory.open(path)
    else:
        directory = RunDirectory.create(path, cell.experiment, describe(data_dir, 1, "cpu"))
    result = run(directory, prepared, workers=1, device="cpu", observer=Observers(()))
    if _leaving.is_set():
        os._exit(1)  # nobody is left to answer to, and the queue would be waited for for ever
    if result is None:
        _leaving.set()
    elif finish is not None:
        finish(directory)


def is_finished(cell: Cell, folder: Path) -> bool:
    """Tell whether a cell's run is there and done. A run with other settings in its place is refused."""
    directory = folder / cell.name
    if not directory.exists():
        return False
    found = RunDirectory.open(directory)
    wanted = cell.experiment
    if found.experiment.fingerprint() != wanted.fingerprint() or found.experiment.rounds != wanted.rounds:
        raise RunError(f"{directory}: holds a run with other settings. Name another folder with --runs.")
    summary = found.read_summary()
    return summary is not None and summary["rounds"] >= wanted.rounds


def results(cells: Iterable[Cell], folder: Path) -> list[dict[str, Any]]:
    """Return what is known of each cell: its place, settings, and where it is finished its result."""
    rows = []
    for cell in cells:
        row: dict[str, Any] = {
            "place": cell.place,
            "preset": cell.preset,
            "settings": cell.settings,
            "published": cell.published,
            "finished": is_finished(cell, folder),
            "begun": (folder / cell.name).exists(),
        }
        if row["finished"]:
            directory = RunDirectory.open(folder / cell.name)
            summary = directory.read_summary()
            assert summary is not None
            row |= {
                "rounds": summary["rounds"],
                "evaluation": _without(summary["evaluation"], "accuracies"),
                "curve": _curve(directory),
                "sent": summary["sent"],
                "made_with": {key: directory.environment.get(key) for key in MADE_WITH},
            }
        rows.append(row)
    return rows


def cell_of(row: dict[str, Any]) -> Cell:
    """Return the run that a result is of."""
    return Cell(dict(row["place"]), str(row["preset"]), tuple(row["settings"]), row["published"])


def _curve(directory: RunDirectory) -> dict[str, list[float]]:
    """Return what was measured, a list for each number, as that is the shortest to write down."""
    measured = [record for record in directory.read_metrics() if record["evaluation"]]
    evaluations = [record["evaluation"] for record in measured]
    return {
        "round": [record["round"] for record in measured],
        "accuracy": [round(each["test_accuracy"], 4) for each in evaluations],
        "loss": [round(each["test_loss"], 4) for each in evaluations],
        "clients": [round(each["clients"]["mean"], 4) for each in evaluations],
    }


def _without(values: dict[str, Any], left_out: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != left_out}


def read_results(path: Path) -> list[dict[str, Any]]:
    """Read results that `write_results` wrote."""
    try:
        rows = json.loads(path.read_text("utf-8"))
        if not all(isinstance(row["finished"], bool) and cell_of(row).place for row in rows):
            raise ValueError("rows without a result")
    except FileNotFoundError:
        raise RunError(f"{path}: there is no such file") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path}: this is no file of results ({error})") from error
    return list(rows)


def write_results(rows: list[dict[str, Any]], path: Path) -> None:
    """Write results down, a line for each run."""
    lines = ",\n".join(json.dumps(row) for row in rows)
    path.write_text(f"[\n{lines}\n]\n")
