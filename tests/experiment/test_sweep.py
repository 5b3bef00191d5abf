"""Sweeps: many runs, each made once, and what happens when they fail or are stopped."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from fedrank.errors import DataError, RunError
from fedrank.experiment.config import load_preset
from fedrank.experiment.rundir import RunDirectory
from fedrank.experiment.sweep import LONGEST_NAME, Cell, folder_name, is_finished, run_cells

TINY = ("rounds=1", "clients_per_round=4", "local.epochs=1", "data.clients=20")


def tiny_cell(vote: str, *settings: str) -> Cell:
    return Cell({"vote": vote}, "digits", (*TINY, f"method.vote={vote}", *settings))


@pytest.mark.slow
def test_a_sweep_runs_what_is_missing_and_nothing_twice(tmp_path: Path) -> None:
    cells = [tiny_cell("borda"), tiny_cell("median")]
    told: list[int] = []
    run_cells(cells[:1], tmp_path, tmp_path, jobs=2)
    first = (tmp_path / cells[0].name / "summary.json").stat().st_mtime_ns
    assert [is_finished(cell, tmp_path) for cell in cells] == [True, False]
    run_cells(cells, tmp_path, tmp_path, jobs=2, progress=told.append)
    assert (tmp_path / cells[0].name / "summary.json").stat().st_mtime_ns == first
    assert told == sorted(told)
    assert (told[0], told[-1]) == (1, 2)
    assert all(is_finished(cell, tmp_path) for cell in cells)

    (tmp_path / cells[0].name).rename(tmp_path / tiny_cell("borda", "seed=8").name)
    with pytest.raises(RunError, match="contains a run with other settings"):
        is_finished(tiny_cell("borda", "seed=8"), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["ctrl-c", "killed"])
def test_a_sweep_that_is_stopped_leaves_no_process_and_begins_no_other_run(tmp_path: Path, stop: str) -> None:
    """Its processes finish and save the round that they are playing, even if nobody is left to tell them."""
    script = tmp_path / "sweep.py"
    script.write_text(
        "from pathlib import Path\n"
        "from fedrank.experiment.sweep import Cell, run_cells\n"
        "if __name__ == '__main__':\n"
        f"    here = Path({str(tmp_path)!r})\n"
        "    cells = [Cell({}, 'digits', ('rounds=10000', f'seed={seed}')) for seed in range(5)]\n"
        "    run_cells(cells, here / 'runs', here, jobs=2)\n"
    )
    process = subprocess.Popen([sys.executable, script], start_new_session=True)
    try:
        begun = tmp_path / "runs"
        wait_for(lambda: len(list(begun.glob("*/checkpoint.npz"))) == 2)
        players = [
            child for child in psutil.Process(process.pid).children() if "spawn_main" in str(child.cmdline())
        ]
        assert len(players) == 2
        if stop == "ctrl-c":
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.kill()
        process.wait(60)
        wait_for(lambda: not any(map(psutil.pid_exists, (player.pid for player in players))))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    directories = [RunDirectory.open(path) for path in begun.iterdir()]
    assert len(directories) == 2
    for directory in directories:
        rounds = [record.round for record in directory.read_metrics()]
        assert len(rounds) == rounds[-1] < 10000


@pytest.mark.slow
def test_a_sweep_stops_in_time_and_goes_on_next_time(tmp_path: Path) -> None:
    cells = [tiny_cell("borda", "rounds=100000", f"seed={seed}") for seed in (7, 8)]
    completed = []
    for _ in range(2):
        run_cells(cells, tmp_path, tmp_path, jobs=1, until=time.time() + 8)
        completed.append(len(RunDirectory.open(tmp_path / cells[0].name).read_metrics()))
    assert 0 < completed[0] < completed[1]
    assert not (tmp_path / cells[1].name).exists()  # the time was over before its turn
    run_cells(cells, tmp_path, tmp_path, jobs=1, until=time.time())
    assert len(RunDirectory.open(tmp_path / cells[0].name).read_metrics()) == completed[1]


def wait_for(condition: Callable[[], bool], seconds: float = 90) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_missing_data_is_told_before_anything_is_run(tmp_path: Path) -> None:
    cells = [tiny_cell("borda"), Cell({"data": "mnist"}, "mnist", ("rounds=1",))]
    with pytest.raises(DataError, match=r"mnist: no file .*fedrank data get mnist"):
        run_cells(cells, tmp_path / "runs", tmp_path, jobs=1)
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_run_that_fails_says_why_and_the_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    for split in ("train", "test"):
        (tmp_path / "mnist" / f"{split}-00000-of-00001.parquet").write_bytes(b"no parquet")
    cells = [Cell({"data": "mnist"}, "mnist", ("rounds=1",)), tiny_cell("borda")]
    failed = run_cells(cells, tmp_path, tmp_path, jobs=1)
    assert failed.keys() == {"mnist_rounds=1"}
    assert "parquet" in failed["mnist_rounds=1"]
    assert is_finished(cells[1], tmp_path)


def test_a_folder_that_cannot_be_created_is_told_before_anything_is_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be created"):
        run_cells([tiny_cell("borda")], tmp_path / "file", tmp_path, jobs=1)


def test_long_names_of_run_directories_stay_different() -> None:
    names = [folder_name("word " * 60 + end) for end in ("one", "two")]
    assert names[0] != names[1]
    assert all(len(name) == LONGEST_NAME for name in names)


def test_the_base_of_a_run_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(load_preset("digits", ["rounds=3"]).to_toml())
    cell = Cell({}, str(path), ("seed=8",))
    assert cell.name == "mine_seed=8"
    assert (cell.experiment.rounds, cell.experiment.seed) == (3, 8)
