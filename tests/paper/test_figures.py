"""The figures of the paper and beyond."""

import json
from pathlib import Path

import pytest

from fedrank.experiment.records import UnfinishedCell
from fedrank.experiment.results import read_results
from fedrank.paper.figures import COMPUTED, DRAWN, figures
from fedrank.paper.recipes import RECIPES
from tests.support.rows import finished_row, unfinished_row

VOTE = {"data": "digits", "vote": "borda", "attack": "none", "malicious": "0%"}


def test_the_title_of_one_measurement_says_neither_rounds_nor_mean() -> None:
    row = finished_row(VOTE, preset="digits", rounds=1, curve={"round": [1], "accuracy": [0.1]})
    title = json.dumps(figures(RECIPES["votes"], [row])["digits"].to_dict()["title"])
    assert "after 1 round" in title
    assert "1 rounds" not in title
    assert "measurements" not in title


@pytest.mark.parametrize("name", ["ballots", "robustness", "subnetworks", "votes"])
def test_every_finished_run_is_drawn(name: str, pytestconfig: pytest.Config) -> None:
    recipe = RECIPES[name]
    path = Path(pytestconfig.rootpath / f"docs/results/{name}.json")
    rows = read_results(path, (*recipe.rows, *recipe.columns))
    drawn = sum(len(chart.to_dict()["data"]["values"]) for chart in figures(recipe, rows).values())
    over_rounds = name == "robustness"
    assert drawn == (sum(len(row.curve.round) for row in rows) if over_rounds else len(rows))


def test_what_is_not_finished_is_not_drawn() -> None:
    row = unfinished_row(VOTE)
    assert isinstance(row, UnfinishedCell)
    assert figures(RECIPES["votes"], [row]) == {}


def test_what_differs_from_the_paper_is_said_below_the_title() -> None:
    coordinates = {"data": "mnist", "k": "50%"}
    settings = ["method.vote=borda", "network.keep=0.5", "rounds=30"]
    chart = figures(RECIPES["subnetworks"], [finished_row(coordinates, settings=settings)])["subnetworks"]
    assert chart.to_dict()["title"]["subtitle"] == ["different from the paper:", "rounds 30 (paper: 2000)"]


@pytest.mark.parametrize("name", ["ballots", "curves", "robustness", "subnetworks", "votes"])
def test_several_seeds_are_drawn_as_their_mean(name: str) -> None:
    recipe = RECIPES[name]
    first = recipe.cells("laptop")[0].coordinates
    rows = [
        finished_row(
            first | {"seed": str(seed)},
            evaluation={"clients": {"mean": accuracy}, "test_accuracy": accuracy},
            curve={"round": [5, 10], "accuracy": [0.1, accuracy], "loss": [1.0, 1.0]},
        )
        for seed, accuracy in ((7, 0.5), (8, 0.7))
    ]
    [chart] = figures(recipe, rows).values()
    drawn = chart.to_dict()
    assert "mean over 2 seeds" in drawn["title"]["subtitle"][0]
    point = (drawn.get("data") or drawn["hconcat"][0]["data"])["values"][-1]
    expected = {"accuracy": 0.6, "error": 40.0, "value": 100 * (0.1 + 0.6) / 2}
    [shown] = expected.keys() & point.keys()
    assert point[shown] == pytest.approx(expected[shown])


def test_recipes_that_are_drawn_exist() -> None:
    assert {*DRAWN, *COMPUTED} <= RECIPES.keys()
