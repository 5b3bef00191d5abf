"""`fedrank sweep` as a person uses it."""

import csv
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fedrank.cli import app
from fedrank.errors import ConfigError, RunError
from tests.support.command_line import command

GRID = """
preset = "digits"
seeds = 2

[settings]
rounds = 1
clients_per_round = 4
local.epochs = 1
data.clients = 20

[grid]
method.vote = ["borda", "median"]
"""


def sweep(*words: object) -> Result:
    return CliRunner().invoke(app, ["sweep", *map(str, words)], env={"COLUMNS": "200"})


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    path = tmp_path / "grid.toml"
    path.write_text(GRID)
    return path


@pytest.mark.slow
def test_a_sweep_writes_its_tables_and_runs_nothing_twice(grid: Path, tmp_path: Path) -> None:
    runs, words = tmp_path / "out", ("--jobs", 2, "--data-dir", tmp_path)
    reply = sweep(grid, "--runs", runs, *words)
    assert reply.exit_code == 0, reply.output
    for name in ("table.md", "table.tex", "results.csv", "results.json", "curves.svg"):
        assert (runs / name).exists()
        assert name in reply.output
    with (runs / "results.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [(line["method.vote"], line["seed"]) for line in lines] == [
        (vote, seed) for vote in ("borda", "median") for seed in ("7", "8")
    ]
    assert {line["state"] for line in lines} == {"finished"}
    assert all((path / "report.html").exists() for path in (runs / "runs").iterdir())
    files = {path: path.stat().st_mtime_ns for path in (runs / "runs").rglob("*.*")}
    assert sweep(grid, "--runs", runs, *words).exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in (runs / "runs").rglob("*.*")} == files
    shown = sweep(grid, "--runs", runs, "--show", "--metric", "upload_bytes")
    assert "KiB that a client sends in a round" in shown.output

    grid.write_text(GRID.replace("seeds = 2", "seeds = 3"))
    assert "(2 of 3)" in sweep(grid, "--runs", runs, "--show").output

    first = next((runs / "runs").glob("*seed=8*"))
    first.rename(first.with_name(first.name.replace("seed=8", "seed=9")))
    refused = sweep(grid, "--runs", runs, *words)
    assert isinstance(refused.exception, RunError)
    assert "contains a run with other settings. Choose another folder with --runs" in str(refused.exception)
    assert "Unusable" in sweep(grid, "--runs", runs, "--show").output


@pytest.mark.slow
def test_a_run_that_fails_is_shown_and_the_others_are_kept(tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    for split in ("train", "test"):
        (tmp_path / "mnist" / f"{split}-00000-of-00001.parquet").write_bytes(b"no parquet")
    path = tmp_path / "grid.toml"
    small = GRID.partition("[grid]")[0].replace("seeds = 2", "").replace("data.clients = 20", "")
    path.write_text(f'{small}\n[grid.data]\nmnist = {{ preset = "mnist" }}\ndigits = {{}}\n')
    reply = sweep(path, "--runs", tmp_path / "out", "--data-dir", tmp_path, "--jobs", 1)
    assert reply.exit_code == 1, reply.output
    assert "Failed: data mnist, seed 7: " in reply.output
    table = (tmp_path / "out" / "table.md").read_text().splitlines()
    assert table[2] == "| mnist | failed |"
    assert table[3].startswith("| digits | ")
    assert float(table[3].split()[3]) > 0


@pytest.mark.slow
def test_ctrl_c_saves_and_shows_what_is_there(grid: Path, tmp_path: Path) -> None:
    grid.write_text(GRID.replace("rounds = 1", "rounds = 10000"))
    runs = tmp_path / "out"
    words = ("sweep", grid, "--runs", runs, "--jobs", 1, "--data-dir", tmp_path)
    process = subprocess.Popen(command(*words), stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        until = time.monotonic() + 90
        while not list(runs.glob("runs/*/checkpoint.npz")):
            assert time.monotonic() < until
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "unfinished" in output
    assert "Interrupted" in output
    assert (runs / "table.md").exists()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--metric", "acuracy"], "unknown metric 'acuracy'; did you mean"),
        (["--show", "--runs", "nowhere"], "nowhere: contains no runs yet. Start them with 'fedrank sweep"),
        (["--runs", "file"], "cannot be created"),
    ],
)
def test_a_mistake_is_told_before_anything_runs(
    grid: Path, words: list[str], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(grid.parent)
    Path("file").write_text("")
    reply = sweep("grid.toml", *words)
    assert isinstance(reply.exception, ConfigError | RunError)
    assert complaint in str(reply.exception)
    assert sorted(path.name for path in grid.parent.iterdir()) == ["file", "grid.toml"]
