"""What came of the runs behind a table, and the small files that keep it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter, ValidationError

from fedrank.errors import FedrankError, RunError
from fedrank.experiment.rundir import RunDirectory, write_output
from fedrank.paper.sweep import Cell, is_finished

MADE_WITH = ("fedrank", "revision", "torch", "numpy", "date")


def results(cells: Iterable[Cell], folder: Path) -> list[dict[str, Any]]:
    """Return what is known of each cell: its place, settings, and where it is finished its result."""
    return [
        {
            "place": cell.place,
            "preset": cell.preset,
            "settings": cell.settings,
            "published": cell.published,
            "begun": (folder / cell.name).exists(),
            **_result(cell, folder),
        }
        for cell in cells
    ]


def _result(cell: Cell, folder: Path) -> dict[str, Any]:
    try:
        if not is_finished(cell, folder):
            return {"finished": False}
        directory = RunDirectory.open(folder / cell.name)
        summary = directory.read_summary()
        assert summary is not None
        return {
            "finished": True,
            "rounds": summary["rounds"],
            "evaluation": _without(summary["evaluation"], "accuracies", "samples"),
            "curve": _curve(directory),
            "sent": summary["sent"],
            "made_with": {key: directory.environment.get(key) for key in MADE_WITH},
        }
    except (FedrankError, KeyError, TypeError) as error:
        return {"finished": False, "problem": str(error)}


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


def _without(values: dict[str, Any], *left_out: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in left_out}


class _Unfinished(BaseModel):
    place: dict[str, str]
    preset: str
    settings: list[str]
    published: dict[str, float] | None
    finished: Literal[False]


class _Evaluation(BaseModel):
    clients: dict[str, float]
    test_accuracy: float


class _Finished(_Unfinished):
    finished: Literal[True]  # type: ignore[assignment]
    rounds: int
    evaluation: _Evaluation
    curve: dict[str, list[float]]
    sent: dict[str, float]
    made_with: dict[str, str | None]


_ROWS = TypeAdapter(list[_Unfinished | _Finished])


def read_results(path: Path, keys: Iterable[str]) -> list[dict[str, Any]]:
    """Read results that `write_results` wrote, of the table whose runs have these keys in their place."""
    try:
        content = path.read_bytes()
        for row in _ROWS.validate_json(content, strict=True):
            if row.place.keys() != set(keys):
                raise RunError(f"{path}: holds results of another table, with {', '.join(row.place)}")
    except FileNotFoundError:
        raise RunError(f"{path}: there is no such file") from None
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror})") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        what = ": ".join([*([".".join(map(str, first["loc"]))] if first["loc"] else []), first["msg"]])
        raise RunError(f"{path}: this is no file of results ({what})") from error
    return list(json.loads(content))


def write_results(rows: list[dict[str, Any]], path: Path) -> None:
    """Write results down, a line for each run."""
    lines = ",\n".join(json.dumps(row) for row in rows)
    write_output(path, f"[\n{lines}\n]\n".encode())
