"""Callbacks see the run after every round, and may stop it."""

from pathlib import Path

import numpy as np
import pytest

import fedrank
from fedrank.data import Federation
from tests.test_run import _quick_reports, train  # noqa: F401  (a fixture)


class Heard(fedrank.Callback):
    def __init__(self) -> None:
        self.begun: list[int] = []
        self.rounds: list[int] = []

    def begin(self, run: fedrank.Run) -> None:
        self.begun.append(len(run.history))

    def round_done(self, run: fedrank.Run) -> None:
        self.rounds.append(run.history[-1].number)


def plateau(accuracies: list[float], patience: int, **options: object) -> int:
    """After how many rounds a run should stop, in plain Python."""
    best, waited = -1.0, 0
    for number, accuracy in enumerate(accuracies, start=1):
        best, waited = (accuracy, 0) if accuracy > best else (best, waited + 1)
        if waited == patience:
            return number
    return len(accuracies)


@pytest.mark.parametrize("reply", [True, np.True_])
def test_a_function_stops_a_run_with_true(digits: Federation, reply: object) -> None:
    run = train(digits, on_round=lambda done: reply if done.number == 2 else None)
    assert len(run.history) == 2
    assert not run.interrupted


def test_other_replies_stop_nothing(digits: Federation) -> None:
    assert len(train(digits, on_round=lambda done: 7).history) == 3


def test_a_callback_hears_of_the_rounds_before_and_after_a_break(digits: Federation, tmp_path: Path) -> None:
    heard = Heard()
    for rounds in (1, 3):
        train(digits, rounds=rounds, callbacks=[heard], out=tmp_path / "mine")
    assert heard.begun == [0, 1]
    assert heard.rounds == [1, 2, 3]


@pytest.mark.parametrize("patience", [1, 2, 3])
def test_early_stopping_waits_for_an_improvement(digits: Federation, tmp_path: Path, patience: int) -> None:
    free = [row["test_accuracy"] for row in train(digits, rounds=8).to_records()]
    expected = plateau(free, patience)  # type: ignore[arg-type]
    stopping = fedrank.EarlyStopping(patience=patience)
    run = train(digits, rounds=8, callbacks=[stopping], out=tmp_path / "mine")
    assert len(run.history) == expected
    assert fedrank.load(tmp_path / "mine").evaluation == run.evaluation
    again = train(digits, rounds=8, callbacks=[stopping], out=tmp_path / "mine")
    assert len(again.history) == expected, "a run that was stopped stays stopped"


def test_the_best_round_is_kept_and_can_be_loaded(digits: Federation, tmp_path: Path) -> None:
    best = fedrank.BestCheckpoint(tmp_path / "best", metric="test_loss")
    run = train(digits, rounds=5, callbacks=[best])
    losses = [row["test_loss"] for row in run.to_records()]
    assert best.run is not None
    assert len(best.run.history) == 1 + losses.index(min(losses))
    loaded = fedrank.load(tmp_path / "best")
    assert loaded.evaluation.test_loss == min(losses)
    assert loaded.state.ranking.tolist() == best.run.state.ranking.tolist()


def test_a_resumed_run_keeps_a_better_earlier_round(digits: Federation, tmp_path: Path) -> None:
    whole = fedrank.BestCheckpoint(metric="train_loss")
    train(digits, rounds=4, callbacks=[whole])
    for rounds in (2, 4):
        parts = fedrank.BestCheckpoint(tmp_path / "best", metric="train_loss")
        train(digits, rounds=rounds, callbacks=[parts], out=tmp_path / "mine")
    assert whole.run is not None
    assert fedrank.load(tmp_path / "best").state.round == whole.run.state.round


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (
            lambda: fedrank.EarlyStopping("accuracy"),
            "unknown metric 'accuracy'; did you mean 'test_accuracy'",
        ),
        (lambda: fedrank.EarlyStopping(patience=0), "patience must be at least 1, got 0"),
        (lambda: fedrank.EarlyStopping(min_delta=-1), "min_delta must be at least 0, got -1"),
    ],
)
def test_mistakes_are_refused_where_they_are_made(make: object, complaint: str) -> None:
    with pytest.raises(fedrank.FedrankError, match=complaint):
        make()  # type: ignore[operator]
