"""The run directory: all files of a run, written so that a crash loses no completed round.

config.toml       the complete configuration; for a run of `fedrank.train`, description.toml
parts.toml        digests of a model and data of the user's own that the configuration names
environment.json  versions, machine, data directory
metrics.jsonl     one line per round
checkpoint.npz    the state after the last completed round
summary.json      the result, once the run is finished
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import logging
import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from fedrank.errors import RunError
from fedrank.experiment.config import Experiment, load_file
from fedrank.experiment.description import Description
from fedrank.experiment.lines import Line, read_lines
from fedrank.experiment.records import RoundRecord, Summary, first_problem

FORMAT = 3
CONFIG, DESCRIPTION = Experiment.FILE, Description.FILE
ENVIRONMENT, METRICS = "environment.json", "metrics.jsonl"
CHECKPOINT, SUMMARY = "checkpoint.npz", "summary.json"
PARTS = "parts.toml"
OWN_FILES = {CONFIG, DESCRIPTION, PARTS, ENVIRONMENT, METRICS, CHECKPOINT, SUMMARY}

RunSettings = Experiment | Description
"""What determines a run: a configuration, or the description of a run with a model and data of one's own."""

logger = logging.getLogger("fedrank")


@dataclass(frozen=True)
class RunDirectory:
    """A run on disk."""

    path: Path
    experiment: RunSettings
    environment: dict[str, Any]

    @staticmethod
    def check_free(path: Path) -> None:
        """Raise RunError if the directory is not empty."""
        if taken := _content(path):
            advice = "Choose another directory with --out"
            if path.is_dir() and (path / ENVIRONMENT).exists():
                advice += f", or continue with: fedrank resume {shlex.quote(str(path))}"
            raise RunError(f"{path}: already contains {taken.name!r}; nothing was overwritten. {advice}")

    @classmethod
    def create(cls, path: Path, experiment: RunSettings, environment: dict[str, Any]) -> RunDirectory:
        """Create a run directory; it gets its final name only when it is complete."""
        cls.check_free(path)
        unfinished = path if path.exists() else path.with_name(f".{path.name}.tmp")
        run = cls(unfinished, experiment, {"format": FORMAT, **environment})
        try:
            unfinished.mkdir(parents=True, exist_ok=True)
            run._write(experiment.FILE, experiment.to_toml().encode())
            run._write(ENVIRONMENT, json.dumps(run.environment, indent=2).encode() + b"\n")
            if unfinished != path:
                unfinished.rename(path)
        except OSError as error:
            raise RunError(f"{path}: cannot be created ({error.strerror})") from error
        return replace(run, path=path)

    @classmethod
    def at(cls, path: Path) -> RunDirectory | None:
        """Open the run directory at a path; None if there is nothing."""
        return cls.open(path) if _content(path) else None

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """Open an existing run directory."""
        own = (path / DESCRIPTION).exists()
        if not (path / ENVIRONMENT).exists() or not (own or (path / CONFIG).exists()):
            raise RunError(f"{path}: not a run directory ({CONFIG} or {ENVIRONMENT} is missing)")
        try:
            environment = json.loads((path / ENVIRONMENT).read_text("utf-8"))
            written_as = environment["format"]
            if written_as == FORMAT and not {"data_dir", "device"} <= environment.keys():
                raise KeyError("data_dir or device")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"{path / ENVIRONMENT}: damaged ({error!r})") from error
        if written_as != FORMAT:
            raise RunError(
                f"{path}: this run directory has format {written_as}, written by fedrank "
                f"{environment.get('fedrank', 'of an unknown version')}; this version reads format {FORMAT}"
            )
        settings = Description.read(path / DESCRIPTION) if own else load_file(path / CONFIG, run_code=False)
        return cls(path, settings, environment)

    @property
    def configuration(self) -> Experiment:
        """The configuration of the run; RunError if it has a model and data of the user's own."""
        if isinstance(self.experiment, Experiment):
            return self.experiment
        raise RunError(
            f"{self.path}: this needs the run's data, which only the program that trained it has. "
            f"In that program, fedrank.train(..., out={str(self.path)!r}) resumes the run and evaluates its "
            "model."
        )

    @property
    def how_to_resume(self) -> str:
        """A sentence for people."""
        if isinstance(self.experiment, Experiment):
            return f"Resume with: fedrank resume {shlex.quote(str(self.path))}"
        return f"Resume with fedrank.train(..., out={str(self.path)!r})."

    def check_same(self, experiment: RunSettings) -> None:
        """Raise RunError if the run has other settings that determine the result of a round."""
        if experiment.fingerprint() != self.experiment.fingerprint():
            raise RunError(f"{self.path}: contains another run. Choose another directory.")

    def having(self, experiment: RunSettings) -> RunDirectory:
        """Change settings that do not determine the result of a round; return the directory with them."""
        self.check_same(experiment)
        self._write(experiment.FILE, experiment.to_toml().encode())
        return replace(self, experiment=experiment)

    @property
    def data_dir(self) -> Path:
        """The data directory when the run started."""
        return Path(self.environment["data_dir"])

    @property
    def device(self) -> str:
        """The device of the run's workers."""
        return str(self.environment["device"])

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second process from continuing the same run."""
        with (self.path / ENVIRONMENT).open("rb") as file:  # which is never replaced
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RunError(f"{self.path}: another process is working on this run") from None
            yield

    def write_checkpoint(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Replace the checkpoint; the old one stays until the new one is safely on disk."""
        buffer = io.BytesIO()
        np.savez(buffer, experiment=np.array(self.experiment.fingerprint()), **arrays)  # type: ignore[arg-type]
        self._write(CHECKPOINT, buffer.getbuffer())

    def read_checkpoint(self) -> dict[str, NDArray[Any]] | None:
        """Return the last checkpoint, or None if no round is complete."""
        path = self.path / CHECKPOINT
        if not path.exists():
            if len(self.read_metrics()) > 1:
                raise RunError(
                    f"{path}: missing, although {METRICS} has completed rounds. "
                    f"Restore it, or also delete {METRICS} to start over."
                )
            return None
        try:
            with np.load(path, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            made_for = str(arrays.pop("experiment"))
        except PermissionError as error:
            raise RunError(f"{path}: cannot be read ({error.strerror})") from error
        except Exception as error:  # reading a damaged archive can raise any exception
            raise RunError(
                f"{path}: the checkpoint is damaged ({error}). "
                f"Restore it from a copy, or delete it and {METRICS} to start over."
            ) from error
        if made_for != self.experiment.fingerprint():
            raise RunError(
                f"{path}: the checkpoint was made with settings other than those now in "
                f"{self.experiment.FILE}. "
                "Only name, rounds and evaluate_every may change when a run is resumed."
            )
        return arrays

    def append_metrics(self, record: RoundRecord) -> None:
        """Append the line of a round."""

        def append(path: Path) -> None:
            with path.open("ab") as file:
                file.write(record.to_json().encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())

        self._guarded(METRICS, append)

    def read_metrics(self) -> list[RoundRecord]:
        """Return the records of all rounds; what is damaged or missing is reported, not a line cut off."""
        return [record for _, record in self._lines()]

    def forget_after(self, round_number: int) -> None:
        """Drop the lines of rounds after the checkpoint, which will run again."""
        kept = [line for line, record in self._lines() if record.round <= round_number]
        self._write(METRICS, b"".join(line + b"\n" for line in kept))

    def _lines(self) -> list[Line]:
        completed = self._completed_rounds()  # read first: a running process writes a line before its state
        found, problems = read_lines(self._read(METRICS), completed)
        for problem in problems:
            _warn_once(f"{self.path / METRICS}{problem}")
        return found

    def _completed_rounds(self) -> int:
        """Return how many rounds the checkpoint has; `read_checkpoint` reports one that cannot be read."""
        with contextlib.suppress(Exception), np.load(self.path / CHECKPOINT, allow_pickle=False) as archive:
            return int(archive["round"])
        return 0

    def write_metrics(self, records: Iterable[RoundRecord]) -> None:
        """Replace the records of all rounds."""
        self._write(METRICS, b"".join(record.to_json().encode() + b"\n" for record in records))

    def write_parts(self, text: str) -> None:
        """Write what the run remembers of the user's own parts."""
        self._write(PARTS, text.encode())

    def write_summary(self, summary: Summary) -> None:
        """Write the result of the run."""
        self._write(SUMMARY, summary.to_json(indent=2).encode() + b"\n")

    def forget_summary(self) -> None:
        """Drop the result, which is that of other rounds than the checkpoint's."""
        self._guarded(SUMMARY, lambda path: path.unlink(missing_ok=True))

    def read_summary(self) -> Summary | None:
        """Return the result, or None if the run is not finished."""
        content = self._read(SUMMARY)
        path = self.path / SUMMARY
        if not path.exists():
            return None
        try:
            return Summary.model_validate_json(content)
        except ValidationError as error:
            raise RunError(
                f"{path}: damaged ({first_problem(error)}). Delete it; 'fedrank resume' writes it again."
            ) from error

    def _read(self, name: str) -> bytes:
        """Return a file's content, or nothing if it does not exist."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise RunError(f"{self.path / name}: cannot be read ({error.strerror})") from error

    def _write(self, name: str, content: bytes | memoryview) -> None:
        self._guarded(name, lambda path: replace_file(path, content))

    def _guarded(self, name: str, write: Callable[[Path], None]) -> None:
        try:
            write(self.path / name)
        except OSError as error:
            intact = (
                f" The last checkpoint is intact. {self.how_to_resume}"
                if (self.path / CHECKPOINT).exists()
                else ""
            )
            raise RunError(f"{self.path / name}: cannot be written ({error.strerror}).{intact}") from error


def _content(path: Path) -> Path | None:
    """Return something in a directory; None if it is empty or does not exist."""
    try:
        return next(path.iterdir(), None) if path.exists() else None
    except OSError as error:
        raise RunError(f"{path}: cannot be used as a run directory ({error.strerror})") from error


@lru_cache
def _warn_once(text: str) -> None:
    logger.warning(text)


def write_output(path: Path, content: bytes | memoryview) -> None:
    """Write a file that the user named, but never overwrite a run's own files or anything but a file."""
    target = path.resolve()
    if target.exists() and not target.is_file():
        raise RunError(f"{path}: exists and is not a regular file. Choose another with --out.")
    if target.name in OWN_FILES and (target.parent / ENVIRONMENT).exists():
        raise RunError(f"{path}: belongs to the run itself. Choose another with --out.")
    try:
        replace_file(target, content)
    except OSError as error:
        raise RunError(f"{path}: cannot be written ({error.strerror})") from error


def replace_file(path: Path, content: bytes | memoryview) -> None:
    """Replace a file atomically: readers see either the old or the new content."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
