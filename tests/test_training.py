from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import fedrank
from fedrank.aggregators import RULES, Aggregator
from fedrank.attacks import View
from fedrank.data import Federation
from fedrank.engine import suitable_workers
from fedrank.experiment.adversary import draw_malicious
from fedrank.nn import LeNet

MODEL = nn.Sequential(nn.Flatten(), nn.Linear(64, 10, bias=False))


def train(digits: Federation, model: nn.Module = MODEL, **options: int) -> fedrank.Run:
    settings = {"rounds": 2, "clients_per_round": 2, "workers": 1, **options}
    return fedrank.train(fedrank.FRL(fedrank.supernetwork(model, seed=1)), digits, progress=False, **settings)


def test_a_run_knows_its_history_and_its_model(digits: Federation) -> None:
    run = train(digits, rounds=3, evaluate_every=2)
    assert [played.number for played in run.history] == [1, 2, 3]
    assert run.evaluation == run.history[-1].evaluation
    weight = run.subnetwork()[1].weight  # type: ignore[index]
    assert np.count_nonzero(weight.numpy()) == 513


@pytest.mark.parametrize(
    ("model", "complaint"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(65, 10, bias=False)), "does not fit samples of shape"),
        (
            nn.Sequential(nn.Flatten(), nn.Linear(64, 9, bias=False)),
            "outputs 9 values per sample",
        ),
        (nn.Linear(8, 10, bias=False), "outputs shape"),
    ],
)
def test_a_model_that_does_not_fit_the_data_is_refused_first(
    digits: Federation, model: nn.Module, complaint: str
) -> None:
    with pytest.raises(fedrank.FedrankError, match=complaint):
        train(digits, model)


@pytest.mark.parametrize(
    "options", [{"workers": 0}, {"rounds": 0}, {"clients_per_round": 0}, {"clients_per_round": 1000}]
)
def test_impossible_numbers_are_refused(digits: Federation, options: dict[str, int]) -> None:
    with pytest.raises(fedrank.FedrankError):
        train(digits, **options)


def test_a_callback_hears_of_every_round():
    heard = []
    rng = np.random.default_rng(0)
    federation = fedrank.split(
        rng.normal(size=(40, 4)), np.arange(40) % 2, by=fedrank.IID(), clients=4, seed=1
    )
    method = fedrank.FRL(fedrank.supernetwork(nn.Linear(4, 2, bias=False), seed=1))
    run = fedrank.train(
        method, federation, rounds=3, clients_per_round=3, workers=1, progress=False, on_round=heard.append
    )
    assert heard == list(run.history)
    assert [played.number for played in heard] == [1, 2, 3]


def net(seed: int = 1) -> fedrank.Supernetwork:
    return fedrank.supernetwork(MODEL, seed=seed)


def quick(digits: Federation, method: object, **options: object) -> fedrank.Run:
    settings = {"rounds": 1, "clients_per_round": 6, "workers": 1, "progress": False, **options}
    return fedrank.train(method, digits, **settings)  # type: ignore[arg-type]


def push(view: View, *, scale: float = 2.0) -> np.ndarray:
    return -scale * np.mean(view.own, axis=0)


@pytest.mark.parametrize("method", [fedrank.FRL, fedrank.FedAvg])
def test_a_function_is_an_attack_on_any_method(digits: Federation, method: type) -> None:
    local = fedrank.LocalTraining(epochs=1, learning_rate=0.01)
    adversary = fedrank.Adversary(push, share=0.3, params={"scale": 3.0})
    run = quick(digits, method(net(), local), adversary=adversary)
    drawn = draw_malicious(digits, 0.3, 1)
    (done,) = run.history
    assert set(done.malicious) == drawn & set(done.clients)
    named = fedrank.Adversary(push, clients=drawn, params={"scale": 3.0})
    again = quick(digits, method(net(), local), adversary=named)
    assert run.method.pack(run.state).keys() == again.method.pack(again.state).keys()
    for name, array in run.method.pack(run.state).items():
        assert np.array_equal(array, again.method.pack(again.state)[name])


def test_a_function_is_a_rule_and_votes_as_a_registered_one_does(digits: Federation) -> None:
    def middle(updates: np.ndarray, malicious: int) -> np.ndarray:
        return np.median(updates, axis=0)

    own, registered = (
        quick(digits, fedrank.FRL(net(), vote=vote)).state.ranking for vote in (middle, "median")
    )
    assert np.array_equal(own, registered)
    assert Aggregator.of(RULES["median"].function) == Aggregator("median")


def test_two_functions_of_the_same_name_are_two_rules() -> None:
    def scaled(factor: float) -> Callable[..., np.ndarray]:
        def rule(updates: np.ndarray, malicious: int) -> np.ndarray:
            return factor * updates.mean(axis=0)

        return rule

    once, twice = (Aggregator.of(scaled(factor)) for factor in (1.0, 2.0))
    updates = np.ones((3, 4))
    assert [rule(updates, 0, np.random.default_rng(0))[0] for rule in (once, twice)] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("returned", "complaint"),
    [
        (lambda updates: updates[0][:-1], r"returned float64 of shape"),
        (lambda updates: updates[0] * np.nan, "returned NaN"),
        (lambda updates: updates[0] + np.inf, "returned infinity"),
        (lambda updates: updates[99], "failed: IndexError"),
    ],
)
def test_a_broken_rule_is_named(digits: Federation, returned: Callable, complaint: str) -> None:
    def broken_rule(updates: np.ndarray, malicious: int) -> np.ndarray:
        return returned(updates)

    with pytest.raises(fedrank.FedrankError, match=f"the aggregator 'broken_rule' {complaint}"):
        quick(digits, fedrank.FRL(net(), vote=broken_rule))


def test_a_broken_attack_is_named(digits: Federation) -> None:
    def broken_attack(view: View) -> np.ndarray:
        raise KeyError("scale")

    adversary = fedrank.Adversary(broken_attack, clients=range(10), redraw=False)
    with pytest.raises(fedrank.FedrankError, match=r"the attack 'broken_attack' failed: KeyError: 'scale'"):
        quick(digits, fedrank.FRL(net()), adversary=adversary, clients_per_round=20)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: fedrank.Adversary("mirror"), "needs either clients or a share"),
        (lambda: fedrank.Adversary("mirror", {1}, share=0.2), "pass either clients or share, not both"),
        (lambda: fedrank.Adversary("mirror", share=20), "share must be more than 0 and less than 1, got 20"),
        (lambda: fedrank.Adversary("mirro", {1}), "did you mean 'mirror'"),
        (
            lambda: fedrank.Adversary(dict, {1}),
            "expected an attack, its name or a function, got <class 'dict'>",
        ),
        (lambda: fedrank.Adversary(7, {1}), "expected an attack, its name or a function, got 7"),
        (lambda: fedrank.Adversary(push, {1}, params={"scall": 1.0}), "did you mean 'scale'"),
        (lambda: fedrank.Adversary(push, {1}, lies="pull"), "lies must be 'push' or 'stall', got 'pull'"),
        (lambda: fedrank.FRL(net(), vote=7), "expected an aggregator's name, a table or a function, got 7"),
        (lambda: fedrank.FRL(net(), rate_decay=1.1), "rate_decay must be more than 0 and at most 1, got 1.1"),
        (lambda: fedrank.FedAvg(net(), run=b"mine"), "run must be 16 bytes"),
        (lambda: fedrank.LocalTraining(epochs=0), "epochs must be at least 1, got 0"),
        (lambda: fedrank.LocalTraining(learning_rate=-1), "learning_rate must be more than 0, got -1"),
        (lambda: fedrank.LocalTraining(learning_rate=float("nan")), "learning_rate must be more than 0"),
        (lambda: fedrank.LocalTraining(momentum=1), "momentum must be at least 0 and less than 1, got 1"),
        (lambda: fedrank.LocalTraining(batch_size=0), "batch_size must be at least 1, got 0"),
        (lambda: fedrank.LocalTraining(epochs=1.5), "epochs must be a whole number, got 1.5"),
        (lambda: fedrank.LocalTraining(epochs=2.0), "epochs must be a whole number, got 2.0"),
        (lambda: fedrank.LocalTraining(batch_size=2.5), "batch_size must be a whole number, got 2.5"),
        (lambda: fedrank.LocalTraining(learning_rate="0.1"), "learning_rate must be a number, got '0.1'"),
        (lambda: fedrank.LocalTraining(balanced="no"), "balanced must be True or False, got 'no'"),
        (lambda: fedrank.FRL(net(), {"epochs": 2}), "local must be a LocalTraining, .* got {'epochs': 2}"),
        (lambda: fedrank.FRL(net(), ballots=None), "ballots must be a ballot format, .* got None"),
        (lambda: fedrank.FRL(net(), ballots="top=150%"), "ballots = 'top=150%': the share must be more than"),
        (lambda: fedrank.FRL(net(), vote="brda"), "unknown vote 'brda'; did you mean 'borda'"),
        (lambda: fedrank.FRL(net(), vote="medain"), "unknown vote 'medain'; did you mean 'median'"),
        (lambda: fedrank.FRL(net(), memory=-1), "memory must be at least 1, got -1"),
        (lambda: fedrank.FRL(net(), memory="1G"), "memory must be a whole number, got '1G'"),
        (lambda: fedrank.FRL(net(), assumed_malicious=2.0), "assumed_malicious must be a share .* got 2.0"),
        (lambda: fedrank.FRL(net(), assumed_malicious=0.9), "assumed_malicious must be a share .* got 0.9"),
        (lambda: fedrank.FedAvg(net(), assumed_malicious=-1), "assumed_malicious must be a share .* got -1"),
        (lambda: fedrank.FedAvg(nn.Linear, seed=7), r"got the class Linear: pass an object, .* Linear\(\)"),
        (lambda: fedrank.FedAvg(None, seed=7), "expected a torch module, got None"),
        (lambda: fedrank.TopK(net(), share=3), "share must be more than 0 and at most 1, got 3"),
        (lambda: fedrank.supernetwork(nn.Linear, seed=7), "got the class Linear: pass an object"),
        (lambda: fedrank.supernetwork(None, seed=7), "expected a torch module, got None"),
        (lambda: fedrank.supernetwork(MODEL, seed=7, fix="yes"), "fix must be True or False, got 'yes'"),
        (lambda: fedrank.supernetwork(MODEL, seed=7, keep="0.5"), "keep must be a number, got '0.5'"),
        (lambda: fedrank.Adversary("mirror", share="20%"), "share must be a number, got '20%'"),
        (lambda: fedrank.Adversary("mirror", {1}, params=[1]), r"params must be a dict .* got \[1\]"),
        (lambda: fedrank.Adversary("mirror", {1}, redraw=1), "redraw must be True or False, got 1"),
        (lambda: net(seed=None), "seed must be a whole number .*, got None"),
        (lambda: net(seed=1.5), "seed must be a whole number .*, got 1.5"),
        (lambda: fedrank.supernetwork(MODEL, seed=1, keep=1.5), "keep must be more than 0 and at most 1"),
    ],
)
def test_arguments_are_checked_where_they_are_given(make: Callable, complaint: str) -> None:
    with pytest.raises(fedrank.FedrankError, match=complaint):
        make()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"adversary": ("scaled", {1})}, "the attack 'scaled' targets weights, but FRL sends rankings"),
        ({"adversary": ("mirror", {1, 99})}, "unknown client 99: clients are numbered 0 to 29"),
        ({"device": "abacus"}, "device must be 'cpu' or 'cuda', got 'abacus'"),
        ({"device": "gpu"}, "device must be 'cpu' or 'cuda', got 'gpu'"),
        ({"device": None}, "device must be 'cpu' or 'cuda', got None"),
        ({"workers": 0}, "workers must be at least 1, got 0"),
        ({"workers": 1.5}, "workers must be a whole number, got 1.5"),
        ({"adversary": ("mirror", set())}, "the adversary has no clients"),
        ({"callbacks": [print]}, "callbacks must contain objects of fedrank.Callback, .* as on_round"),
        ({"callbacks": [fedrank.EarlyStopping]}, r"got the class EarlyStopping: pass EarlyStopping\(\)"),
        ({"callbacks": fedrank.EarlyStopping()}, "callbacks must be a list of callbacks"),
        ({"on_round": 3}, "on_round must be a function of a round, got 3"),
    ],
)
def test_what_the_command_line_checks_is_checked(
    digits: Federation, tmp_path: Path, options: dict, complaint: str
) -> None:
    if "adversary" in options:
        options = {"adversary": fedrank.Adversary(*options["adversary"])}
    with pytest.raises(fedrank.FedrankError, match=complaint):
        quick(digits, fedrank.FRL(net()), out=tmp_path / "mine", **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("method", ["frl", net(), fedrank.FRL])
def test_what_is_no_method_is_refused(digits: Federation, method: object) -> None:
    with pytest.raises(fedrank.FedrankError, match=r"method must be a method, such as fedrank\.FRL"):
        quick(digits, method)


def test_an_adversary_by_its_name_and_a_number_for_a_directory_are_refused(digits: Federation) -> None:
    with pytest.raises(fedrank.FedrankError, match=r"adversary must be an Adversary, .* got 'mirror'"):
        quick(digits, fedrank.FRL(net()), adversary="mirror")
    with pytest.raises(fedrank.FedrankError, match="out must be a path, got 5"):
        quick(digits, fedrank.FRL(net()), out=5)


def test_a_share_that_is_nobody_is_refused(digits: Federation) -> None:
    with pytest.raises(fedrank.FedrankError, match=r"share=0\.01 of 30 clients is less than one client"):
        quick(digits, fedrank.FRL(net()), adversary=fedrank.Adversary("mirror", share=0.01))


def test_workers_are_started_for_work_that_is_worth_it(
    digits: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedrank.engine.sizing.default_workers", lambda: 8)
    small = fedrank.FRL(net())
    assert suitable_workers(small, digits, clients_per_round=10, rounds=10) == 1
    assert suitable_workers(small, digits, clients_per_round=10, rounds=10_000) == 8
    large = fedrank.FRL(fedrank.supernetwork(LeNet(side=8), seed=1))
    assert suitable_workers(large, digits, clients_per_round=10, rounds=100) == 8


def test_a_model_that_is_no_supernetwork_is_refused(digits: Federation) -> None:
    for use in (fedrank.FRL, lambda model: fedrank.diagnose(model, digits)):
        with pytest.raises(fedrank.FedrankError, match="expected a supernetwork, got Linear"):
            use(nn.Linear(64, 10, bias=False))


def test_clients_that_are_no_federation_are_refused() -> None:
    net = fedrank.supernetwork(nn.Linear(2, 2, bias=False), seed=1)
    clients: Any = [([[0.0, 1.0]], [0])]
    for use in (
        lambda: fedrank.train(fedrank.FRL(net), clients, rounds=1, clients_per_round=1),
        lambda: fedrank.diagnose(net, clients),
    ):
        with pytest.raises(fedrank.FedrankError, match="expected a federation of clients, got list"):
            use()


def test_what_people_print_is_one_short_line(digits: Federation) -> None:
    run = train(digits, rounds=1)
    network = "<Supernetwork: Sequential, 1 layer, 640 edges, keep=0.8, seed=1>"
    local = fedrank.LocalTraining(epochs=2)
    for shown, expected in (
        (net(), network),
        (fedrank.FRL(net()), f"FRL({network})"),
        (
            fedrank.FRL(net(), local, vote="borda"),
            f"FRL({network}, local=LocalTraining(epochs=2), vote='borda')",
        ),
        (fedrank.FedAvg(MODEL, seed=7), "FedAvg(<PlainNetwork: Sequential, 640 weights, seed=7>)"),
        (fedrank.TopK(net(), share=0.2), f"TopK({network}, share=0.2)"),
        (fedrank.Adversary("mirror", share=0.2), "<Adversary: 'mirror', share=0.2>"),
        (fedrank.Adversary("mirror", {3}), "<Adversary: 'mirror', 1 client>"),
    ):
        assert repr(shown) == expected
    assert repr(run.evaluation).startswith("<Evaluation: accuracy ")
    assert repr(run.history[0]).startswith("<Round 1: 2 of 2 votes, accuracy ")
    assert max(len(repr(each)) for each in (run.evaluation, run.history[0])) < 80


def test_every_round_is_logged(digits: fedrank.Federation, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="fedrank"):
        train(digits, rounds=2, evaluate_every=2)
    first, second = (record.getMessage() for record in caplog.records if record.name == "fedrank")
    assert first.startswith("round 1: 2 of 2 votes, ")
    assert "accuracy" not in first
    assert "accuracy" in second
