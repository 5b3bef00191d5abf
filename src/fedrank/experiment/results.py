"""The results of the runs of a sweep, and the files that keep them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

from pydantic import TypeAdapter, ValidationError

from fedrank.errors import FedrankError, RunError
from fedrank.experiment.imported import imported_result
from fedrank.experiment.metrics import Evaluation
from fedrank.experiment.records import (
    CellAccuracy,
    CellEvaluation,
    CellResult,
    Curve,
    FinishedCell,
    MadeWith,
    RoundRecord,
    Summary,
    UnfinishedCell,
    first_problem,
)
from fedrank.experiment.rundir import RunDirectory, write_output
from fedrank.experiment.sweep import SEED, Cell, own_summary

Published = Mapping[tuple[str, ...], dict[str, float]]
"""Published numbers, by the coordinates of the runs without the seed."""
NUMBERS = (
    "completed_rounds", "test_accuracy", "test_loss", "worst_class", "backdoor",
    "clients_mean", "clients_std", "clients_min", "clients_max", "upload_bytes", "download_bytes",
)  # fmt: skip
"""The numbers of a run in `to_record`. Rounds, and bytes of one client, have names that no setting has."""
STATE = "state"
RESULTS = "results.json"
"""The results file in an archive."""

_ROWS: TypeAdapter[list[CellResult]] = TypeAdapter(list[CellResult])


def results(
    cells: Iterable[Cell],
    folder: Path,
    *,
    published: Published | None = None,
    failed: Mapping[str, str] | None = None,
) -> list[CellResult]:
    """Return what is known of each run: its coordinates and settings, and its result if it is finished.

    `failed` are the runs that have just failed, with the reason, by the name of their directory.
    """
    published, failed = published or {}, failed or {}
    return [_result(cell, folder, published.get(cell.place), failed.get(cell.name)) for cell in cells]


def _result(cell: Cell, folder: Path, published: dict[str, float] | None, failure: str | None) -> CellResult:
    path = folder / cell.name
    row: dict[str, Any] = {
        "coordinates": cell.coordinates,
        "preset": cell.preset,
        "settings": cell.settings,
        "published": published,
        "begun": path.exists(),
    }
    try:
        if summary := own_summary(cell, path):
            directory = RunDirectory.open(path)
            row["digest"] = cell.experiment.fingerprint()
            return finished_cell(row, summary, directory.read_metrics(), directory.environment)
        if imported := imported_result(path, cell.experiment):
            return imported.model_copy(update=row | {"begun": True})
        return UnfinishedCell(**row, finished=False, failure=failure)
    except (FedrankError, ValidationError) as error:
        return UnfinishedCell(**row, finished=False, problem=str(error))


def finished_cell(
    row: Mapping[str, Any], summary: Summary, records: Sequence[RoundRecord], environment: Mapping[str, Any]
) -> FinishedCell:
    """Return the result of a finished run; `row` is what is known of it beforehand."""
    return FinishedCell(
        **row,
        finished=True,
        rounds=summary.rounds,
        evaluation=_short(summary.evaluation),
        curve=_curve(records),
        sent=summary.sent,
        made_with=MadeWith.model_validate({key: environment.get(key) for key in MadeWith.model_fields}),
    )


def to_record(row: CellResult) -> dict[str, Any]:
    """Return the coordinates of a run, its state and its numbers, which are None without a result."""
    record: dict[str, Any] = {**row.coordinates, STATE: row.state, **dict.fromkeys(NUMBERS)}
    if SEED in record:
        record[SEED] = int(record[SEED])
    if isinstance(row, FinishedCell):
        measured, clients = row.evaluation, row.evaluation.clients
        record |= {
            "completed_rounds": row.rounds,
            "test_accuracy": measured.test_accuracy,
            "test_loss": measured.test_loss,
            "worst_class": measured.worst_class,
            "backdoor": measured.backdoor,
            "upload_bytes": row.sent.upload_bytes,
            "download_bytes": row.sent.download_bytes,
        }
        if clients:
            record |= {f"clients_{name}": getattr(clients, name) for name in ("mean", "std", "min", "max")}
    return record


def write_csv(rows: Sequence[CellResult], path: Path) -> None:
    """Write a line for each run: its coordinates, its state and its numbers."""
    records = [to_record(row) for row in rows]
    text = io.StringIO()
    columns = dict.fromkeys(key for record in records for key in record)
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    write_output(path, text.getvalue().encode())


def cell_of(row: CellResult) -> Cell:
    """Return the run that a result belongs to."""
    return Cell(row.coordinates, row.preset, row.settings)


def _short(evaluation: Evaluation) -> CellEvaluation:
    """Return an evaluation without single clients."""
    return CellEvaluation(
        clients=CellAccuracy(**asdict(evaluation.clients)) if evaluation.clients else None,
        test_accuracy=evaluation.test_accuracy,
        test_loss=evaluation.test_loss,
        test_samples=evaluation.test_samples,
        backdoor=evaluation.backdoor,
        worst_class=evaluation.worst_class,
    )


def _curve(records: Sequence[RoundRecord]) -> Curve:
    measured = [(record.round, record.evaluation) for record in records if record.evaluation]
    return Curve(
        round=[number for number, _ in measured],
        accuracy=[round(each.test_accuracy, 4) for _, each in measured],
        loss=[round(each.test_loss, 4) for _, each in measured],
        clients=[round(each.clients.mean, 4) for _, each in measured if each.clients],
        worst_class=[round(each.worst_class, 4) for _, each in measured if each.worst_class is not None],
    )


def read_results(path: Path, keys: Iterable[str]) -> list[CellResult]:
    """Read results that `write_results` wrote, of the table whose runs have these coordinates, and a seed."""
    rows = read_rows(path)
    for row in rows:
        if row.coordinates.keys() | {SEED} != {*keys, SEED}:
            raise RunError(f"{path}: contains the results of another table, by {', '.join(row.coordinates)}")
    return rows


def read_rows(path: Path) -> list[CellResult]:
    """Read a results file, or that of an archive with checkpoints."""
    try:
        return _ROWS.validate_json(_content(path), strict=True)
    except FileNotFoundError:
        raise RunError(f"{path}: no such file") from None
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror})") from error
    except ValidationError as error:
        raise RunError(f"{path}: not a results file ({first_problem(error)})") from error
    except Exception as error:  # reading a damaged archive can raise any exception
        raise RunError(f"{path}: damaged, or not an archive of results ({error})") from error


def _content(path: Path) -> bytes:
    if not is_zipfile(path):
        return path.read_bytes()
    with ZipFile(path) as archive:
        return archive.read(RESULTS)


def write_results(rows: Sequence[CellResult], path: Path) -> None:
    """Write results, one line per run."""
    write_output(path, results_text(rows).encode())


def results_text(rows: Sequence[CellResult]) -> str:
    """Return the text of a results file."""
    lines = ",\n".join(row.to_json() for row in rows)
    return f"[\n{lines}\n]\n"
