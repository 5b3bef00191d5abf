"""Files of results, and how they are shown."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedrank import __version__
from fedrank.cli import app
from fedrank.errors import ConfigError
from fedrank.experiment.records import FinishedCell, UnfinishedCell
from fedrank.experiment.results import results, write_results
from fedrank.experiment.rundir import RunDirectory
from fedrank.experiment.sweep import Cell, run_cells
from fedrank.paper.recipes import RECIPES, chosen
from fedrank.paper.tables import results_table
from tests.support.rows import finished_row


def cell(*settings: str) -> Cell:
    coordinates = {"data": "digits", "vote": "borda", "attack": "none", "malicious": "0%"}
    tiny = ("rounds=1", "clients_per_round=4", "local.epochs=1", "data.clients=20", "method.vote=borda")
    return Cell(coordinates, "digits", (*tiny, *settings))


@pytest.mark.slow
def test_results_are_those_of_the_runs(tmp_path: Path) -> None:
    recipe, other = RECIPES["votes"], cell("seed=8")
    run_cells([cell()], tmp_path, tmp_path, jobs=1)
    finished, missing = results([cell(), other], tmp_path)
    assert isinstance(finished, FinishedCell)
    assert isinstance(missing, UnfinishedCell)
    assert finished.made_with.torch
    summary = RunDirectory.open(tmp_path / cell().name).read_summary()
    assert summary is not None
    assert finished.evaluation.test_loss == summary.evaluation.test_loss
    assert finished.sent == summary.sent
    assert results_table(recipe, [finished]).rows[0][-1] == f"{100 * finished.curve.accuracy[-1]:.1f}"

    (tmp_path / cell().name).rename(tmp_path / other.name)
    table = results_table(recipe, results([other], tmp_path))
    assert table.rows[0][-1] == "unusable"
    assert any("contains a run with other settings" in note for note in table.notes)


def test_published_numbers_are_found_by_the_coordinates_of_a_run(tmp_path: Path) -> None:
    recipe = RECIPES["robustness"]
    cells = chosen(recipe.cells("laptop"), ["cifar10", "10%"])
    rows = results(cells, tmp_path, published=recipe.numbers)
    numbers = {row.coordinates["algorithm"]: row.published for row in rows}
    assert numbers["FRL"] == {"mean": 79.0, "std": 12.4}
    assert numbers["FRL, magnitude scores"] is None


def test_a_file_of_results_is_shown_with_what_differs_and_how_it_was_made(tmp_path: Path) -> None:
    recipe = RECIPES["robustness"]
    cells = chosen(recipe.cells("laptop"), ["mnist", "frl"])
    rows = [
        finished_row(
            cell.coordinates,
            preset=cell.preset,
            settings=(*cell.settings, "rounds=7"),
            published=recipe.numbers[tuple(cell.coordinates.values())],
        )
        for cell in cells
    ]
    write_results(rows, tmp_path / "some.json")
    words = ["paper", "show", "robustness", "--results", str(tmp_path / "some.json"), "--only", "20%"]
    shown = " ".join(CliRunner().invoke(app, words, env={"COLUMNS": "200"}).output.split())
    assert "98.7 (3.3)" in shown
    assert "98.8 (3.1)" not in shown  # with 10%
    assert "Different from the paper: rounds 7 (paper: 2000)." in shown
    assert f"made 2026-11-16, fedrank {__version__}, torch 2.13.0, NumPy 2.4.6." in shown


def test_a_table_without_runs_is_refused(tmp_path: Path) -> None:
    reply = CliRunner().invoke(app, ["paper", "show", "votes", "--runs", str(tmp_path / "nowhere")])
    assert isinstance(reply.exception, ConfigError)
    assert "no runs yet. Start them with 'fedrank paper run votes'" in str(reply.exception)
