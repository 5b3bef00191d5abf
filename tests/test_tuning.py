import json
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
from torch import nn

import fedrank
from fedrank.data import Federation
from fedrank.experiment.interrupt import Interrupt
from fedrank.tuning import candidates, held_out

MODEL = nn.Sequential(nn.Flatten(), nn.Linear(64, 20, bias=False), nn.ReLU(), nn.Linear(20, 10, bias=False))
NET = fedrank.supernetwork(MODEL, seed=1)


def tuned(clients: Federation, **options: object) -> fedrank.Tuning:
    options = {"budget": 16, "clients_per_round": 3, "workers": 1, "progress": False} | options
    return fedrank.tune(NET, clients, **options)  # type: ignore[arg-type]


def test_the_best_settings_are_ready_to_use_and_trained_longest(digits: Federation) -> None:
    found = tuned(digits)
    best = found.trials[0]
    assert (found.local.learning_rate, found.local.epochs) == (best.learning_rate, best.epochs)
    assert found.network.keep == best.keep
    assert [trial.rounds for trial in found.trials] == [4, 4, 2, 2, 1, 1, 1, 1]
    assert best.accuracy == max(trial.accuracy for trial in found.trials[:2])
    fedrank.FRL(found.network, found.local)


def test_judges_do_not_train_and_no_test_sample_is_used(digits: Federation) -> None:
    judges, judged = held_out(digits, seed=5)
    assert len(judges) == round(digits.voters.size / 4)
    assert set(judged.voters) == set(digits.voters) - set(judges)
    theirs = np.concatenate([digits.clients[judge].train for judge in judges])
    assert judged.test.tolist() == sorted(theirs)
    assert all(client.test.size == 0 for client in judged.clients)
    assert tuned(digits, seed=5).judges == tuple(judges)


@pytest.mark.slow
def test_the_result_depends_on_the_seed_alone(digits: Federation) -> None:
    assert tuned(digits).trials == tuned(digits).trials
    drawn = {tuple(candidates(NET, seed)) for seed in (1, 2)}
    assert len(drawn) == 2
    for trials in drawn:
        assert len(set(trials)) == 8
        assert (trials[0].learning_rate, trials[0].epochs, trials[0].keep) == (0.4, 5, NET.keep)


def test_a_keep_of_ones_own_is_tried_first(digits: Federation) -> None:
    assert candidates(replace(NET, keep=0.33), seed=1)[0].keep == 0.33


def test_a_tuning_reads_as_a_table_as_html_and_as_records(digits: Federation) -> None:
    found = tuned(digits)
    for shown in (str(found), found._repr_html_()):
        assert "epochs" in shown
        assert f"{found.trials[0].accuracy:.1%}" in shown
    assert repr(found).startswith("<Tuning: learning_rate=")
    records = json.loads(json.dumps(found.to_records()))
    assert records[0]["keep"] == found.network.keep


def test_progress_goes_to_stderr_and_nothing_is_printed_twice(
    digits: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned(digits, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "tuning 16/16" in err
    assert "Settings, best first" not in err


def test_ctrl_c_returns_the_best_so_far(digits: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    entered = Interrupt.__enter__

    def pressed(self: Interrupt) -> Interrupt:
        entered(self)
        os.kill(os.getpid(), signal.SIGINT)
        return self

    monkeypatch.setattr(Interrupt, "__enter__", pressed)
    found = tuned(digits)
    assert found.interrupted
    assert found.trials[0].rounds <= 1
    assert "interrupted" in str(found)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"budget": 15}, "budget must be at least 16, got 15"),
        ({"clients_per_round": 1000}, "clients_per_round is 1000, but only"),
        ({"budget": "a"}, "budget must be a whole number, got 'a'"),
        ({"workers": 1.5}, "workers must be a whole number, got 1.5"),
        ({"workers": 0}, "workers must be at least 1, got 0"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_impossible_settings_are_refused(digits: Federation, options: dict, complaint: str) -> None:
    with pytest.raises(fedrank.FedrankError, match=complaint):
        tuned(digits, **options)


def test_a_model_that_does_not_fit_is_refused(digits: Federation) -> None:
    net = fedrank.supernetwork(nn.Linear(9, 10, bias=False), seed=1)
    with pytest.raises(fedrank.FedrankError, match="does not fit"):
        fedrank.tune(net, digits, progress=False)


def test_a_rate_that_diverges_loses(digits: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedrank.tuning.RATES", (0.4, 1e38))
    monkeypatch.setattr("fedrank.tuning.EPOCHS", (5,))
    found = tuned(digits)
    assert found.local.learning_rate == 0.4
    assert {trial.accuracy for trial in found.trials if trial.learning_rate > 1} == {0.0}
