"""What is written down is read again as it was."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from fedrank.ballots.audit import Audit, BallotAudit, LayerAudit
from fedrank.ballots.traffic import Traffic
from fedrank.experiment.metrics import Accuracy, Evaluation
from fedrank.experiment.records import CellResult, FinishedCell, RoundRecord, Summary, first_problem

EVALUATION = Evaluation(Accuracy(0.9, 0.1, 0.5, 1.0, 2), 0.8, 0.7, 100)
ROUND = RoundRecord(
    round=2,
    train_loss=0.5,
    refused={7: "late"},
    evaluation=EVALUATION,
    upload_bytes=30,
    download_bytes=60,
    wall_seconds=1.5,
    clients=(3, 7, 1),
    malicious=(7,),
    vote=Audit((LayerAudit("one", 10, 2, 0.5, {1: 4, 2: 6}),), (BallotAudit(3, 0.1, 0.9),)),
)


def test_a_round_is_one_line_with_the_keys_that_other_programs_know() -> None:
    line = ROUND.to_json()
    assert "\n" not in line
    written = json.loads(line)
    assert list(written) == [
        *("round", "train_loss", "refused", "evaluation", "upload_bytes", "download_bytes"),
        *("wall_seconds", "clients", "malicious", "vote", "measured"),
    ]
    assert written["refused"] == {"7": "late"}
    assert written["vote"]["layers"][0]["flippable"] == {"1": 4, "2": 6}
    assert written["evaluation"]["clients"] == {
        "mean": 0.9, "std": 0.1, "min": 0.5, "max": 1.0, "clients": 2
    }  # fmt: skip
    assert RoundRecord.model_validate_json(line) == ROUND
    assert ROUND.sent == Traffic(10, 20)


def test_a_summary_is_read_as_it_was_written() -> None:
    whole = replace(EVALUATION, accuracies={1: 0.5, 12: 1.0}, samples={1: 4, 12: 3})
    summary = Summary(
        rounds=3, evaluation=whole, sent=Traffic(1.5, 2.0), paper_traffic=Traffic(1.0, 2.0), wall_seconds=9.0
    )
    assert Summary.model_validate_json(summary.to_json(indent=2)) == summary
    assert list(json.loads(summary.to_json())) == [
        *("rounds", "evaluation", "sent", "paper_traffic", "wall_seconds")
    ]


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_the_loss_of_a_model_that_has_diverged_is_kept(loss: float) -> None:
    line = ROUND.model_copy(update={"evaluation": replace(EVALUATION, test_loss=loss)}).to_json()
    assert json.dumps(loss) in line
    again = RoundRecord.model_validate_json(line).evaluation
    assert again is not None
    assert repr(again.test_loss) == repr(loss)


def test_what_is_wrong_is_named_with_its_place() -> None:
    with pytest.raises(ValidationError) as caught:
        RoundRecord.model_validate_json('{"round": "x"}')
    assert first_problem(caught.value).startswith("round: Input should be a valid integer")
    with pytest.raises(ValidationError) as caught:
        RoundRecord.model_validate_json("{")
    assert first_problem(caught.value).startswith("Invalid JSON")


@pytest.mark.parametrize("table", ["ballots", "non-iid", "robustness", "subnetworks", "votes", "weights"])
def test_files_of_results_of_older_versions_are_read_and_written_with_the_new_key(
    table: str, pytestconfig: pytest.Config
) -> None:
    content = Path(pytestconfig.rootpath / f"docs/results/{table}.json").read_text()
    rows = TypeAdapter(list[CellResult]).validate_json(content, strict=True)
    assert all(isinstance(row, FinishedCell) for row in rows)
    renamed = [
        {("coordinates" if key == "place" else key): value for key, value in row.items()}
        for row in json.loads(content)
    ]
    written = [json.loads(row.to_json()) for row in rows]
    assert json.dumps(written, sort_keys=True) == json.dumps(renamed, sort_keys=True)  # NaN is not NaN
