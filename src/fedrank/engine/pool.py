"""Worker processes that rest until the next run, as starting one takes seconds."""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path

from fedrank.engine.process import WorkerProcess
from fedrank.errors import TrainingError

_resting: list[WorkerProcess] = []


def take_workers(count: int) -> list[WorkerProcess]:
    """Return so many workers: those that rest, if they know the present code, and new ones."""
    found: list[WorkerProcess] = []
    while _resting and len(found) < count:
        worker = _resting.pop()
        if _knows_present_code(worker):
            found.append(worker)
        else:
            worker.close()
    return found + [WorkerProcess() for _ in range(count - len(found))]


def rest(worker: WorkerProcess) -> None:
    """Let a worker rest until the next run, unless it is busy or broken."""
    try:
        if worker.busy:
            raise TrainingError("the worker has not finished")
        worker.forget()
    except TrainingError:
        worker.close()
    else:
        _resting.append(worker)


@atexit.register
def close_resting_workers() -> None:
    """Stop the workers that rest."""
    while _resting:
        _resting.pop().close()


def _knows_present_code(worker: WorkerProcess) -> bool:
    """Return whether a new process would import the same modules from the same files."""
    if worker.process.poll() is not None or worker.path != sys.path or worker.directory != Path.cwd():
        return False
    try:
        return all(Path(file).stat().st_mtime < worker.started for file in worker.imported)
    except OSError:  # a file is gone
        return False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_resting.clear)  # they are the parent's
