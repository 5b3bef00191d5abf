"""Callbacks see the run after every round, and may stop it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedrank
from fedrank.data import Federation
from tests.test_run import _quick_reports, frl, train  # noqa: F401  (a fixture)


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


@pytest.mark.parametrize("kind", [fedrank.EarlyStopping, fedrank.BestCheckpoint])
def test_a_metric_that_these_clients_do_not_have_is_refused(
    digits: Federation, tmp_path: Path, kind: type
) -> None:
    untested = tuple(replace(client, test=client.test[:0]) for client in digits.clients)
    with pytest.raises(
        fedrank.FedrankError,
        match=f"{kind.__name__} watches clients_min, but no client has test data of its own; watch",
    ):
        train(
            replace(digits, clients=untested), callbacks=[kind(metric="clients_min")], out=tmp_path / "mine"
        )
    assert not list(tmp_path.iterdir())
    train(digits, rounds=1, callbacks=[kind(metric="clients_min")])


def content(path: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in path.iterdir()}


@pytest.mark.parametrize("resumed", [True, False])
def test_a_best_checkpoint_never_touches_another_run(
    digits: Federation, tmp_path: Path, resumed: bool
) -> None:
    train(digits, frl(vote="median"), callbacks=[fedrank.BestCheckpoint(tmp_path / "best")])
    before = content(tmp_path / "best")
    out = {"out": tmp_path / "mine"} if resumed else {}
    if resumed:
        train(digits, rounds=1, **out)
    heard = Heard()
    with pytest.raises(fedrank.FedrankError, match=r"best: contains another run\. Choose another"):
        train(digits, callbacks=[heard, fedrank.BestCheckpoint(tmp_path / "best")], **out)
    assert heard.rounds == [], "it is refused before the first round"
    assert content(tmp_path / "best") == before


def test_a_best_checkpoint_replaces_nothing_but_a_best_checkpoint(digits: Federation, tmp_path: Path) -> None:
    train(digits).save(tmp_path / "saved")
    train(digits, out=tmp_path / "kept")
    train(digits, callbacks=[fedrank.BestCheckpoint(tmp_path / "best", metric="train_loss")])
    fedrank.load(tmp_path / "best").save(tmp_path / "copy")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    complaints = {
        "saved": "contains a run, not a best checkpoint",
        "kept": "contains a run, not a best checkpoint",
        "copy": "contains a run, not a best checkpoint",
        "best": "contains the best round by train_loss, not by test_accuracy",
        "other": "not a run directory",
        "other/thesis.txt": "cannot be used as a run directory",
    }
    for name, complaint in complaints.items():
        heard = Heard()
        with pytest.raises(fedrank.FedrankError, match=f"{name}: {complaint}"):
            train(digits, callbacks=[heard, fedrank.BestCheckpoint(tmp_path / name)])
        assert heard.rounds == []
    both = [fedrank.BestCheckpoint(tmp_path / "both", metric=name) for name in ("train_loss", "test_loss")]
    with pytest.raises(fedrank.FedrankError, match="contains the best round by train_loss, not by test_loss"):
        train(digits, callbacks=both)


def test_a_run_that_starts_anew_replaces_its_earlier_best_round(digits: Federation, tmp_path: Path) -> None:
    best = fedrank.BestCheckpoint(tmp_path / "best", metric="train_loss")
    train(digits, rounds=4, callbacks=[best])
    before = content(tmp_path / "best")
    rounds = best.run.state.round
    assert rounds > 1
    stop = fedrank.BestCheckpoint(tmp_path / "best", metric="train_loss")
    train(digits, rounds=4, callbacks=[stop], on_round=lambda _: True)
    assert fedrank.load(tmp_path / "best").state.round == stop.run.state.round == 1
    train(digits, rounds=4, callbacks=[best])
    after = content(tmp_path / "best")
    assert all(after[name] == before[name] for name in ("checkpoint.npz", "description.toml"))
    with pytest.raises(fedrank.FedrankError, match=rf"has {rounds} completed rounds, but rounds is 1\. Pass"):
        train(digits, rounds=1, callbacks=[best])
    assert content(tmp_path / "best") == after


@pytest.mark.parametrize("stopping", [True, False])
def test_the_best_round_of_a_finished_run_is_there_again(
    digits: Federation, tmp_path: Path, stopping: bool
) -> None:
    rounds: list[int] = []
    for _ in range(2):
        best = fedrank.BestCheckpoint(tmp_path / "best", metric="train_loss")
        stop = [fedrank.EarlyStopping("test_accuracy", patience=1, min_delta=1)] if stopping else []
        train(digits, out=tmp_path / "mine", callbacks=[*stop, best])
        assert best.run is not None
        assert best.run.subnetwork() is not None
        rounds.append(best.run.state.round)
    assert rounds[0] == rounds[1]


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
