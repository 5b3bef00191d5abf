"""`fedrank.compare`: own methods and data, several seeds, kept and resumed."""

import json
import logging
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedrank
from fedrank.data import Federation
from fedrank.experiment.rundir import RunDirectory

RNG = np.random.default_rng(0)
INPUTS, LABELS = RNG.normal(size=(120, 6)), np.arange(120) % 3


pytestmark = pytest.mark.filterwarnings("ignore::fedrank.FedrankWarning")


def clients(seed: int = 1) -> Federation:
    return fedrank.split(INPUTS, LABELS, clients=6, by=fedrank.IID(), seed=seed)


def net(seed: int = 1) -> fedrank.Supernetwork:
    return fedrank.supernetwork(nn.Linear(6, 3, bias=False), seed=seed)


def compare(methods: object, data: object = clients, **options: object) -> fedrank.Comparison:
    numbers = {"rounds": 2, "clients_per_round": 4, "seeds": 2, "workers": 1}
    settings = {"clients": data, "progress": False, **numbers, **options}
    return fedrank.compare(methods, **settings)  # type: ignore[arg-type]


def accuracies(comparison: fedrank.Comparison) -> list[float]:
    return [record["test_accuracy"] for record in comparison.to_records()]


def test_its_numbers_are_those_of_single_runs() -> None:
    found = compare({"FRL": lambda seed: fedrank.FRL(net(seed))}, seeds=[3, 5])
    alone = [
        fedrank.train(
            fedrank.FRL(net(seed)), clients(seed), rounds=2, clients_per_round=4, workers=1, progress=False
        )
        for seed in (3, 5)
    ]
    assert accuracies(found) == [run.evaluation.test_accuracy for run in alone]
    assert [record["seed"] for record in found.to_records()] == [3, 5]
    values = [100 * run.evaluation.test_accuracy for run in alone]
    text = f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}"
    assert found.table().rows == [["FRL", text]]
    assert text in str(found)
    assert text in found._repr_html_()
    assert not found.interrupted


def test_a_method_that_is_given_itself_is_repeated_with_other_seeds() -> None:
    data = clients()
    plain = compare({"FRL": fedrank.FRL(net(9))}, data)
    made = compare({"FRL": lambda seed: fedrank.FRL(net(seed))}, data)
    assert plain.to_records() == made.to_records()


def test_adversaries_are_columns() -> None:
    attack = fedrank.Adversary("sign-flip", clients={0, 1})
    found = compare({"FRL": fedrank.FRL(net())}, adversary={"none": None, "flip": attack})
    assert found.table().headings == ["method", "none", "flip"]
    assert [each.coordinates["adversary"] for each in found.results] == ["none", "flip"] * 2
    only = compare({"FRL": fedrank.FRL(net())}, adversary=attack)
    flipped = [each["test_accuracy"] for each in found.to_records() if each["adversary"] == "flip"]
    assert accuracies(only) == flipped


def test_modules_whose_weights_are_drawn_by_torch_are_reproducible() -> None:
    def fedavg(seed: int) -> fedrank.FedAvg:
        return fedrank.FedAvg(nn.Linear(6, 3), seed=seed)

    before = torch.random.get_rng_state()
    assert accuracies(compare({"FedAvg": fedavg})) == accuracies(compare({"FedAvg": fedavg}))
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.slow
def test_runs_are_kept_and_resumed(tmp_path: Path) -> None:
    out = tmp_path / "kept"
    first = compare({"FRL": fedrank.FRL(net())}, rounds=1, out=out)
    runs = sorted(path.name for path in (out / "runs").iterdir())
    assert runs == ["FRL_seed=0", "FRL_seed=1"]
    longer = compare({"FRL": fedrank.FRL(net())}, rounds=2, out=out)
    fresh = compare({"FRL": fedrank.FRL(net())}, rounds=2)
    assert longer.to_records() == fresh.to_records()
    assert first.to_records() != longer.to_records()
    rounds = {path: path.read_bytes() for path in out.rglob("metrics.jsonl")}  # with the time they took
    assert compare({"FRL": fedrank.FRL(net())}, rounds=2, out=out).to_records() == longer.to_records()
    assert {path: path.read_bytes() for path in out.rglob("metrics.jsonl")} == rounds
    assert {"table.md", "table.tex", "results.csv", "results.json", "curves.svg"} <= {
        path.name for path in out.iterdir()
    }
    assert len(json.loads((out / "results.json").read_text())) == 2
    with pytest.raises(fedrank.FedrankError, match="contains a run with other settings"):
        compare({"FRL": fedrank.FRL(net(), vote="borda")}, rounds=2, out=out)


def test_ctrl_c_ends_the_comparison_with_what_there_is(tmp_path: Path) -> None:
    calls = []

    def methods(seed: int) -> fedrank.FRL:
        calls.append(seed)
        return fedrank.FRL(net(seed))

    def data(seed: int) -> Federation:
        if len(calls) > 4:  # two for the check of seeds, one for that of the run, and one for every run
            os.kill(os.getpid(), signal.SIGINT)
        return clients(seed)

    found = compare({"FRL": methods}, data, seeds=3, out=tmp_path / "out")
    assert found.interrupted
    assert [each.state for each in found.results] == ["finished", "not run", "not run"]
    assert "(1 of 3)" in found.table().rows[0][1]
    assert "Interrupted" in str(found)


@pytest.mark.slow
def test_a_run_that_ctrl_c_ends_is_unfinished_and_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedrank import training

    def interrupting(directory: RunDirectory, *arguments: object) -> None:
        save(directory, *arguments)
        os.kill(os.getpid(), signal.SIGINT)

    save = training.save_round
    monkeypatch.setattr(training, "save_round", interrupting)
    found = compare({"FRL": fedrank.FRL(net())}, out=tmp_path / "out")
    assert found.interrupted
    assert [each.state for each in found.results] == ["unfinished", "not run"]
    assert found.table().rows == [["FRL", "unfinished, not run"]]
    monkeypatch.undo()
    again = compare({"FRL": fedrank.FRL(net())}, out=tmp_path / "out")
    assert again.to_records() == compare({"FRL": fedrank.FRL(net())}).to_records()


def test_a_run_that_fails_does_not_throw_away_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def data(seed: int) -> Federation:
        few = 6 if seed == 0 else 3
        return fedrank.split(INPUTS, LABELS, clients=few, by=fedrank.IID(), seed=seed)

    with caplog.at_level(logging.WARNING, "fedrank"):
        found = compare({"FRL": fedrank.FRL(net())}, data)
    assert [each.state for each in found.results] == ["finished", "failed"]
    assert "(1 of 2)" in found.table().rows[0][1]
    assert "Failed: method FRL, seed 1: clients_per_round is 4, but only 3 clients" in str(found)
    assert "FRL, seed=1 failed: clients_per_round is 4" in caplog.text


@pytest.mark.parametrize(
    ("methods", "options", "complaint"),
    [
        ({}, {}, r"methods must be a dict from names to methods, got \{\}"),
        ([fedrank.FRL(net())], {}, "methods must be a dict from names to methods, got a list"),
        (fedrank.FRL(net()), {}, "methods must be a dict from names to methods, got a FRL"),
        ({"": fedrank.FRL(net())}, {}, "methods must have strings as names, got ''"),
        ({"FRL": net()}, {}, r"methods\['FRL'\] must be a method, such as .*, got .*Supernetwork"),
        ({"FRL": nn.Linear(6, 3)}, {}, r"methods\['FRL'\] must be a method, such as .*, got Linear"),
        ({"FRL": lambda seed: None}, {}, r"methods\['FRL'\] must be a method, .*, got None"),
        ({"FRL": lambda seed: 1 / 0}, {}, r"methods\['FRL'\] failed: ZeroDivisionError"),
        ({"FRL": lambda seed: fedrank.FRL(net())}, {}, "networks of the same seed for two seeds"),
        ({"A": fedrank.FedAvg(nn.Linear(6, 3), seed=1)}, {}, "do not follow from a seed. Pass a function"),
        ({"a b": fedrank.FRL(net()), "a-b": fedrank.FRL(net())}, {}, "two runs need the directory"),
        ({"FRL": fedrank.FRL(net())}, {"seeds": 0}, "seeds must be at least 1"),
        ({"FRL": fedrank.FRL(net())}, {"seeds": [1, 1]}, "seeds has 1 twice"),
        ({"FRL": fedrank.FRL(net())}, {"clients_per_round": 40}, "FRL, seed=0: clients_per_round is 40"),
        ({"FRL": fedrank.FRL(net())}, {"clients": "c"}, "expected a federation of clients, got str"),
        ({"FRL": fedrank.FRL(net())}, {"rounds": 0}, "rounds must be at least 1"),
        (
            {"FRL": fedrank.FRL(net())},
            {"adversary": "mirror"},
            "adversary must be a dict from names to adversaries, got 'mirror'",
        ),
        ({"FRL": fedrank.FRL(net())}, {"adversary": {"a": "mirror"}}, r"adversary\['a'\] must be an Adv"),
        (
            {"FRL": fedrank.FRL(net())},
            {"adversary": {"scaled": fedrank.Adversary("scaled", share=0.4)}},
            "FRL, scaled, seed=0: the attack 'scaled' targets weights",
        ),
    ],
)
def test_a_mistake_is_told_before_anything_is_trained(
    methods: object, options: dict, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedrank.comparing.train", None)
    with pytest.raises(fedrank.FedrankError, match=complaint):
        compare(methods, **options)


def test_a_comparison_that_cannot_be_kept_is_refused_first(tmp_path: Path) -> None:
    with pytest.raises(fedrank.FedrankError, match="only runs of a supernetwork can be kept"):
        compare({"A": lambda seed: fedrank.FedAvg(nn.Linear(6, 3), seed=seed)}, out=tmp_path / "out")
    (tmp_path / "file").write_text("")
    with pytest.raises(fedrank.FedrankError, match="cannot be created"):
        compare({"FRL": fedrank.FRL(net())}, out=tmp_path / "file")
