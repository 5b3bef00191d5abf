"""The tables of the paper and beyond: our numbers beside the published ones."""

import io
from collections import Counter

import numpy as np
import pytest
from rich.console import Console

from fedrank.experiment.records import FinishedCell
from fedrank.experiment.results import read_results
from fedrank.nn import NETWORKS
from fedrank.paper.published import ARCHITECTURES, TRAFFIC
from fedrank.paper.recipes import RECIPES, recipe_named
from fedrank.paper.tables import layers_of, results_table
from fedrank.report.text_table import plain_text
from tests.support.rows import CLIENTS, finished_row, unfinished_row


def test_the_table_shows_what_is_unfinished_and_what_a_backdoor_reached() -> None:
    def under(attack: str) -> dict:
        return {"data": "digits", "vote": "borda", "attack": attack, "malicious": "20%"}

    rows = [
        finished_row(under("mirror")),
        finished_row(
            under("backdoor"), evaluation={"clients": CLIENTS, "test_accuracy": 0.9, "backdoor": 0.934}
        ),
        finished_row(under("reverse"), made_with={"fedrank": "0.0.1"}),
        unfinished_row(under("vem"), begun=True),
        unfinished_row(under("band")),
    ]
    table = results_table(RECIPES["votes"], rows)
    assert [row[2:] for row in table.rows] == [
        ["mirror", "60.0"],
        ["backdoor", "60.0 (backdoor 93)"],
        ["reverse", "60.0 *"],
        ["vem", "unfinished"],
        ["band", "not run"],
    ]
    assert "made by fedrank 0.0.1" in table.notes[0]
    assert table.markdown().splitlines()[2] == "| digits | borda | mirror | 60.0 |"


@pytest.mark.parametrize("name", ["votes", "weights", "robustness", "ballots"])
@pytest.mark.parametrize("width", [60, 80])
def test_a_terminal_shows_every_number_of_a_table(name: str, width: int, pytestconfig: pytest.Config) -> None:
    """Columns that do not fit go below the others."""
    recipe = RECIPES[name]
    keys = (*recipe.rows, *recipe.columns)
    table = results_table(recipe, read_results(pytestconfig.rootpath / f"docs/results/{name}.json", keys))
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(table)
    shown = Counter(console.file.getvalue().split())  # type: ignore[attr-defined]
    wanted = Counter(word for row in table.rows for text in row[table.keys :] for word in text.split())
    assert not wanted - shown
    assert not {heading for heading in table.headings if heading.isalpha()} - shown.keys()


@pytest.mark.parametrize("width", [60, 80, 200])
def test_what_belongs_together_stays_together(width: int, pytestconfig: pytest.Config) -> None:
    """A share of malicious clients keeps its traffic beside it, however narrow the terminal."""
    recipe = RECIPES["ballots"]
    keys = (*recipe.rows, *recipe.columns)
    table = results_table(recipe, read_results(pytestconfig.rootpath / "docs/results/ballots.json", keys))
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(table)
    headers = [line.split() for line in console.file.getvalue().splitlines() if "upload" in line]
    for words in headers:
        shares = [number for number, word in enumerate(words) if word.endswith("%")]
        assert [words[number + 1 : number + 3] for number in shares] == [["upload", "download"]] * len(shares)
        assert words.count("upload") == len(shares)


def test_a_row_is_only_in_groups_of_columns_where_it_has_a_run() -> None:
    """Seeds are columns of `planned`, and not every row was run with every seed."""
    seeds = {"borda": ("7", "8", "9"), "median": ("9",)}
    rows = [
        unfinished_row(
            {"data": "digits", "vote": vote, "attack": "none", "malicious": "0%", "seed": seed},
            problem="damaged",
        )
        for vote, some in seeds.items()
        for seed in some
    ]
    table = results_table(RECIPES["planned"], rows)
    narrow, wide = (plain_text(table, width).splitlines() for width in (50, 80))
    assert [line.split()[-1] for line in narrow if line.startswith(" data")] == ["7", "8", "9"]
    assert sum("borda" in line for line in narrow) == 3
    assert sum("median" in line for line in narrow) == 1
    assert [line.split()[-3:] for line in wide if line.startswith(" data")] == [["7", "8", "9"]]
    assert sum("median" in line for line in wide) == 1


def test_cells_of_several_seeds_show_mean_and_deviation_and_say_how_many() -> None:
    def row(algorithm: str, seed: int, mean: float) -> FinishedCell:
        place = {"data": "mnist", "algorithm": algorithm, "malicious": "0%", "seed": str(seed)}
        evaluation = {"clients": CLIENTS | {"mean": mean}, "test_accuracy": 0.9}
        return finished_row(place, evaluation=evaluation, published={"mean": 98.8, "std": 3.1})

    means = [0.90, 0.94, 0.95]
    rows = [row("FRL", 7 + number, mean) for number, mean in enumerate(means)]
    missing = {"data": "mnist", "algorithm": "FedAvg", "malicious": "0%", "seed": "9"}
    rows += [row("FedAvg", 7, 0.9), row("FedAvg", 8, 0.9), unfinished_row(missing)]
    table = results_table(RECIPES["robustness"], rows)
    expected = f"{100 * np.mean(means):.1f} ± {100 * np.std(means, ddof=1):.1f} (6.4)"
    assert table.rows == [
        ["mnist", "FRL", expected, "98.8 (3.1)"],
        ["mnist", "FedAvg", "90.0 ± 0.0 (6.4) (2 of 3)", "98.8 (3.1)"],
    ]
    assert "mean ± standard deviation over 3 seeds (7, 8, 9)." in table.notes[0]


def test_our_numbers_are_beside_the_published_ones() -> None:
    coordinates = {"data": "mnist", "algorithm": "FRL", "malicious": "10%"}
    table = results_table(
        RECIPES["robustness"], [finished_row(coordinates, published={"mean": 98.8, "std": 3.1})]
    )
    assert (table.headings, table.rows) == (
        ["data", "algorithm", "10%", "paper"],
        [["mnist", "FRL", "95.5 (6.4)", "98.8 (3.1)"]],
    )
    coordinates = {"data": "mnist", "distribution": "shards", "algorithm": "FRL"}
    numbers = {"mean": 98.3, "std": 4.1, "min": 80.0, "max": 100}
    table = results_table(RECIPES["non-iid"], [finished_row(coordinates, published=numbers)])
    assert [row[2:] for row in table.rows] == [
        ["mean", "95.5", "98.3"],
        ["std", "6.4", "4.1"],
        ["min", "50.0", "80.0"],
        ["max", "100.0", "100"],
    ]


def test_the_traffic_table_is_the_published_one() -> None:
    rows = [
        unfinished_row(cell.coordinates, published=TRAFFIC[tuple(cell.coordinates.values())])
        for cell in recipe_named("traffic").cells("paper")
    ]
    assert len(rows) == len(TRAFFIC) == 21
    table = results_table(RECIPES["traffic"], rows)
    assert table.headings[2:] == [
        *("accuracy", "paper accuracy", "upload", "paper upload", "download", "paper download")
    ]
    for _, _, _, _, upload, their_upload, download, their_download in table.rows:
        for ours, theirs in ((upload, their_upload), (download, their_download)):
            digits = len(theirs.partition(".")[2])
            assert abs(float(ours) - float(theirs)) <= (0.0101 if digits == 2 else 0.05), (ours, theirs)


def test_the_table_of_networks_is_the_published_one() -> None:
    for name, published in ARCHITECTURES.items():
        assert layers_of(NETWORKS[name]()) == list(published)


def test_one_measurement_is_not_called_a_mean() -> None:
    row = finished_row({"data": "digits", "vote": "borda", "attack": "none", "malicious": "0%"})
    assert "the mean of the last 3 measurements" in results_table(RECIPES["votes"], [row]).notes[0]
    curve = {"round": [1], "accuracy": [0.1]}
    row = finished_row(row.coordinates, preset="digits", rounds=1, curve=curve)
    assert "measurements" not in results_table(RECIPES["votes"], [row]).notes[0]


def test_traffic_is_shown_beside_the_accuracy_of_a_ballot_format() -> None:
    coordinates = {"ballots": "levels=4 coded", "broadcasts": "exact coded", "malicious": "0%"}
    sent = {"upload_bytes": 30 * 1024.0, "download_bytes": 1250 * 1024.0}
    row = finished_row(coordinates, evaluation={"clients": CLIENTS, "test_accuracy": 0.959}, sent=sent)
    table = results_table(RECIPES["ballots"], [row])
    assert table.headings == ["ballots", "broadcasts", "0%", "upload", "download"]
    assert table.rows == [["levels=4 coded", "exact coded", "95.9", "30", "1,250"]]
