"""Comparisons: mean and deviation over seeds in tables and charts, and what has no result."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from fedrank.errors import ConfigError, RunError
from fedrank.experiment.records import CellResult
from fedrank.experiment.results import read_results
from fedrank.report.comparison import METRICS, Comparison
from fedrank.report.text_table import TextTable
from tests.support.rows import CLIENTS, finished_row, unfinished_row

ACCURACIES = {
    ("borda", "none"): (0.9, 0.94, 0.95),
    ("borda", "mirror 20%"): (0.1, 0.2, 0.6),
    ("median", "none"): (0.91, 0.92, 0.93),
    ("median", "mirror 20%"): (0.8, 0.81, 0.85),
}


def row(vote: str, attack: str, seed: int, accuracy: float, **more: object) -> CellResult:
    return finished_row(
        {"vote": vote, "attack": attack, "seed": str(seed)},
        evaluation={"clients": CLIENTS, "test_accuracy": accuracy, "test_loss": 0.5},
        curve={"round": [1, 2], "accuracy": [accuracy / 2, accuracy], "loss": [1.0, 0.5]},
        **more,
    )


def comparison(*others: CellResult) -> Comparison:
    rows = [row(*key, seed, value) for key, values in ACCURACIES.items() for seed, value in enumerate(values)]
    return Comparison("votes", (*rows, *others), ("vote",), ("attack",))


def unescaped(text: str) -> str:
    """What LaTeX prints."""
    names = {"textbackslash": "\\", "textasciitilde": "~", "textasciicircum": "^", "textless": "<"}
    names |= {"textgreater": ">", "textbar": "|"}
    text = text.replace(r"$\pm$", "±").replace("{[}", "[")
    return re.sub(
        r"\\(?:(text\w+)\{\}|([&%$#_{}]))", lambda found: names.get(found[1]) or found[2], text.strip()
    )


def test_a_table_has_mean_and_sample_deviation_over_the_seeds() -> None:
    table = comparison().table()
    assert table.headings == ["vote", "none", "mirror 20%"]
    wanted = {
        key: f"{100 * np.mean(values):.1f} ± {100 * np.std(values, ddof=1):.1f}"
        for key, values in ACCURACIES.items()
    }
    assert table.rows == [
        [vote, wanted[vote, "none"], wanted[vote, "mirror 20%"]] for vote in ("borda", "median")
    ]
    assert "mean ± standard deviation over 3 seeds" in table.notes[0]


def test_one_seed_has_no_deviation() -> None:
    only = Comparison("votes", (row("borda", "none", 7, 0.9),), ("vote", "attack"))
    assert only.table().rows == [["borda", "none", "90.0"]]
    assert only.table().headings == ["vote", "attack", "test_accuracy"]
    assert "seed" not in only.table().notes[0]


def test_runs_without_a_result_are_marked_and_the_reason_is_told() -> None:
    def missing(vote: str, attack: str, seed: int, **more: object) -> CellResult:
        return unfinished_row({"vote": vote, "attack": attack, "seed": str(seed)}, **more)

    table = comparison(
        missing("borda", "none", 3, failure="out of memory"),
        missing("mean", "none", 1, begun=True),
        missing("mean", "mirror 20%", 1),
    ).table()
    assert table.rows[0][1].endswith("(3 of 4)")
    assert table.rows[2] == ["mean", "unfinished", "not run"]
    assert "Failed: vote borda, attack none, seed 3: out of memory" in table.notes


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_has_a_table(metric: str) -> None:
    table = comparison().table(metric)
    known = {record[metric] for record in comparison().to_records()} != {None}
    assert all((text != "none") == known for line in table.rows for text in line[1:])


def test_a_loss_that_is_no_number_has_diverged() -> None:
    diverged = {"clients": None, "test_accuracy": 0.1, "test_loss": float("nan")}
    rows = (row("borda", "none", 1, 0.9), finished_row({"vote": "borda", "seed": "2"}, evaluation=diverged))
    found = Comparison("votes", rows, ("vote",))
    assert found.table("test_loss").rows == [["borda", "diverged"]]


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown metric 'test_acuracy'; did you mean 'test_accuracy'"):
        comparison().table("test_acuracy")


def test_latex_prints_what_the_table_says() -> None:
    texts = ["a & b", r"50% of $x_1^2$", r"{~\textbf{no}} [3pt]", "#1 <|>"]
    table = TextTable("100% & more\nlines", ["key", "91.0 ± 0.3"], [texts[:2], texts[2:]], ["note\nof two"])
    lines = table.latex().splitlines()
    body = [line for line in lines if line.endswith(r"\\")]
    cells = [re.split(r"(?<!\\)&", line.removesuffix(r"\\")) for line in body]
    assert [[unescaped(cell) for cell in row] for row in cells] == [table.headings, *table.rows]
    rest = [line for line in lines if not line.endswith(r"\\")]
    assert all(re.match(r"%|\\(begin\{tabular\}\{lr\}|\w+rule|end\{tabular\})$", line) for line in rest)


def test_a_saved_comparison_has_all_its_files(tmp_path: Path) -> None:
    found = comparison()
    told = found.save(tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        *("table.md", "table.tex", "results.csv", "results.json", "curves.svg", "heatmap.svg"),
    }
    assert all(name in told for name in names)
    assert tuple(read_results(tmp_path / "out" / "results.json", ["vote", "attack", "seed"])) == found.results
    with (tmp_path / "out" / "results.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 12
    assert "<svg" in (tmp_path / "out" / "heatmap.svg").read_text()


def test_a_heat_map_has_every_mean_and_needs_a_finished_run(tmp_path: Path) -> None:
    points = comparison()._heat_map("test_accuracy").to_dict()["data"]["values"]
    assert {(point["row"], point["column"]): pytest.approx(point["value"]) for point in points} == {
        key: 100 * np.mean(values) for key, values in ACCURACIES.items()
    }
    nothing = Comparison("votes", (unfinished_row({"vote": "borda", "seed": "1"}),), ("vote",))
    for draw in (nothing.heatmap, nothing.curves):
        with pytest.raises(RunError, match="finished"):
            draw(tmp_path / "chart.svg")
    assert "curves.svg" not in nothing.save(tmp_path)
    assert "heatmap.svg" not in comparison().save(tmp_path, "backdoor")


def test_curves_are_the_mean_and_the_deviation_of_every_round() -> None:
    chart = json.loads(comparison()._curves().to_json())
    points = {(each["name"], each["panel"], each["round"]): each for each in chart["data"]["values"]}
    assert len(points) == len(ACCURACIES) * 2
    for (vote, attack), values in ACCURACIES.items():
        point, deviation = points[vote, attack, 2], np.std(values, ddof=1)
        assert point["accuracy"] == pytest.approx(np.mean(values), abs=1e-4)
        assert point["low"] == pytest.approx(max(0, np.mean(values) - deviation), abs=1e-4)
        assert point["high"] == pytest.approx(min(1, np.mean(values) + deviation), abs=1e-4)
