"""Clients are called by their names wherever people see them, and may have no test data of their own."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from torch import nn

import fedrank
from fedrank.attacks import attack_named
from fedrank.ballots.traffic import Traffic
from fedrank.data import Federation
from fedrank.engine import local_engine
from fedrank.errors import ConfigError, TrainingError
from fedrank.experiment.adversary import Adversary
from fedrank.experiment.records import RoundRecord, Summary
from fedrank.experiment.rounds import Round, RunSetup, Schedule, named
from fedrank.experiment.rundir import RunDirectory
from fedrank.experiment.runner import record_of
from fedrank.report.audits import ballot_rows, ballot_table, votes_in
from fedrank.report.run_charts import accuracy_chart
from fedrank.report.tensorboard import numbers
from fedrank.report.terminal import summary_table
from tests.support.runs import rounds_of

NAMES = ("north", "south", "[bold]west", "east")


def small(vote: str = "mean") -> fedrank.FRL:
    network = fedrank.supernetwork(nn.Linear(6, 3, bias=False), seed=1)
    return fedrank.FRL(network, fedrank.LocalTraining(epochs=1), vote=vote)


def hospitals(**options: Any) -> Federation:
    rng = np.random.default_rng(5)
    data = {name: (rng.normal(size=(12, 6)), rng.integers(0, 3, 12)) for name in NAMES}
    return fedrank.federation(data, **options)


def last_round(method: fedrank.FRL, clients: Federation, adversary: Adversary | None = None) -> Round:
    return rounds_of(method, clients, Schedule(2, 3), adversary)[-1][1]


@pytest.mark.parametrize("vote", ["mean", "borda", "measured-mean"])
def test_names_change_what_clients_are_called_and_nothing_else(vote: str) -> None:
    clients = hospitals()
    numbered = replace(clients, names=())
    done, plain = (last_round(small(vote), each) for each in (clients, numbered))
    assert set(done.clients) <= set(NAMES)
    assert done.evaluation is not None
    assert list(done.evaluation.accuracies) == list(done.evaluation.samples) == list(NAMES)
    expected = named(plain, clients)
    assert expected.evaluation is not None
    assert list(expected.evaluation.accuracies.values()) == list(done.evaluation.accuracies.values())
    assert replace(expected, wall_seconds=0, evaluation=None) == replace(
        done, wall_seconds=0, evaluation=None
    )


def test_records_keep_names_and_numbers() -> None:
    for clients in (hospitals(), replace(hospitals(), names=())):
        done = last_round(small("measured-mean"), clients)
        called = clients.name_of(1)
        assert done.measured is not None
        measured = replace(done.measured, refused={called: "no answer"})
        record = record_of(replace(done, refused={called: "late"}, measured=measured))
        assert RoundRecord.model_validate_json(record.to_json()) == record
        assert record.refused == {called: "late"}
        summary = Summary(
            rounds=1,
            evaluation=done.evaluation,
            sent=Traffic(1, 1),
            paper_traffic=Traffic(1, 1),
            wall_seconds=1,
        )
        assert Summary.model_validate_json(summary.to_json()) == summary


def test_the_audit_lists_names_and_does_not_read_them_as_markup() -> None:
    done = last_round(small(), hospitals(), adversary("north"))
    vote = votes_in([record_of(replace(done, malicious=("[bold]west",)))])[2]
    assert {row[0] for row in ballot_rows(vote)} == set(done.clients)
    console = Console(width=100, record=True)
    console.print(ballot_table(vote))
    shown = console.export_text()
    assert all(str(client) in shown for client in done.clients)


def adversary(*clients: str | int) -> Adversary:
    return Adversary(attack_named("mirror"), clients=set(clients), redraw=False)


def test_malicious_clients_are_named() -> None:
    played = rounds_of(small(), hospitals(), Schedule(3, 4), adversary("north", "east"))
    assert all(set(done.malicious) == {"north", "east"} for _, done in played)
    by_number = rounds_of(small(), hospitals(), Schedule(3, 4), adversary(0, 3))
    assert by_number[-1][0].ranking.tobytes() == played[-1][0].ranking.tobytes()


@pytest.mark.parametrize(
    ("clients", "complaint"),
    [
        ({"noth"}, "unknown client 'noth'; did you mean 'north'"),
        ({4}, "unknown client 4: clients are numbered 0 to 3"),
        ({-1}, "number must be at least 0, got -1"),
        ({1.5}, "must be a whole number, got 1.5"),
        ("north", "must be a set, such as {'north'}, got 'north'"),
        (2, "must be a set, such as .2., got 2"),
    ],
)
def test_unknown_malicious_clients_are_refused(clients: Any, complaint: str) -> None:
    def setup() -> RunSetup:
        wrong = Adversary(attack_named("mirror"), clients=clients, redraw=False)
        return RunSetup.of(small(), hospitals(), Schedule(1, 3), wrong)

    with pytest.raises(ConfigError, match=complaint):
        setup()


def test_an_error_names_the_client_that_was_trained() -> None:
    clients = hospitals()
    broken = replace(clients, dataset=replace(clients.dataset, inputs=clients.dataset.inputs[:, :5]))
    method = small()
    with (
        local_engine(method, broken, workers=1) as engine,
        pytest.raises(TrainingError, match="client south"),
    ):
        engine.collect(method.broadcast(method.init()), (1,))


class View:
    """A run as charts see it."""

    def __init__(self, done: Round) -> None:
        self.name, self.records = "run", [record_of(done)]


def test_a_global_test_set_alone_is_enough() -> None:
    rng = np.random.default_rng(6)
    shared = (rng.normal(size=(20, 6)), np.arange(20) % 3)
    clients = hospitals(test=shared, test_share=0)
    run = fedrank.train(small(), clients, rounds=2, clients_per_round=3, workers=1, progress=False)
    assert run.evaluation.clients is None
    assert run.evaluation.accuracies == {}
    assert run.evaluation.test_samples == 20
    model = run.subnetwork()
    import torch

    answers = model(torch.from_numpy(clients.dataset.preprocess(shared[0]))).argmax(1).numpy()
    assert run.evaluation.test_accuracy == pytest.approx((answers == shared[1]).mean())
    done = run.history[-1]
    assert RoundRecord.model_validate_json(record_of(done).to_json()).evaluation == done.evaluation
    assert "accuracy/test" in dict(numbers(done))
    assert "accuracy/clients" not in dict(numbers(done))
    summary = Summary(
        rounds=2, evaluation=run.evaluation, sent=done.sent, paper_traffic=done.sent, wall_seconds=1
    )
    console = Console(width=120, record=True)
    directory = RunDirectory(Path("mine"), run.origin().settings, {})
    console.print(summary_table(directory, summary))
    assert "unknown: no client has test samples of its own" in console.export_text()
    pytest.importorskip("altair", reason="charts are not installed: pip install 'fedrank[plot]'")
    chart = accuracy_chart([View(done)])  # type: ignore[list-item]
    assert chart is not None
    assert len(chart.to_dict()["layer"]) == 1
