"""Files of results: JSON with all that is known, CSV with a line for each run."""

import csv
import json
from pathlib import Path

import pytest

from fedrank.errors import RunError
from fedrank.experiment.results import read_results, to_record, write_csv, write_results
from tests.support.rows import CLIENTS, finished_row, unfinished_row


def test_a_csv_file_has_the_coordinates_and_numbers_of_every_run(tmp_path: Path) -> None:
    rows = [
        finished_row({"vote": "a, b", "seed": "7"}, evaluation={"clients": CLIENTS, "test_accuracy": 0.9}),
        finished_row({"vote": 'the "best"', "seed": "7"}, evaluation={"clients": None, "test_accuracy": 0.8}),
        unfinished_row({"vote": "mean", "seed": "7"}, failure="out of memory"),
    ]
    write_csv(rows, tmp_path / "results.csv")
    with (tmp_path / "results.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["vote"] for line in lines] == ["a, b", 'the "best"', "mean"]
    assert [line["state"] for line in lines] == ["finished", "finished", "failed"]
    assert [line["test_accuracy"] for line in lines] == ["0.9", "0.8", ""]
    assert [line["clients_min"] for line in lines] == ["0.5", "", ""]
    assert all(line.keys() == to_record(row).keys() for line, row in zip(lines, rows, strict=True))


def test_a_run_without_result_says_what_it_is() -> None:
    states = [
        unfinished_row({}, **more).state
        for more in ({}, {"begun": True}, {"begun": True, "failure": "no memory"}, {"problem": "damaged"})
    ]
    assert states == ["not run", "unfinished", "failed", "unusable"]


def test_a_file_that_has_no_results_is_refused(tmp_path: Path) -> None:
    good = finished_row({"data": "mnist"})
    write_results([good], tmp_path / "good.json")
    assert read_results(tmp_path / "good.json", ["data"]) == [good]
    with pytest.raises(RunError, match="results of another table, by data"):
        read_results(tmp_path / "good.json", ["weights"])
    for left_out in ("made_with", "evaluation", "coordinates", "finished", "preset"):
        rest = {key: value for key, value in json.loads(good.to_json()).items() if key != left_out}
        (tmp_path / "bad.json").write_text(json.dumps([rest]))
        with pytest.raises(RunError, match="not a results file"):
            read_results(tmp_path / "bad.json", ["data"])
    (tmp_path / "bad.json").write_text('[{"place": 3}]')
    with pytest.raises(RunError, match="not a results file"):
        read_results(tmp_path / "bad.json", ["data"])
    with pytest.raises(RunError, match="no such file"):
        read_results(tmp_path / "none.json", ["data"])
