"""Tables that are made of runs."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from rich.console import Console
from typer.testing import CliRunner

from fedrank import __version__
from fedrank.cli import app
from fedrank.errors import ConfigError, DataError, RunError
from fedrank.experiment.records import FinishedCell, UnfinishedCell
from fedrank.experiment.rundir import RunDirectory
from fedrank.nn import NETWORKS
from fedrank.paper.published import ARCHITECTURES, ROBUSTNESS, TRAFFIC
from fedrank.paper.recipes import (
    RECIPES,
    SCALES,
    Shows,
    assumptions,
    caption,
    chosen,
    differences,
    recipe_named,
)
from fedrank.paper.results import read_results, results, write_results
from fedrank.paper.sweep import Cell, is_finished, run_cells
from fedrank.report.figures import COMPUTED as PAINTED
from fedrank.report.figures import DRAWN, figures
from fedrank.report.page import own_report
from fedrank.report.tables import layers_of, results_grid

TINY = ("rounds=1", "clients_per_round=4", "local.epochs=1", "data.clients=20")


def tiny_cell(vote: str, *settings: str) -> Cell:
    place = {"data": "digits", "vote": vote, "attack": "none", "malicious": "0%"}
    return Cell(place, "digits", (*TINY, f"method.vote={vote}", *settings))


@pytest.mark.slow
def test_a_sweep_runs_what_is_missing_and_nothing_twice(tmp_path: Path) -> None:
    cells = [tiny_cell("borda"), tiny_cell("median")]
    told: list[int] = []
    run_cells(cells[:1], tmp_path, tmp_path, jobs=2)
    first = (tmp_path / cells[0].name / "summary.json").stat().st_mtime_ns
    rows = results(cells, tmp_path)
    assert [row.finished for row in rows] == [True, False]
    run_cells(cells, tmp_path, tmp_path, jobs=2, progress=told.append)
    assert (tmp_path / cells[0].name / "summary.json").stat().st_mtime_ns == first
    assert told == sorted(told)
    assert (told[0], told[-1]) == (1, 2)
    rows = results(cells, tmp_path)
    assert all(isinstance(row, FinishedCell) and row.made_with.torch for row in rows)
    accuracy = rows[0].evaluation.test_accuracy
    assert results_grid(RECIPES["votes"], rows).rows[0][-1] == f"{100 * accuracy:.1f}"

    (tmp_path / cells[0].name).rename(tmp_path / tiny_cell("borda", "seed=8").name)
    with pytest.raises(RunError, match="holds a run with other settings"):
        is_finished(tiny_cell("borda", "seed=8"), tmp_path)
    grid = results_grid(RECIPES["votes"], results([tiny_cell("borda", "seed=8"), cells[1]], tmp_path))
    assert grid.rows[0][-1] == "unusable"
    assert any("holds a run with other settings" in note for note in grid.notes)


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["ctrl-c", "killed"])
def test_a_sweep_that_is_stopped_leaves_no_process_and_begins_no_other_run(tmp_path: Path, stop: str) -> None:
    """Its processes finish and save the round that they are playing, even if nobody is left to tell them."""
    script = tmp_path / "sweep.py"
    script.write_text(
        "from pathlib import Path\n"
        "from fedrank.paper.sweep import Cell, run_cells\n"
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


def test_a_run_that_fails_stops_the_sweep_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    for split in ("train", "test"):
        (tmp_path / "mnist" / f"{split}-00000-of-00001.parquet").write_bytes(b"no parquet")
    cell = Cell({"data": "mnist"}, "mnist", ("rounds=1",))
    with pytest.raises(RunError, match=r"mnist_rounds=1: the run failed: .*parquet"):
        run_cells([cell], tmp_path, tmp_path, jobs=1)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot hold runs"):
        run_cells([tiny_cell("borda")], tmp_path / "file", tmp_path, jobs=1)


CLIENTS = {"mean": 0.955, "std": 0.064, "min": 0.5, "max": 1.0, "clients": 1000}


def finished_row(coordinates: dict, **more: object) -> FinishedCell:
    row = {
        "coordinates": coordinates,
        "preset": "mnist",
        "settings": [],
        "finished": True,
        "published": None,
        "rounds": 30,
        "curve": {"round": [1, 2, 3, 4], "accuracy": [0.1, 0.5, 0.6, 0.7], "loss": [1.0] * 4},
        "evaluation": {"clients": CLIENTS, "test_accuracy": 0.9},
        "sent": {"upload_bytes": 1.0, "download_bytes": 1.0},
        "made_with": {"fedrank": __version__, "torch": "2.13.0", "numpy": "2.4.6", "date": "2026-11-16"},
    }
    return FinishedCell.model_validate(row | more)


def unfinished_row(coordinates: dict, **more: object) -> UnfinishedCell:
    row = {
        "coordinates": coordinates,
        "preset": "mnist",
        "settings": [],
        "published": None,
        "finished": False,
    }
    return UnfinishedCell.model_validate(row | more)


def test_the_table_shows_what_is_unfinished_and_what_a_backdoor_reached() -> None:
    def place(attack: str) -> dict:
        return {"data": "digits", "vote": "borda", "attack": attack, "malicious": "20%"}

    rows = [
        finished_row(place("mirror")),
        finished_row(
            place("backdoor"), evaluation={"clients": CLIENTS, "test_accuracy": 0.9, "backdoor": 0.934}
        ),
        finished_row(place("reverse"), made_with={"fedrank": "0.0.1"}),
        unfinished_row(place("vem"), begun=True),
        unfinished_row(place("band")),
    ]
    grid = results_grid(RECIPES["votes"], rows)
    assert [row[2:] for row in grid.rows] == [
        ["mirror", "60.0"],
        ["backdoor", "60.0 (backdoor 93)"],
        ["reverse", "60.0 *"],
        ["vem", "unfinished"],
        ["band", "not run"],
    ]
    assert "made by fedrank 0.0.1" in grid.notes[0]
    assert grid.markdown().splitlines()[2] == "| digits | borda | mirror | 60.0 |"


@pytest.mark.parametrize("table", ["votes", "weights", "robustness", "ballots"])
@pytest.mark.parametrize("width", [60, 80])
def test_a_terminal_shows_every_number_of_a_table(
    table: str, width: int, pytestconfig: pytest.Config
) -> None:
    """What does not fit beside the others stands below them."""
    recipe = RECIPES[table]
    keys = (*recipe.rows, *recipe.columns)
    grid = results_grid(recipe, read_results(pytestconfig.rootpath / f"docs/results/{table}.json", keys))
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(grid)
    shown = Counter(console.file.getvalue().split())  # type: ignore[attr-defined]
    wanted = Counter(word for row in grid.rows for text in row[grid.keys :] for word in text.split())
    assert not wanted - shown
    assert not {heading for heading in grid.headings if heading.isalpha()} - shown.keys()


def test_ours_stands_beside_the_papers() -> None:
    place = {"data": "mnist", "algorithm": "FRL", "malicious": "10%"}
    grid = results_grid(RECIPES["robustness"], [finished_row(place, published={"mean": 98.8, "std": 3.1})])
    assert (grid.headings, grid.rows) == (
        ["data", "algorithm", "10%", "paper"],
        [["mnist", "FRL", "95.5 (6.4)", "98.8 (3.1)"]],
    )
    place = {"data": "mnist", "distribution": "shards", "algorithm": "FRL"}
    numbers = {"mean": 98.3, "std": 4.1, "min": 80.0, "max": 100}
    grid = results_grid(RECIPES["non-iid"], [finished_row(place, published=numbers)])
    assert [row[2:] for row in grid.rows] == [
        ["mean", "95.5", "98.3"],
        ["std", "6.4", "4.1"],
        ["min", "50.0", "80.0"],
        ["max", "100.0", "100"],
    ]


def test_the_traffic_table_is_the_published_one() -> None:
    rows = [
        unfinished_row(cell.place, published=cell.published)
        for cell in recipe_named("traffic").cells("paper")
    ]
    assert len(rows) == len(TRAFFIC) == 21
    grid = results_grid(RECIPES["traffic"], rows)
    assert grid.headings[2:] == [
        *("accuracy", "paper accuracy", "upload", "paper upload", "download", "paper download")
    ]
    for _, _, _, _, upload, their_upload, download, their_download in grid.rows:
        for ours, theirs in ((upload, their_upload), (download, their_download)):
            digits = len(theirs.partition(".")[2])
            assert abs(float(ours) - float(theirs)) <= (0.0101 if digits == 2 else 0.05), (ours, theirs)


def test_the_caption_names_what_is_not_as_published() -> None:
    recipe = RECIPES["robustness"]
    assert differences(recipe, recipe.cells("paper")) == []
    mnist = chosen(recipe.cells("laptop"), ["mnist"])
    assert differences(recipe, mnist) == ["rounds 30 (paper: 2000)"]
    short = chosen(recipe.cells("laptop"), ["mnist", "cifar10", "frl", "0%"])
    assert caption(recipe, short) == [
        "Different from the paper: mnist: rounds 30 (paper: 2000). cifar10: rounds 10 (paper: 2000)."
    ]
    assert caption(recipe, mnist) == ["Different from the paper: rounds 30 (paper: 2000)."]
    assert "data.name digits (paper: mnist)" in differences(recipe, chosen(recipe.cells("smoke"), ["mnist"]))


def test_the_caption_says_which_runs_of_table_4_are_meant() -> None:
    recipe = RECIPES["weights"]
    told = differences(recipe, chosen(recipe.cells("laptop"), ["cifar10"]))
    assert "local.learning_rate 0.003 for FedAvg (paper: 0.1)" in told
    assert "network.weights signed-kaiming-constant for FedAvg (paper: does not say)" in told
    assert "rounds 10 (paper: 2000)" in told


def test_the_caption_says_what_the_presets_decide_beyond_the_paper() -> None:
    [told] = assumptions(chosen(RECIPES["robustness"].cells("laptop"), ["mnist"]))
    assert told == (
        "Not said in the paper: the learning rate is multiplied by 0.999 every round, and falls by a cosine "
        "within one; clients are dealt the training set, and each keeps 20% to test on."
    )
    [told] = assumptions(chosen(RECIPES["non-iid"].cells("laptop"), ["mnist", "shards"]))
    assert told.endswith("with shards they are tested on shards of the test set, of the same classes.")
    assert "keeps 20%" not in told


def test_the_table_of_networks_is_the_published_one() -> None:
    for name, published in ARCHITECTURES.items():
        assert layers_of(NETWORKS[name]()) == list(published)


def test_one_measurement_is_not_called_a_mean() -> None:
    row = finished_row({"data": "digits", "vote": "borda", "attack": "none", "malicious": "0%"})
    assert "the mean of the last 3 measurements" in results_grid(RECIPES["votes"], [row]).notes[0]
    curve = {"round": [1], "accuracy": [0.1]}
    row = finished_row(row.coordinates, preset="digits", rounds=1, curve=curve)
    assert "measurements" not in results_grid(RECIPES["votes"], [row]).notes[0]
    title = json.dumps(figures(RECIPES["votes"], [row])["digits"].to_dict()["title"])
    assert "after 1 round" in title
    assert "1 rounds" not in title
    assert "measurements" not in title


@pytest.mark.parametrize("width", [60, 80, 200])
def test_what_belongs_together_stays_together(width: int, pytestconfig: pytest.Config) -> None:
    """Below the heading of a share of malicious clients stand its bytes, however narrow the terminal."""
    recipe = RECIPES["ballots"]
    keys = (*recipe.rows, *recipe.columns)
    grid = results_grid(recipe, read_results(pytestconfig.rootpath / "docs/results/ballots.json", keys))
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(grid)
    headers = [line.split() for line in console.file.getvalue().splitlines() if "upload" in line]
    for words in headers:
        shares = [number for number, word in enumerate(words) if word.endswith("%")]
        assert [words[number + 1 : number + 3] for number in shares] == [["upload", "download"]] * len(shares)
        assert words.count("upload") == len(shares)


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
        "network.weights signed-kaiming-constant for FedAvg (paper: does not say)",
        "rounds 10 (paper: 2000)",
    ]


def test_results_that_are_no_results_are_refused(tmp_path: Path) -> None:
    good = finished_row({"data": "mnist"})
    write_results([good], tmp_path / "good.json")
    assert read_results(tmp_path / "good.json", ["data"]) == [good]
    with pytest.raises(RunError, match="results of another table, with data"):
        read_results(tmp_path / "good.json", ["weights"])
    for left_out in ("made_with", "evaluation", "coordinates", "finished", "preset"):
        rest = {key: value for key, value in json.loads(good.to_json()).items() if key != left_out}
        (tmp_path / "bad.json").write_text(json.dumps([rest]))
        with pytest.raises(RunError, match="no file of results"):
            read_results(tmp_path / "bad.json", ["data"])
    (tmp_path / "bad.json").write_text('[{"place": 3}]')
    with pytest.raises(RunError, match="no file of results"):
        read_results(tmp_path / "bad.json", ["data"])
    with pytest.raises(RunError, match="no such file"):
        read_results(tmp_path / "none.json", ["data"])


def test_published_numbers_were_copied_completely() -> None:
    assert len(ROBUSTNESS) == 3 * 6 * 3
    assert all(set(numbers) >= {"mean", "std"} for numbers in (*ROBUSTNESS.values(), *TRAFFIC.values()))
    for name in ("robustness", "non-iid", "weights", "hyperparameters", "settings", "traffic"):
        published = [
            cell.published for cell in RECIPES[name].cells("paper") if "scores" not in str(cell.place)
        ]
        assert all(published), name
        wanted = {"mean", "std", "min", "max"} if RECIPES[name].shows is Shows.SPREAD else {"mean", "std"}
        assert all(set(numbers) >= wanted for numbers in published)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", RECIPES)
def test_every_run_of_a_recipe_has_legal_settings(name: str, scale: str) -> None:
    cells = recipe_named(name).cells(scale)
    assert all(cell.experiment for cell in cells)
    assert len({tuple(cell.place.values()) for cell in cells}) == len(cells)
    if scale == "laptop":
        assert len({cell.name for cell in cells}) == len({cell.experiment for cell in cells})


def test_some_runs_of_a_recipe_are_chosen_by_words() -> None:
    votes = RECIPES["votes"].cells("laptop")
    cells = chosen(votes, ["digits", "mirror", "20%"])
    assert {cell.place["vote"] for cell in cells} >= {"borda", "screened-mean"}
    assert all(cell.place["attack"] == "mirror" for cell in cells)
    cells = chosen(RECIPES["robustness"].cells("laptop"), ["femnist", "cifar10", "frl", "fedavg", "0%"])
    assert [(cell.place["data"], cell.place["algorithm"]) for cell in cells] == [
        ("cifar10", "FedAvg"),
        ("cifar10", "FRL"),
        ("femnist", "FedAvg"),
        ("femnist", "FRL"),
    ]
    with pytest.raises(ConfigError, match=r"no run has that; there are: .*; borda; .*"):
        chosen(votes, ["digits", "mirorr"])
    with pytest.raises(ConfigError, match="no run has all of that together"):
        chosen(votes, ["mnist", "noise", "40%"])
    with pytest.raises(ConfigError, match="there is no table 'vots'"):
        recipe_named("vots")
    reply = CliRunner().invoke(app, ["paper", "show", "votes", "--scale", "huge"])
    assert "--scale huge: there are smoke, laptop, paper" in str(reply.exception)


def test_a_file_of_results_is_shown_with_what_differs_and_how_it_was_made(tmp_path: Path) -> None:
    cells = chosen(RECIPES["robustness"].cells("laptop"), ["mnist", "frl"])
    rows = [
        finished_row(
            cell.place, preset=cell.preset, settings=(*cell.settings, "rounds=7"), published=cell.published
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


def test_bytes_stand_beside_what_a_kind_of_ballot_reached() -> None:
    place = {"ballots": "levels=4 coded", "broadcasts": "exact coded", "malicious": "0%"}
    sent = {"upload_bytes": 30 * 1024.0, "download_bytes": 1250 * 1024.0}
    row = finished_row(place, evaluation={"clients": CLIENTS, "test_accuracy": 0.959}, sent=sent)
    grid = results_grid(RECIPES["ballots"], [row])
    assert grid.headings == ["ballots", "broadcasts", "0%", "upload", "download"]
    assert grid.rows == [["levels=4 coded", "exact coded", "95.9", "30", "1,250"]]


def test_a_table_without_runs_is_refused(tmp_path: Path) -> None:
    reply = CliRunner().invoke(app, ["paper", "show", "votes", "--runs", str(tmp_path / "nowhere")])
    assert isinstance(reply.exception, ConfigError)
    assert "there are no runs yet. Make them with 'fedrank paper run votes'" in str(reply.exception)


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
    tmp_path = shared_runs
    words = ["paper", "run", name, "--scale", "smoke", "--runs", str(tmp_path)]
    made = CliRunner().invoke(app, words)
    assert made.exit_code == 0, made.output
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    shown_again = CliRunner().invoke(
        app, ["paper", "show", name, "--scale", "smoke", "--runs", str(tmp_path)]
    )
    assert not {"unfinished", "unusable", "not run"} & set(shown_again.output.split())
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == written
    folder = tmp_path / f"{name}-smoke"
    assert (folder / "table.md").read_text().startswith("|")
    if RECIPES[name].cells("smoke"):
        assert all(row["finished"] for row in json.loads((folder / "results.json").read_text()))
    assert name not in (*DRAWN, *PAINTED) or list(folder.glob("*.svg"))
    if name == "curves":  # what is varied in the paper is varied here
        assert (
            len({row.evaluation.test_loss for row in read_results(folder / "results.json", ["local epochs"])})
            == 4
        )
        some = CliRunner().invoke(app, [*words, "--only", "5"])
        assert some.exit_code == 0, some.output
        assert len(read_results(tmp_path / "curves-smoke-5" / "results.json", ["local epochs"])) == 1
        assert "data.name digits (paper: cifar10)" in (folder / "curves.svg").read_text()
