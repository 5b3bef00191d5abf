"""Every table can be made and shown, at the smallest scale."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedrank.cli import app
from fedrank.experiment.results import read_results
from fedrank.experiment.sweep import run_cells
from fedrank.paper.figures import COMPUTED, DRAWN
from fedrank.paper.recipes import RECIPES
from fedrank.report.page import own_report


@pytest.fixture(scope="module")
def shared_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All runs at the smallest scale. Tables share equal ones, and so do their tests."""
    folder = tmp_path_factory.mktemp("paper")
    cells = [cell for recipe in RECIPES.values() for cell in recipe.cells("smoke")]
    run_cells(cells, folder / "runs", folder, jobs=2, finish=own_report)
    return folder


@pytest.mark.slow
@pytest.mark.xdist_group("recipes")
@pytest.mark.parametrize("name", RECIPES)
def test_every_table_can_be_made_at_the_smallest_scale(name: str, shared_runs: Path) -> None:
    words = ["paper", "run", name, "--scale", "smoke", "--runs", str(shared_runs)]
    made = CliRunner().invoke(app, words)
    assert made.exit_code == 0, made.output
    written = {path: path.stat().st_mtime_ns for path in shared_runs.rglob("*")}
    words[1] = "show"
    shown_again = CliRunner().invoke(app, words)
    assert not {"unfinished", "unusable"} & set(shown_again.output.split())
    assert {path: path.stat().st_mtime_ns for path in shared_runs.rglob("*")} == written
    folder = shared_runs / f"{name}-smoke"
    assert (folder / "table.md").read_text().startswith("|")
    assert r"\toprule" in (folder / "table.tex").read_text()
    if RECIPES[name].cells("smoke"):
        rows = json.loads((folder / "results.json").read_text())
        assert all(row["finished"] for row in rows)
        assert len((folder / "results.csv").read_text().splitlines()) == len(rows) + 1
    assert name not in (*DRAWN, *COMPUTED) or list(folder.glob("*.svg"))
    if name == "curves":  # what is varied in the paper is varied here
        rows = read_results(folder / "results.json", ["local epochs"])
        assert len({row.evaluation.test_loss for row in rows}) == 4
        words[1] = "run"
        some = CliRunner().invoke(app, [*words, "--only", "5"])
        assert some.exit_code == 0, some.output
        assert len(read_results(shared_runs / "curves-smoke-5" / "results.json", ["local epochs"])) == 1
        assert "data.name digits (paper: cifar10)" in (folder / "curves.svg").read_text()
