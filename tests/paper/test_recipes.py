"""Recipes: the runs behind tables, and what captions say about them."""

import pytest
from typer.testing import CliRunner

from fedrank.cli import app
from fedrank.errors import ConfigError
from fedrank.paper.recipes import (
    RECIPES,
    SCALES,
    assumptions,
    caption,
    chosen,
    differences,
    recipe_named,
    runs_of,
)


def test_the_caption_names_what_is_not_as_published() -> None:
    recipe = RECIPES["robustness"]
    assert differences(recipe, chosen(recipe.cells("paper"), ["mnist", "femnist"])) == []
    frl_only = chosen(recipe.cells("paper"), ["cifar10", "FRL"])
    assert differences(recipe, frl_only) == []
    some = chosen(recipe.cells("paper"), ["cifar10", "FedAvg", "FRL"])
    assert differences(recipe, some) == ["local.learning_rate 0.003 for FedAvg (paper: 0.1)"]
    mnist = chosen(recipe.cells("laptop"), ["mnist"])
    assert differences(recipe, mnist) == ["rounds 30 (paper: 2000)"]
    short = chosen(recipe.cells("night"), ["mnist", "cifar10", "frl", "0%"])
    assert caption(recipe, short) == [
        "Different from the paper: mnist: rounds 200 (paper: 2000). cifar10: rounds 60 (paper: 2000)."
    ]
    assert caption(recipe, mnist) == ["Different from the paper: rounds 30 (paper: 2000)."]
    assert "data.name digits (paper: mnist)" in differences(recipe, chosen(recipe.cells("smoke"), ["mnist"]))


def test_the_caption_says_which_runs_of_table_4_are_meant() -> None:
    recipe = RECIPES["weights"]
    told = differences(recipe, chosen(recipe.cells("laptop"), ["cifar10"]))
    assert "local.learning_rate 0.003 for FedAvg (paper: 0.1)" in told
    assert "rounds 30 (paper: 2000)" in told


def test_the_caption_says_what_the_presets_decide_beyond_the_paper() -> None:
    [told] = assumptions(chosen(RECIPES["robustness"].cells("laptop"), ["mnist"]))
    assert told == (
        "Not stated in the paper: the learning rate is multiplied by 0.999 every round, with a cosine "
        "schedule within a round; clients share the training set, and each keeps 20% for testing."
    )
    [told] = assumptions(chosen(RECIPES["non-iid"].cells("laptop"), ["mnist", "shards"]))
    assert told.endswith("with shards, clients are tested on shards of the test set with the same classes.")
    assert "keeps 20%" not in told


def test_the_caption_of_what_is_not_published_names_what_is_smaller() -> None:
    recipe = RECIPES["ballots"]
    assert caption(recipe, recipe.cells("laptop")) == []
    [told] = caption(recipe, recipe.cells("smoke"))
    assert told.startswith("Different from the scale laptop: ")
    assert "data.name digits (laptop: mnist)" in told


def test_the_caption_says_whose_settings_are_not_the_published_ones_and_what_the_paper_does_not_say() -> None:
    recipe = RECIPES["robustness"]
    some = chosen(recipe.cells("laptop"), ["cifar10", "FedAvg", "FRL", "0%"])
    assert differences(recipe, some) == [
        "local.learning_rate 0.003 for FedAvg (paper: 0.1)",
        "rounds 30 (paper: 2000)",
    ]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", RECIPES)
def test_every_run_of_a_recipe_has_legal_settings(name: str, scale: str) -> None:
    cells = recipe_named(name).cells(scale)
    if scale != "laptop" and cells == recipe_named(name).cells("laptop"):
        return
    assert all(cell.experiment for cell in cells)
    assert len({tuple(cell.coordinates.values()) for cell in cells}) == len(cells)
    if scale == "laptop":
        assert len({cell.name for cell in cells}) == len({cell.experiment for cell in cells})


@pytest.mark.parametrize(
    ("scale", "rounds"),
    [
        ("laptop", {"mnist": 30, "cifar10": 30, "femnist": 30}),
        ("night", {"mnist": 200, "cifar10": 60, "femnist": 200}),
    ],
)
def test_a_scale_has_the_rounds_that_its_description_promises(scale: str, rounds: dict[str, int]) -> None:
    for cell in RECIPES["robustness"].cells(scale):
        assert cell.experiment.rounds == rounds[cell.coordinates["data"]]
        assert 6 <= cell.experiment.rounds / cell.experiment.evaluate_every <= 20
    assert f"{rounds['mnist']} rounds" in SCALES[scale]
    assert scale == "laptop" or f"CIFAR10 {rounds['cifar10']}" in SCALES[scale]


def test_the_published_setting_has_the_published_rounds() -> None:
    cells = [
        cell for name in ("robustness", "subnetworks", "curves") for cell in RECIPES[name].cells("paper")
    ]
    assert {cell.experiment.rounds for cell in cells} == {2000}


def test_every_run_can_have_several_seeds_and_the_first_is_the_one_without() -> None:
    recipe = RECIPES["robustness"]
    plain, three = (runs_of(recipe, "laptop", ["mnist", "FRL"], seeds) for seeds in (None, 3))
    assert [(cell.place, cell.experiment.seed) for cell in three] == [
        (cell.place, seed) for cell in plain for seed in (7, 8, 9)
    ]
    assert [cell.name for cell in three[::3]] == [cell.name for cell in plain]
    assert len({cell.name for cell in three}) == 3 * len(plain)
    assert caption(recipe, three) == caption(recipe, plain)
    with pytest.raises(ConfigError, match="the table 'planned' has its own seeds already"):
        runs_of(RECIPES["planned"], "laptop", seeds=3)


def test_some_runs_of_a_recipe_are_chosen_by_words() -> None:
    votes = RECIPES["votes"].cells("laptop")
    cells = chosen(votes, ["digits", "mirror", "20%"])
    assert {cell.coordinates["vote"] for cell in cells} >= {"borda", "screened-mean"}
    assert all(cell.coordinates["attack"] == "mirror" for cell in cells)
    cells = chosen(RECIPES["robustness"].cells("laptop"), ["femnist", "cifar10", "frl", "fedavg", "0%"])
    assert [(cell.coordinates["data"], cell.coordinates["algorithm"]) for cell in cells] == [
        ("cifar10", "FedAvg"),
        ("cifar10", "FRL"),
        ("femnist", "FedAvg"),
        ("femnist", "FRL"),
    ]
    with pytest.raises(ConfigError, match=r"no run matches; choose from: .*; borda; .*"):
        chosen(votes, ["digits", "mirorr"])
    with pytest.raises(ConfigError, match="no run matches all of these"):
        chosen(votes, ["mnist", "noise", "40%"])
    with pytest.raises(ConfigError, match=r"unknown table 'vots'; did you mean 'votes'\?"):
        recipe_named("vots")
    reply = CliRunner().invoke(app, ["paper", "show", "votes", "--scale", "huge"])
    assert "unknown scale 'huge'; known: smoke, laptop, night, paper" in str(reply.exception)
