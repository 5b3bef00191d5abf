"""The results of the runs behind a table, and the small files that keep them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fedrank.errors import FedrankError, RunError
from fedrank.experiment.metrics import Evaluation
from fedrank.experiment.records import (
    CellAccuracy,
    CellEvaluation,
    CellResult,
    Curve,
    FinishedCell,
    MadeWith,
    UnfinishedCell,
    first_problem,
)
from fedrank.experiment.rundir import RunDirectory, write_output
from fedrank.experiment.sweep import Cell, is_finished
from fedrank.paper.published import Numbers
from fedrank.paper.recipes import Recipe

_ROWS: TypeAdapter[list[CellResult]] = TypeAdapter(list[CellResult])


def results(recipe: Recipe, cells: Iterable[Cell], folder: Path) -> list[CellResult]:
    """Return what is known of each run: its coordinates and settings, and its result if it is finished."""
    return [_result(cell, recipe.numbers.get(tuple(cell.coordinates.values())), folder) for cell in cells]


def _result(cell: Cell, published: Numbers | None, folder: Path) -> CellResult:
    row: dict[str, Any] = {
        "coordinates": cell.coordinates,
        "preset": cell.preset,
        "settings": cell.settings,
        "published": published,
        "begun": (folder / cell.name).exists(),
    }
    try:
        if not is_finished(cell, folder):
            return UnfinishedCell(**row, finished=False)
        directory = RunDirectory.open(folder / cell.name)
        summary = directory.read_summary()
        assert summary is not None
        return FinishedCell(
            **row,
            finished=True,
            rounds=summary.rounds,
            evaluation=_short(summary.evaluation),
            curve=_curve(directory),
            sent=summary.sent,
            made_with=MadeWith.model_validate(
                {key: directory.environment.get(key) for key in MadeWith.model_fields}
            ),
        )
    except (FedrankError, ValidationError) as error:
        return UnfinishedCell(**row, finished=False, problem=str(error))


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


def _curve(directory: RunDirectory) -> Curve:
    records = directory.read_metrics()
    measured = [(record.round, record.evaluation) for record in records if record.evaluation]
    return Curve(
        round=[number for number, _ in measured],
        accuracy=[round(each.test_accuracy, 4) for _, each in measured],
        loss=[round(each.test_loss, 4) for _, each in measured],
        clients=[round(each.clients.mean, 4) for _, each in measured if each.clients],
        worst_class=[round(each.worst_class, 4) for _, each in measured if each.worst_class is not None],
    )


def read_results(path: Path, keys: Iterable[str]) -> list[CellResult]:
    """Read results that `write_results` wrote, of the table whose runs have these coordinates."""
    try:
        rows = _ROWS.validate_json(path.read_bytes(), strict=True)
    except FileNotFoundError:
        raise RunError(f"{path}: no such file") from None
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror})") from error
    except ValidationError as error:
        raise RunError(f"{path}: not a results file ({first_problem(error)})") from error
    for row in rows:
        if row.coordinates.keys() != set(keys):
            raise RunError(f"{path}: contains the results of another table, by {', '.join(row.coordinates)}")
    return rows


def write_results(rows: Sequence[CellResult], path: Path) -> None:
    """Write results, one line per run."""
    lines = ",\n".join(row.to_json() for row in rows)
    write_output(path, f"[\n{lines}\n]\n".encode())
