"""`fedrank paper`: long runs, their status, and moving them between machines."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fedrank.cli import app
from fedrank.errors import ConfigError, RunError
from fedrank.experiment.build import build
from fedrank.experiment.environment import describe
from fedrank.experiment.rundir import RunDirectory
from fedrank.experiment.runner import Observers, run
from fedrank.paper.recipes import RECIPES, runs_of

SMALL = ("robustness", "--scale", "smoke", "--only", "mnist", "--only", "FRL", "--only", "0%", "--seeds", "2")


def paper(*words: object) -> Result:
    return CliRunner().invoke(app, ["paper", *map(str, words)], env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one cell with two seeds; a third is missing."""
    folder = tmp_path_factory.mktemp("paper")
    for cell in runs_of(RECIPES["robustness"], "smoke", ["mnist", "FRL", "0%"], 2):
        environment = describe(folder, 1, "cpu")
        directory = RunDirectory.create(folder / "runs" / cell.name, cell.experiment, environment)
        run(directory, build(cell.experiment, folder), workers=1, device="cpu", observer=Observers(()))
    return folder


def test_results_go_to_another_machine_and_count_there(made: Path, tmp_path: Path) -> None:
    file, there = tmp_path / "some.json", tmp_path / "there"
    exported = paper("export", *SMALL, "--runs", made, "--out", file)
    assert exported.exit_code == 0, exported.output
    assert f"Wrote {file} (" in exported.output
    assert "2 results" in exported.output
    assert "0 results" not in exported.output
    assert "Imported 2 results and 0 checkpoints" in paper("import", file, "--runs", there).output
    assert "2 runs already as far or farther here" in paper("import", file, "--runs", there).output
    assert "All 2 runs are done." in paper("status", *SMALL, "--runs", there).output
    shown = [
        paper("show", "robustness", "--results", file).output,
        paper("show", *SMALL, "--runs", made).output,
        paper("show", *SMALL, "--runs", there).output,
    ]
    numbers = {next(line for line in text.splitlines() if line.startswith(" mnist")) for text in shown}
    assert len(numbers) == 1
    assert "±" in numbers.pop()
    assert all("over 2 seeds (7, 8)" in text for text in shown)
    again = paper("run", *SMALL, "--runs", there, "--budget", "1h")
    assert again.exit_code == 0, again.output
    assert "All 2 runs are done." in again.output
    assert [path.name for path in (there / "runs").iterdir() if path.is_dir()] == []
    rows = json.loads((there / "robustness-smoke-mnist-frl-0%-2-seeds" / "results.json").read_text())
    assert [row["coordinates"]["seed"] for row in rows] == ["7", "8"]


def test_the_status_of_all_tables_is_an_overview(made: Path) -> None:
    reply = paper("status", "--scale", "smoke", "--runs", made)
    assert reply.exit_code == 0, reply.output
    lines = {line.split()[0]: line.split()[1:] for line in reply.output.splitlines() if line.strip()}
    assert lines["robustness"][:4] == ["24", "1", "0", "23"]
    assert "bound" not in lines


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["run", "robustness", "--budget", "2"], "--budget 2: expected hours, minutes or seconds"),
        (["run", "robustness", "--budget", "0s"], "--budget 0s: must be more than 0"),
        (["run", "planned", "--seeds", "2"], "the table 'planned' has its own seeds already"),
        (["status", "robustnes"], "unknown table 'robustnes'; did you mean 'robustness'?"),
        (["status", "robustness", "--scale", "nigth"], "unknown scale 'nigth'; did you mean 'night'?"),
        (["status", "bound"], "the table 'bound' is computed and needs no runs"),
        (["status", "--only", "mnist"], "--only selects runs of one table"),
        (["export", "bound", "--out", "x.json"], "the table 'bound' is computed and has no runs to export"),
        (["export", "curves", "--out", "x.json"], "contains no runs of this table yet"),
        (["import", "nowhere.zip"], "nowhere.zip: no such file"),
        (["import", "."], ".: cannot be read (Is a directory)"),
        (["import", "text"], "text: not a results file"),
        (["show", "curves", "--results", "text", "--seeds", "2"], "--results shows all seeds in the file"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(
    words: list[str], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("not JSON")
    reply = paper(*words)
    assert isinstance(reply.exception, ConfigError | RunError)
    assert complaint in str(reply.exception)
    assert len(str(reply.exception).splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_zero_seeds_are_refused() -> None:
    assert paper("status", "--seeds", "0").exit_code == 2


def test_what_is_computed_needs_no_budget(tmp_path: Path) -> None:
    reply = paper("run", "networks", "--budget", "1h", "--runs", tmp_path)
    assert reply.exit_code == 0, reply.output
    assert "of work" not in reply.output
