"""Results and checkpoints of runs, moved from one machine to another.

Results alone are a results file. With checkpoints they are a ZIP archive:

results.json           the results file
NAME/environment.json  of an unfinished run: versions and machine
NAME/metrics.jsonl     its rounds
NAME/checkpoint.npz    its state after the last of them

A ranking is in the archive as an exact coded broadcast: 3 to 4 MB for MNIST, where the checkpoint of a run
directory has 6.5. Finished runs need no checkpoint.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, is_zipfile

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from fedrank.errors import ConfigError, RunError
from fedrank.experiment.build import build_method
from fedrank.experiment.config import parse, preset_text
from fedrank.experiment.imported import IMPORTED_ROUNDS, belongs_to, imported_result, keep_result
from fedrank.experiment.records import CellResult, FinishedCell, MadeWith, RoundRecord, first_problem
from fedrank.experiment.results import RESULTS, cell_of, read_rows, results_text
from fedrank.experiment.rundir import CHECKPOINT, ENVIRONMENT, METRICS, RunDirectory, write_output
from fedrank.experiment.runner import last_state
from fedrank.experiment.sweep import Cell, make_folder, own_summary
from fedrank.methods import FRL, Method

EXACT = "exact coded"
TOLD = ("fedrank", "revision", "python", "numpy", "torch", "platform", "cores", "date")
"""What an archive tells of the machine: nothing about its folders."""
DIGEST = "settings"
"""The entry of the archive's environment.json with the fingerprint of the settings."""


@dataclass(frozen=True)
class Checkpoint:
    """An unfinished run: its rounds, and the state after them."""

    cell: Cell
    environment: Mapping[str, Any]
    records: Sequence[RoundRecord]
    arrays: dict[str, NDArray[Any]]

    @property
    def rounds(self) -> int:
        """How many rounds are completed."""
        return int(self.arrays["round"])


@dataclass(frozen=True)
class Imported:
    """What an import has kept, and what not.

    Parameters
    ----------
    results, checkpoints : how many were kept.
    farther : how many runs are as far or farther here.
    different : how many runs have other settings in this version, so that they are other runs.
    """

    results: int
    checkpoints: int
    farther: int
    different: int


def export_runs(rows: Sequence[CellResult], folder: Path, path: Path, *, checkpoints: bool) -> int:
    """Write the results of runs to a file, with the checkpoints of unfinished ones; return their number."""
    if not checkpoints:
        write_output(path, results_text(rows).encode())
        return 0
    begun = {cell_of(row).name: cell_of(row) for row in rows if row.begun and not row.finished}
    buffer, count = io.BytesIO(), 0
    with ZipFile(buffer, "w", ZIP_DEFLATED) as archive:
        archive.writestr(RESULTS, results_text(rows))
        for name, cell in begun.items():
            count += _write_checkpoint(archive, RunDirectory.open(folder / name), cell)
    write_output(path, buffer.getbuffer())
    return count


def _write_checkpoint(archive: ZipFile, directory: RunDirectory, cell: Cell) -> bool:
    """Add an unfinished run; return whether there is a round of it."""
    own_summary(cell, directory.path)  # refuses a run with other settings
    method = build_method(cell.experiment)
    state = last_state(directory, method)
    if not state.round:
        return False
    records = [record for record in directory.read_metrics() if record.round <= state.round]
    told = {key: directory.environment.get(key) for key in TOLD}
    told[DIGEST] = cell.experiment.fingerprint()
    buffer = io.BytesIO()
    np.savez(buffer, **_packed(method, state))  # type: ignore[arg-type]
    archive.writestr(f"{cell.name}/{ENVIRONMENT}", json.dumps(told))
    archive.writestr(f"{cell.name}/{METRICS}", "".join(f"{record.to_json()}\n" for record in records))
    archive.writestr(f"{cell.name}/{CHECKPOINT}", buffer.getvalue(), ZIP_STORED)
    return True


def _packed(method: Method[Any], state: Any) -> dict[str, NDArray[Any]]:
    """Return a state in as few bytes as there are; weights cannot be compressed."""
    if isinstance(method, FRL):
        message = replace(method, broadcasts=EXACT).broadcast(state)
        return {"broadcast": np.frombuffer(message, np.uint8)}
    return method.pack(state)


def _unpacked(method: Method[Any], arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return a state as a run directory keeps it; raise an error unless it is one of this very run."""
    if isinstance(method, FRL):
        received = replace(method, broadcasts=EXACT).receive(arrays["broadcast"].tobytes())
        return {"round": np.array(received.round), "ranking": received.ranking}
    return method.pack(method.unpack(arrays))


def import_runs(path: Path, folder: Path, data_dir: Path) -> Imported:
    """Keep the results and checkpoints in a file, unless a run is as far or farther here.

    The whole file is checked before anything is written.
    """
    rows = read_rows(path)
    cells = {(cell := _cell(path, row)).name: cell for row in rows}
    finished = {cell_of(row).name: row for row in rows if isinstance(row, FinishedCell)}
    if any(row.digest is None for row in finished.values()):
        raise RunError(
            f"{path}: does not say with which settings runs were made, like files of older versions; "
            "'fedrank paper show TABLE --results FILE' shows it"
        )
    results = [row for name, row in finished.items() if belongs_to(row, cells[name].experiment)]
    found = _read_checkpoints(path, cells) if is_zipfile(path) else []
    checkpoints = [each for each in found if each is not None]
    make_folder(folder)
    kept = [_keep_result(folder, row) for row in results]
    begun = [_keep_checkpoint(folder, each, data_dir) for each in checkpoints]
    different = len(finished) + len(found) - len(results) - len(checkpoints)
    return Imported(sum(kept), sum(begun), (*kept, *begun).count(False), different)


def _cell(path: Path, row: CellResult) -> Cell:
    """Return the run of a row. A file from elsewhere must not name files to read, or code to run."""
    try:
        experiment = parse(preset_text(row.preset), row.preset, row.settings, run_code=False)
    except ConfigError as error:
        problem = str(error).partition("\n")[0]
        raise RunError(f"{path}: contains a run that this version does not know ({problem})") from error
    if experiment.imports or experiment.data.own or experiment.network.own:
        raise RunError(f"{path}: contains a run with a model, data or code of its own, which is not imported")
    return cell_of(row)


def _read_checkpoints(path: Path, cells: Mapping[str, Cell]) -> list[Checkpoint | None]:
    try:
        with ZipFile(path) as archive:
            names = [name.rpartition("/")[0] for name in archive.namelist() if name.endswith(CHECKPOINT)]
            return [_read_checkpoint(archive, cells[name]) for name in names]
    except RunError:
        raise
    except ValidationError as error:
        raise RunError(f"{path}: a run in it is damaged ({first_problem(error)})") from error
    except Exception as error:  # reading a damaged archive can raise any exception
        raise RunError(f"{path}: a checkpoint in it is damaged or foreign ({error})") from error


def _read_checkpoint(archive: ZipFile, cell: Cell) -> Checkpoint | None:
    """Read and check an unfinished run; return None if it has other settings in this version."""
    environment = json.loads(archive.read(f"{cell.name}/{ENVIRONMENT}"))
    if environment[DIGEST] != cell.experiment.fingerprint():
        return None
    lines = archive.read(f"{cell.name}/{METRICS}").splitlines()
    records = [RoundRecord.model_validate_json(line) for line in lines]
    with np.load(io.BytesIO(archive.read(f"{cell.name}/{CHECKPOINT}")), allow_pickle=False) as packed:
        arrays = _unpacked(build_method(cell.experiment), dict(packed))
    MadeWith.model_validate(environment)
    found = Checkpoint(cell, {key: environment.get(key) for key in TOLD}, records, arrays)
    numbers = [record.round for record in records]
    if numbers != sorted(set(numbers)) or numbers[-1:] != [found.rounds]:
        raise RunError(f"{archive.filename}: the rounds of {cell.name} do not end at its checkpoint")
    if found.rounds > cell.experiment.rounds:
        raise RunError(f"{archive.filename}: {cell.name} has {found.rounds} rounds, more than were asked for")
    return found


def _keep_result(folder: Path, result: FinishedCell) -> bool:
    """Keep a finished run's result, unless there is one; an unfinished run here stays beside it."""
    cell = cell_of(result)
    path = folder / cell.name
    if own_summary(cell, path) is not None or imported_result(path, cell.experiment) is not None:
        return False
    keep_result(path, result)
    return True


def _keep_checkpoint(folder: Path, checkpoint: Checkpoint, data_dir: Path) -> bool:
    """Make a run directory of a checkpoint, unless the run is as far here."""
    cell = checkpoint.cell
    path = folder / cell.name
    if own_summary(cell, path) is not None or imported_result(path, cell.experiment) is not None:
        return False
    made, aside = (path.with_name(f".{path.name}.{word}") for word in ("new", "old"))
    _remove([made, aside])
    if not path.exists():
        _create(made, checkpoint, data_dir)
        made.rename(path)
        return True
    before = RunDirectory.open(path)
    with before.locked():
        arrays = before.read_checkpoint()
        if arrays is not None and int(arrays["round"]) >= checkpoint.rounds:
            return False
        _create(made, checkpoint, data_dir)
        path.rename(aside)
        made.rename(path)
    _remove([aside])
    return True


def _create(path: Path, checkpoint: Checkpoint, data_dir: Path) -> None:
    """Write a run directory as if the run had been stopped here, with what belongs to this machine."""
    here = {"workers": 1, "device": "cpu", "data_dir": str(data_dir.resolve())}
    environment = {**checkpoint.environment, **here, IMPORTED_ROUNDS: checkpoint.rounds}
    directory = RunDirectory.create(path, checkpoint.cell.experiment, environment)
    directory.write_metrics(checkpoint.records)
    directory.write_checkpoint(checkpoint.arrays)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
