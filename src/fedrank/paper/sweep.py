"""Sweeps: the runs behind a table, each an ordinary run directory that is made once.

What is finished is not run again, what was interrupted is resumed, and what fails stops the sweep.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedrank.errors import RunError
from fedrank.experiment.config import Experiment, load_preset
from fedrank.experiment.rundir import RunDirectory
from fedrank.paper.published import Numbers

LONGEST_NAME = 200


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
) -> None:
    """Run what is not finished yet, `jobs` runs at a time with one worker each."""
    waiting = []
    for cell in {cell.name: cell for cell in cells}.values():
        if is_finished(cell, folder):
            done(cell)
        else:
            waiting.append(cell)
    folder.mkdir(parents=True, exist_ok=True)
    busy: dict[subprocess.Popen[bytes], Cell] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < jobs:
                cell = waiting.pop(0)
                busy[_start(cell, folder, data_dir)] = cell
            for process in [process for process in busy if process.poll() is not None]:
                cell = busy.pop(process)
                if process.returncode:
                    log = _log(cell, folder).read_text("utf-8", "replace").strip().splitlines()
                    raise RunError(f"{folder / cell.name}: the run failed: {log[-1] if log else 'no output'}")
                done(cell)
            time.sleep(0.05)
    finally:
        for process in busy:
            process.terminate()
        for process in busy:
            process.wait()


def _start(cell: Cell, folder: Path, data_dir: Path) -> subprocess.Popen[bytes]:
    directory = folder / cell.name
    if directory.exists():
        words = ["resume", str(directory)]
    else:
        chosen = [word for setting in cell.settings for word in ("--set", setting)]
        words = ["run", "--preset", cell.preset, *chosen, "--out", str(directory)]
    command = [sys.executable, "-m", "fedrank", *words, "--data-dir", str(data_dir), "--workers", "1"]
    with _log(cell, folder).open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def _log(cell: Cell, folder: Path) -> Path:
    return folder / f"{cell.name}.log"


def is_finished(cell: Cell, folder: Path) -> bool:
    """Tell whether a cell's run is there and done. A run with other settings in its place is refused."""
    directory = folder / cell.name
    if not directory.exists():
        return False
    run = RunDirectory.open(directory)
    wanted = cell.experiment
    if run.experiment.fingerprint() != wanted.fingerprint() or run.experiment.rounds != wanted.rounds:
        raise RunError(f"{directory}: holds a run with other settings. Name another folder with --runs.")
    summary = run.read_summary()
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
            run = RunDirectory.open(folder / cell.name)
            summary = run.read_summary()
            assert summary is not None
            row |= {
                "rounds": summary["rounds"],
                "evaluation": _without(summary["evaluation"], "accuracies"),
                "curve": [_point(record) for record in run.read_metrics() if record["evaluation"]],
                "made_with": {key: run.environment.get(key) for key in ("fedrank", "torch", "numpy", "date")},
            }
        rows.append(row)
    return rows


def _point(record: dict[str, Any]) -> dict[str, float]:
    measured = record["evaluation"]
    return {
        "round": record["round"],
        "accuracy": round(measured["test_accuracy"], 4),
        "loss": round(measured["test_loss"], 4),
        "clients": round(measured["clients"]["mean"], 4),
    }


def _without(values: dict[str, Any], left_out: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != left_out}


def read_results(path: Path) -> list[dict[str, Any]]:
    """Read results that `write_results` wrote."""
    try:
        rows = json.loads(path.read_text("utf-8"))
        if not all(isinstance(row["place"], dict) and isinstance(row["finished"], bool) for row in rows):
            raise ValueError("rows without a place")
    except FileNotFoundError:
        raise RunError(f"{path}: there is no such file") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path}: this is no file of results ({error})") from error
    return list(rows)


def write_results(rows: list[dict[str, Any]], path: Path) -> None:
    """Write results down, a line for each run."""
    lines = ",\n".join(json.dumps(row) for row in rows)
    path.write_text(f"[\n{lines}\n]\n")
