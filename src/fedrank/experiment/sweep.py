"""Sweeps: many runs, such as those behind a table, each an ordinary run directory.

A sweep skips finished runs and resumes interrupted ones. A run that fails does not stop the others.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Event, Thread

from fedrank.data import data_files
from fedrank.errors import FedrankError, RunError
from fedrank.experiment.budget import is_over
from fedrank.experiment.build import build
from fedrank.experiment.config import Experiment, load_file, load_preset
from fedrank.experiment.environment import describe
from fedrank.experiment.imported import imported_result
from fedrank.experiment.records import Summary
from fedrank.experiment.rundir import METRICS, RunDirectory
from fedrank.experiment.runner import Observers, run

RUNS = "runs"
"""The folder of the run directories, beside the tables made from them."""
SEED = "seed"
"""The coordinate that tables average over."""
LONGEST_NAME = 200


def folder_name(text: str) -> str:
    """Return the name of a run directory: without special characters, and not too long.

    >>> folder_name("digits_method.vote={'name': 'median'}")
    'digits_method.vote=-name-median-'
    """
    name = re.sub(r"[^\w.+=%-]+", "-", text)
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Cell:
    """One run of a sweep.

    Parameters
    ----------
    coordinates : identify the run, such as {"vote": "borda", "attack": "mirror", "malicious": "20%"}.
    preset, settings : what `fedrank run` gets: a preset, or the path of a TOML file, and settings.
    """

    coordinates: dict[str, str]
    preset: str
    settings: tuple[str, ...]

    @cached_property
    def name(self) -> str:
        """The name of the run directory: the differences from the preset. Sweeps share identical runs."""
        plain, ours = load_base(self.preset).flat(), self.experiment.flat()
        changes = [f"{key}={ours[key]}" for key in ours if ours[key] != plain.get(key)]
        return folder_name("_".join([Path(self.preset).stem, *changes]))

    @property
    def place(self) -> tuple[str, ...]:
        """Where a table shows the run: its coordinates without the seed."""
        return place_of(self.coordinates)

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment to run."""
        return load_base(self.preset, self.settings)


def place_of(coordinates: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of coordinates without the seed.

    >>> place_of({"data": "mnist", "k": "50%", "seed": "7"})
    ('mnist', '50%')
    """
    return tuple(value for key, value in coordinates.items() if key != SEED)


def load_base(name: str, settings: Sequence[str] = ()) -> Experiment:
    """Return a preset, or the configuration in a TOML file, overridden by `settings`."""
    return load_file(Path(name), settings) if name.endswith(".toml") else load_preset(name, settings)


def run_cells(
    cells: Sequence[Cell],
    folder: Path,
    data_dir: Path,
    *,
    jobs: int,
    progress: Callable[[int], None] = lambda _: None,
    finish: Callable[[RunDirectory], object] | None = None,
    until: float | None = None,
) -> dict[str, str]:
    """Run all unfinished cells in this order, `jobs` at a time, each in its own process with one worker.

    Calls `finish` in that process for every finished run, and `progress` now and then with the number of
    completed rounds of all runs. Returns the runs that failed, by the name of their directory, with the
    reason. Ctrl-C finishes and saves the current rounds, and so does the end of the time that there is: no
    run begins after `until`, and a run ends before a round that would end later (`runner.run`).
    """
    different = {cell.name: cell for cell in cells}.values()
    waiting = [cell for cell in different if not is_finished(cell, folder)]
    completed = sum(cell.experiment.rounds for cell in different if cell not in waiting)
    progress(completed)
    failed: dict[str, str] = {}
    if not waiting:
        return failed
    for name in dict.fromkeys(cell.experiment.data.name for cell in waiting if not cell.experiment.data.own):
        data_files(name, data_dir)  # missing data should fail now, not hours later
    make_folder(folder)
    with ProcessPoolExecutor(min(jobs, len(waiting)), get_context("spawn"), _outlive_nobody) as pool:
        running = {pool.submit(_run_cell, cell, folder, data_dir, finish, until): cell for cell in waiting}
        try:
            while running:
                for future in wait(running, timeout=1, return_when=FIRST_COMPLETED).done:
                    cell = running.pop(future)
                    try:
                        future.result()
                    except Exception as error:
                        failed[cell.name] = _reason(error)
                    completed += _completed_rounds(folder / cell.name)
                progress(completed + sum(_completed_rounds(folder / cell.name) for cell in running.values()))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return failed


def make_folder(path: Path) -> None:
    """Create a folder for runs or results; raise RunError if it cannot be written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{path}: cannot be created ({error.strerror})") from error
    if not os.access(path, os.W_OK):
        raise RunError(f"{path}: cannot be written")


def _reason(error: Exception) -> str:
    """Return why a run failed; what fedrank does not raise on purpose is named by its type."""
    if isinstance(error, BrokenProcessPool):
        return "a process of the sweep ended abruptly, perhaps because memory ran out"
    return str(error) if isinstance(error, FedrankError) else f"{type(error).__name__}: {error}"


def _completed_rounds(path: Path) -> int:
    try:
        return (path / METRICS).read_bytes().count(b"\n")
    except OSError:
        return 0


_leaving = Event()
"""Set in a process that must not start another run, even if the pool's queue has one."""


def _outlive_nobody() -> None:
    """Finish and save the current round, then exit, if the sweep's process has died."""

    def follow(parent: BaseProcess) -> None:
        parent.join()
        _leaving.set()
        os.kill(os.getpid(), signal.SIGTERM)

    if parent := parent_process():
        Thread(target=follow, args=(parent,), daemon=True).start()


def _run_cell(
    cell: Cell,
    folder: Path,
    data_dir: Path,
    finish: Callable[[RunDirectory], object] | None,
    until: float | None,
) -> None:
    """Run to the end, from the last checkpoint if there is one."""
    if _leaving.is_set() or is_over(until):
        return
    path = folder / cell.name
    setup = build(cell.experiment, data_dir)
    if path.exists():
        directory = RunDirectory.open(path)
    else:
        directory = RunDirectory.create(path, cell.experiment, describe(data_dir, 1, "cpu"))
    result = run(directory, setup, workers=1, device="cpu", observer=Observers(()), until=until)
    if _leaving.is_set():
        os._exit(1)  # the parent is gone, and a normal exit would wait for the queue forever
    if result is None:
        _leaving.set()
    elif finish is not None:
        finish(directory)


def is_finished(cell: Cell, folder: Path) -> bool:
    """Return whether a cell's run is finished, here or on the machine that its result was imported from.

    Raises RunError if its directory has other settings.
    """
    path = folder / cell.name
    return own_summary(cell, path) is not None or imported_result(path, cell.experiment) is not None


def own_summary(cell: Cell, path: Path) -> Summary | None:
    """Return the result of a cell's run directory, if it is finished; RunError if it has other settings."""
    if not path.exists():
        return None
    found = RunDirectory.open(path)
    wanted = cell.experiment
    if found.experiment.fingerprint() != wanted.fingerprint() or found.experiment.rounds != wanted.rounds:
        raise RunError(f"{path}: contains a run with other settings. Choose another folder with --runs.")
    summary = found.read_summary()
    return summary if summary is not None and summary.rounds >= wanted.rounds else None
