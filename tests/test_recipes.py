"""Tables that are made of runs."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedrank.cli import app
from fedrank.errors import ConfigError, RunError
from fedrank.paper.recipes import RECIPES, chosen_cells, recipe_named
from fedrank.paper.sweep import Cell, is_finished, results, run_cells
from fedrank.report.matrix import matrix_table, shown

TINY = ("rounds=1", "clients_per_round=4", "local.epochs=1", "data.clients=20")


def tiny_cell(vote: str, *settings: str) -> Cell:
    place = {"data": "digits", "vote": vote, "attack": "none", "malicious": "0%"}
    return Cell(place, "digits", (*TINY, f"method.vote={vote}", *settings))


@pytest.mark.slow
def test_a_sweep_runs_what_is_missing_and_nothing_twice(tmp_path: Path) -> None:
    cells = [tiny_cell("borda"), tiny_cell("median")]
    done: list[str] = []
    run_cells(cells[:1], tmp_path, tmp_path, jobs=2, done=lambda cell: done.append(cell.place["vote"]))
    first = (tmp_path / cells[0].name / "summary.json").stat().st_mtime_ns
    rows = results(cells, tmp_path)
    assert [row["finished"] for row in rows] == [True, False]
    run_cells(cells, tmp_path, tmp_path, jobs=2, done=lambda cell: done.append(cell.place["vote"]))
    assert (tmp_path / cells[0].name / "summary.json").stat().st_mtime_ns == first
    assert done == ["borda", "borda", "median"]
    rows = results(cells, tmp_path)
    assert all(row["finished"] and row["made_with"]["torch"] for row in rows)
    accuracy = rows[0]["evaluation"]["test_accuracy"]
    assert shown(rows[0]) == f"{100 * accuracy:.1f}"

    with pytest.raises(RunError, match="holds a run with other settings"):
        is_finished(tiny_cell("borda", "seed=8"), tmp_path)


def test_a_run_that_fails_stops_the_sweep_and_says_why(tmp_path: Path) -> None:
    cell = Cell({"data": "mnist"}, "mnist", ("rounds=1",))
    with pytest.raises(RunError, match=r"mnist: the run failed: .*fedrank data get mnist"):
        run_cells([cell], tmp_path, tmp_path, jobs=1)


def test_the_table_shows_what_is_unfinished_published_and_what_a_backdoor_reached() -> None:
    def row(attack: str, **more: object) -> dict:
        place = {"data": "digits", "vote": "borda", "attack": attack, "malicious": "20%"}
        return {"place": place, "finished": False, "published": None, **more}

    finished = {"finished": True, "curve": [(1, 0.1), (2, 0.5), (3, 0.6), (4, 0.7)], "evaluation": {}}
    rows = [
        row("mirror", **finished),
        row("backdoor", **finished | {"evaluation": {"backdoor": 0.934}}),
        row("reverse", **finished | {"published": 98.7}),
        row("vem"),
    ]
    assert matrix_table(RECIPES["votes"], rows).splitlines()[2:] == [
        "| digits | mirror | 60.0 |",
        "| digits | backdoor | 60.0 (backdoor 93) |",
        "| digits | reverse | 60.0 (published 98.7) |",
        "| digits | vem | unfinished |",
    ]


@pytest.mark.parametrize("name", RECIPES)
def test_every_run_of_a_recipe_has_a_place_of_its_own_and_legal_settings(name: str) -> None:
    cells = recipe_named(name).cells("laptop")
    assert len({cell.name for cell in cells}) == len(cells)
    assert all(cell.experiment for cell in cells)


def test_some_runs_of_a_recipe_are_chosen_by_words() -> None:
    cells = chosen_cells(RECIPES["votes"], "laptop", ["digits", "mirror", "20%"])
    assert {cell.place["vote"] for cell in cells} >= {"borda", "screened-mean"}
    assert all(cell.place["attack"] == "mirror" for cell in cells)
    with pytest.raises(ConfigError, match="no run has all of that"):
        chosen_cells(RECIPES["votes"], "laptop", ["digits", "mnist"])
    with pytest.raises(ConfigError, match="there is no table 'vots'"):
        recipe_named("vots")
    with pytest.raises(ConfigError, match="--scale huge"):
        chosen_cells(RECIPES["votes"], "huge", [])


def test_a_table_without_runs_is_refused(tmp_path: Path) -> None:
    reply = CliRunner().invoke(app, ["paper", "show", "votes", "--runs", str(tmp_path / "nowhere")])
    assert isinstance(reply.exception, ConfigError)
    assert "there are no runs yet. Make them with 'fedrank paper run votes'" in str(reply.exception)


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_every_table_can_be_made_at_the_smallest_scale(name: str, tmp_path: Path) -> None:
    words = ["paper", "run", name, "--scale", "smoke", "--runs", str(tmp_path), "--data-dir", str(tmp_path)]
    made = CliRunner().invoke(app, words)
    assert made.exit_code == 0, made.output
    shown_again = CliRunner().invoke(
        app, ["paper", "show", name, "--scale", "smoke", "--runs", str(tmp_path)]
    )
    assert "unfinished" not in shown_again.output
    folder = tmp_path / name / "smoke"
    assert all(row["finished"] for row in json.loads((folder / "results.json").read_text()))
    assert list(folder.glob("*.svg"))
