"""How long a sweep may work."""

import time
from pathlib import Path

import pytest

from fedrank.errors import ConfigError
from fedrank.experiment.budget import budget_seconds, is_over
from fedrank.experiment.build import build
from fedrank.experiment.config import load_preset
from fedrank.experiment.environment import describe
from fedrank.experiment.rundir import RunDirectory
from fedrank.experiment.runner import Observers, run


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2h", 7200), ("90m", 5400), ("45s", 45), ("1h30m", 5400), ("1h1m1s", 3661), ("0h10s", 10)],
)
def test_a_budget_has_hours_minutes_and_seconds(text: str, seconds: int) -> None:
    assert budget_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "2", "2x", "h", "30m1h", "-1h", "1.5h", "1h 30m", "٣h", "2H"])
def test_anything_else_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ConfigError, match="such as 2h, 90m, 45s or 1h30m"):
        budget_seconds(text)


@pytest.mark.parametrize("text", ["0s", "0h0m"])
def test_no_time_at_all_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=f"--budget {text}: must be more than 0"):
        budget_seconds(text)


def test_time_is_over_if_work_would_end_too_late() -> None:
    now = time.time()
    assert not is_over(None, 1e9)
    assert not is_over(now + 100, 50)
    assert is_over(now + 100, 150)
    assert is_over(now)


def test_a_run_stops_after_the_round_in_which_its_time_ends(tmp_path: Path) -> None:
    settings = ["rounds=4", "clients_per_round=4", "local.epochs=1", "data.clients=20", "method.vote=borda"]
    experiment = load_preset("digits", settings)
    setup = build(experiment, tmp_path)
    directory = RunDirectory.create(tmp_path / "run", experiment, describe(tmp_path, 1, "cpu"))

    def go_on(until: float | None) -> int:
        summary = run(directory, setup, workers=1, device="cpu", observer=Observers(()), until=until)
        rounds = [record.round for record in directory.read_metrics()]
        checkpoint = directory.read_checkpoint()
        assert checkpoint is not None
        assert checkpoint["round"] == len(rounds) == rounds[-1]
        assert (summary is not None) == (len(rounds) == 4)
        return len(rounds)

    assert go_on(time.time() - 1) == 1  # one round at least, so that every call gets further
    assert go_on(time.time() - 1) == 2
    assert go_on(time.time() + 1000) == 4
