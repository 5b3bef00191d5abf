"""Results of runs that were finished on another machine: a file for each, beside the run directories."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from fedrank.errors import RunError
from fedrank.experiment.config import Experiment
from fedrank.experiment.records import FinishedCell, first_problem
from fedrank.experiment.rundir import write_output

IMPORTED_ROUNDS = "imported_rounds"
"""The entry of environment.json with the number of rounds that were run on another machine."""


def imported_result(path: Path, experiment: Experiment) -> FinishedCell | None:
    """Return the imported result of a run, if there is one with these settings; `path` is its directory."""
    file = _file(path)
    try:
        result = FinishedCell.model_validate_json(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise RunError(f"{file}: cannot be read ({error.strerror})") from error
    except ValidationError as error:
        raise RunError(f"{file}: damaged ({first_problem(error)}). Delete it, or import it again.") from error
    return result if belongs_to(result, experiment) else None


def belongs_to(result: FinishedCell, experiment: Experiment) -> bool:
    """Return whether a result is that of these settings."""
    return (result.digest, result.rounds) == (experiment.fingerprint(), experiment.rounds)


def keep_result(path: Path, result: FinishedCell) -> None:
    """Keep an imported result."""
    write_output(_file(path), f"{result.to_json()}\n".encode())


def _file(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")
