"""Networks, data, attacks and rules of the user's own in a configuration."""

import inspect
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import fedrank
from fedrank.aggregators import RULES
from fedrank.attacks import ATTACKS
from fedrank.data.digest import data_digest
from fedrank.engine import local_engine
from fedrank.errors import ConfigError, FedrankError, RunError
from fedrank.experiment.build import build
from fedrank.experiment.config import Experiment, load_file, parse
from fedrank.experiment.rounds import run_rounds
from fedrank.experiment.rundir import RunDirectory
from fedrank.experiment.runner import Observers, evaluate, run
from fedrank.experiment.sweep import Cell, run_cells
from fedrank.methods.weights import WEIGHT_TRAINING
from fedrank.nn import LocalTraining, PlainNetwork, Supernetwork
from fedrank.report.terminal import summary_table

MODULE = """
import numpy as np
import fedrank
from torch import nn
from fedrank.aggregators import aggregator
from fedrank.attacks import Knowledge, Target, attack

WIDTH = 8

class Plain(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(6, WIDTH, bias=False), nn.ReLU(), nn.Linear(WIDTH, 3, bias=False))

def biased():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))

instance = biased()
needy = lambda width: biased()
number = 3
narrow = lambda: nn.Linear(5, 3, bias=False)

rng = np.random.default_rng(1)
inputs, labels = rng.normal(2, 3, size=(120, 6)), np.arange(120) % 3

def pair():
    return inputs, labels

def clients():
    return {f"ward-{n}": (inputs[n::8], labels[n::8]) for n in range(8)}

numbered = [(inputs[n::8], labels[n::8]) for n in range(8)]
whole = fedrank.federation(numbered, test_share=0.5, preprocess=None)
wrong = lambda: (inputs[:5], labels)
empty = lambda: 1 / 0

@attack("own-push", target=Target.EITHER, knows=Knowledge.COLLUDERS, source="here")
def push(view, *, scale: float = 2.0):
    '''Push.'''
    return -scale * np.mean(view.own, axis=0)

@aggregator("own-midrange", source="here")
def midrange(updates, malicious):
    '''The middle.'''
    return (updates.min(axis=0) + updates.max(axis=0)) / 2
"""
CONFIG = """
name = "mine"
seed = 7
rounds = 2
clients_per_round = 4
network = "own_parts:Plain"
data = "own_parts:clients"

[local]
epochs = 1
learning_rate = 0.1
batch_size = 4
"""
ATTACKED = ("attack.name=own-push", "attack.share=0.25", "attack.scale=3.0", "method.vote=own-midrange")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory with a module that has not been imported."""
    for registry in (ATTACKS, RULES):
        for name in [name for name in registry if name.startswith("own-")]:
            monkeypatch.delitem(registry, name)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "own_parts", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_parts.py").write_text(MODULE)
    return tmp_path


def forget(here: Path, old: str = "", new: str = "") -> None:
    """Edit the module, and let the next import read it again."""
    (here / "own_parts.py").write_text(MODULE.replace(old, new))
    del sys.modules["own_parts"]
    ATTACKS.pop("own-push"), RULES.pop("own-midrange")


def configured(*settings: str, imports: tuple[str, ...] = ()) -> Experiment:
    return parse(CONFIG, "my.toml", settings, imports)


def kept(here: Path, *settings: str, imports: tuple[str, ...] = (), name: str = "run") -> RunDirectory:
    """A finished run."""
    experiment = configured(*settings, imports=imports)
    directory = RunDirectory.create(here / name, experiment, {"data_dir": "", "device": "cpu"})
    assert run(directory, build(experiment, here), workers=1, device="cpu", observer=Observers(()))
    return RunDirectory.open(here / name)


def test_own_parts_are_the_same_as_in_python(here: Path) -> None:
    setup = build(configured(), here)
    import own_parts  # type: ignore[import-not-found]

    expected = fedrank.federation(own_parts.clients(), seed=7)
    assert data_digest(setup.federation) == data_digest(expected)
    net = fedrank.supernetwork(own_parts.Plain(), seed=7, keep=setup.method.network.keep)
    method = fedrank.FRL(net, setup.method.local, run=setup.method.run)
    trained = fedrank.train(method, expected, rounds=2, clients_per_round=4, workers=1, progress=False)
    with local_engine(setup.method, setup.federation, workers=1) as engine:
        *_, (state, _) = run_rounds(setup, engine, setup.method.init())
    np.testing.assert_array_equal(state.ranking, trained.state.ranking)


@pytest.mark.parametrize(("method", "local"), [("frl", LocalTraining()), ("fedavg", WEIGHT_TRAINING)])
def test_own_networks_have_the_defaults_of_python(method: str, local: LocalTraining) -> None:
    text = 'name = "x"\nseed = 7\nrounds = 1\nclients_per_round = 1\ndata = "m:data"\nnetwork = "m:Net"'
    found = parse(text, "my.toml", [f"method.name={method}"])
    assert found.network.keep == inspect.signature(fedrank.supernetwork).parameters["keep"].default
    for name in ("epochs", "learning_rate", "batch_size", "balanced", "momentum", "weight_decay"):
        assert getattr(found.local, name) == getattr(local, name), name
    stated = parse(text, "my.toml", [f"method.name={method}", "network.keep=0.5", "local.epochs=3"])
    assert (stated.network.keep, stated.local.epochs) == (0.5, 3)
    with pytest.raises(ConfigError, match=r"'local' is missing"):
        parse(text, "my.toml", ["network=lenet"])


@pytest.mark.parametrize("name", ["biased", "instance"])
def test_biases_are_refused_until_they_are_fixed(here: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"(?s)own_parts:\w+': this model .*network.fix = true"):
        build(configured(f"network=own_parts:{name}"), here)
    network = build(configured(f"network=own_parts:{name}", "network.fix=true"), here).method.network
    assert isinstance(network, Supernetwork)
    assert [layer.name for layer in network.layout] == ["0.weight", "3.weight"]


@pytest.mark.parametrize("method", ["fedavg", "topk"])
def test_methods_that_train_weights_take_the_model_as_it_is(here: Path, method: str) -> None:
    experiment = configured("network=own_parts:biased", f"method.name={method}", "network.fix=true")
    network = build(experiment, here).method.network
    assert isinstance(network, PlainNetwork)
    assert "0.bias" in [layer.name for layer in network.layout]
    np.testing.assert_array_equal(network.weights, build(experiment, here).method.network.weights)
    forget(here)
    np.testing.assert_array_equal(network.weights, build(experiment, here).method.network.weights)
    other = build(configured("network=own_parts:biased", f"method.name={method}", "seed=8"), here)
    assert not np.array_equal(network.weights, other.method.network.weights)


def test_samples_are_partitioned_as_those_of_shipped_data(here: Path) -> None:
    settings = ("data=own_parts:pair", "data.clients=10", "data.partition=shards", "data.preprocess=none")
    found = build(configured(*settings), here).federation
    import own_parts

    by = fedrank.Shards(2)
    expected = fedrank.split(*own_parts.pair(), by=by, clients=10, seed=7, preprocess=None)
    assert data_digest(found) == data_digest(expected)


def test_a_federation_is_taken_as_it_is_and_an_archive_may_say_whose_samples_are(here: Path) -> None:
    whole = build(configured("data=own_parts:whole"), here).federation
    import own_parts

    assert whole is own_parts.whole
    owners = np.array([f"ward-{number % 8}" for number in range(120)])
    test = {"test_inputs": own_parts.inputs[:9], "test_labels": own_parts.labels[:9]}
    np.savez(here / "mine.npz", inputs=own_parts.inputs, labels=own_parts.labels, clients=owners, **test)
    found = build(configured("data=mine.npz", "data.test_share=0"), here).federation
    expected = fedrank.federation(own_parts.clients(), seed=7, test=tuple(test.values()), test_share=0)
    assert data_digest(found) == data_digest(expected)


def test_values_of_a_preprocessing_are_used(here: Path) -> None:
    setup = build(configured("data.preprocess={mean = 2.0, std = 3.0}"), here)
    assert setup.federation.dataset.preprocess == fedrank.Preprocess(mean=2.0, std=3.0)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (
            ("network=own_parts:Plane",),
            "network.name = 'own_parts:Plane': .* did you mean 'Plain'",
        ),
        (("network=own_parts:number",), "own_parts:number is int, but a torch module or what returns it"),
        (
            ("network=own_parts:pair",),
            "own_parts:pair is neither a torch module nor a function that returns one",
        ),
        (("network=own_parts:needy",), "failed, called without arguments .TypeError"),
        (("network=own_parts:narrow",), "does not fit samples of shape .6,."),
        (("network=no_such_module:Net",), "there is no module 'no_such_module'"),
        (("data=own_parts:number",), "expected a federation, a dict or list of clients, or a pair"),
        (("data=own_parts:empty",), "own_parts:empty failed, called without arguments .ZeroDivisionError"),
        (("data=own_parts:pair",), "not divided among clients yet: set data.clients"),
        (("data=own_parts:wrong", "data.clients=4"), "data.name = 'own_parts:wrong': got 5 inputs but 120"),
        (("data=own_parts:clients", "data.clients=8"), "it is divided among 8 clients already"),
        (("data=own_parts:whole", "data.preprocess=none"), "a federation with its own preprocessing"),
        (("data=own_parts:pair", "data.clients=500"), "there are only 120 samples"),
        (("data=nowhere.npz",), "data.name = 'nowhere.npz': no such file in the current directory"),
        (("clients_per_round=9",), "clients_per_round is 9, but only 8 clients"),
    ],
)
def test_what_does_not_fit_is_refused(here: Path, settings: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(FedrankError, match=complaint):
        build(configured(*settings), here)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (
            "WIDTH = 8",
            "WIDTH = 9",
            "the layers of the model .own_parts:Plain. have changed since this run began",
        ),
        ("ReLU(), nn.Linear(W", "Tanh(), nn.Linear(W", "the modules of the model .* have changed since"),
        ("default_rng(1)", "default_rng(2)", "the data .own_parts:clients. has changed since this run began"),
        ('f"ward-{n}"', 'f"station-{n}"', "the data .* has changed"),
    ],
)
def test_a_run_does_not_go_on_with_another_model_or_other_data(
    here: Path, old: str, new: str, complaint: str
) -> None:
    directory = kept(here)
    forget(here, old, new)
    longer = directory.experiment.model_copy(update={"rounds": 3})
    for doing in (evaluate, lambda *a, **k: run(*a, **k, observer=Observers(()))):
        with pytest.raises(RunError, match=complaint):
            doing(directory.having(longer), build(configured(), here), workers=1, device="cpu")
    forget(here)
    assert evaluate(directory, build(configured(), here), workers=1, device="cpu").rounds == 2


def test_an_evaluation_does_not_make_up_the_traffic_of_a_lost_history(here: Path) -> None:
    directory = kept(here)
    (directory.path / "metrics.jsonl").unlink()
    found = evaluate(directory, build(configured(), here), workers=1, device="cpu")
    console = Console(file=io.StringIO(), width=200)
    console.print(summary_table(directory, found))
    assert console.file.getvalue().count("not recorded  (as the paper counts: ") == 2


def test_data_that_an_attack_poisons_is_the_same_data_again(here: Path) -> None:
    poisoned = ("attack.name=label-flip", "attack.share=0.25")
    directory = kept(here, *poisoned)
    assert evaluate(directory, build(configured(*poisoned), here), workers=1, device="cpu").rounds == 2


def test_initial_weights_that_change_are_noticed(here: Path) -> None:
    directory = kept(here, "network=own_parts:instance", "method.name=fedavg")
    evaluate(directory, build(load_file(directory.path / "config.toml"), here), workers=1, device="cpu")
    forget(here, "instance = biased()", "import torch; torch.rand(1); instance = biased()")
    with pytest.raises(
        RunError, match=r"the initial weights of the model .* have changed .* follow from the seed if a"
    ):
        evaluate(directory, build(load_file(directory.path / "config.toml"), here), workers=1, device="cpu")


def test_a_run_is_loaded_with_its_own_model_and_only_if_it_is_the_same(here: Path) -> None:
    kept(here)
    forget(here)
    assert fedrank.load(here / "run").subnetwork() is not None
    forget(here, "WIDTH = 8", "WIDTH = 9")
    with pytest.raises(RunError, match="the layers of the model"):
        fedrank.load(here / "run")


def test_a_saved_copy_of_a_run_notices_changed_data_too(here: Path) -> None:
    kept(here)
    loaded = fedrank.load(here / "run")
    loaded.save(here / "copy")
    assert (here / "copy" / "parts.toml").read_bytes() == (here / "run" / "parts.toml").read_bytes()
    forget(here, "default_rng(1)", "default_rng(2)")
    copy = RunDirectory.open(here / "copy")
    with pytest.raises(RunError, match=r"copy: the data .own_parts:clients. has changed"):
        evaluate(copy, build(configured(), here), workers=1, device="cpu")
    kept(here, name="other")
    with pytest.raises(RunError, match="other: contains another run: its model or data is not that"):
        loaded.save(here / "other")


def test_a_run_whose_parts_were_deleted_is_refused(here: Path) -> None:
    directory = kept(here)
    (directory.path / "parts.toml").unlink()
    doings = (
        lambda: evaluate(directory, build(configured(), here), workers=1, device="cpu"),
        lambda: run(directory, build(configured(), here), workers=1, device="cpu", observer=Observers(())),
        lambda: fedrank.load(directory.path),
    )
    for doing in doings:
        with pytest.raises(RunError, match=r"parts\.toml: missing, so a change of the model or data"):
            doing()


def test_attacks_and_rules_need_their_module(here: Path) -> None:
    with pytest.raises(ConfigError, match="unknown attack 'own-push'"):
        configured("attack.name=own-push", "attack.share=0.25")
    found = configured(*ATTACKED, imports=("own_parts",))
    assert found.imports == ("own_parts",)
    assert configured(*ATTACKED, "imports=['own_parts']") == found
    with pytest.raises(ConfigError, match=r"unknown key 'attack\.scalle'; did you mean 'scale'"):
        configured(*ATTACKED, "attack.scalle=3.0", imports=("own_parts",))
    setup = build(found, here)
    assert setup.adversary is not None
    assert setup.adversary.attack.parameters == {"scale": 3.0}


def test_reading_a_run_does_not_run_its_code(here: Path) -> None:
    before = kept(here, *ATTACKED, imports=("own_parts",))
    forget(here)
    (here / "own_parts.py").write_text("raise SystemExit('code of a foreign run')")
    again = RunDirectory.open(here / "run")
    assert again.experiment == before.experiment
    assert again.experiment.fingerprint() == before.experiment.fingerprint()
    assert "own_parts" not in sys.modules
    with pytest.raises(ConfigError, match="'own_parts' cannot be imported"):
        fedrank.load(here / "run")
    (here / "own_parts.py").write_text(MODULE)
    assert fedrank.load(here / "run").state.round == 2


@pytest.mark.slow
def test_workers_and_sweeps_know_own_parts(here: Path) -> None:
    state = kept(here, *ATTACKED, imports=("own_parts",)).read_checkpoint()
    experiment = configured(*ATTACKED, imports=("own_parts",))
    setup = build(experiment, here)
    with local_engine(setup.method, setup.federation, workers=2) as engine:
        *_, (shared, _) = run_rounds(setup, engine, setup.method.init())
    assert state is not None
    np.testing.assert_array_equal(shared.ranking, state["ranking"])
    named: Any = ("data=own_parts:clients", "network=own_parts:Plain", "rounds=1", "clients_per_round=4")
    cell = Cell({}, "digits", (*named, "imports=['own_parts']", *ATTACKED))
    run_cells([cell], here / "sweep", here, jobs=1)
    assert RunDirectory.open(here / "sweep" / cell.name).read_summary() is not None
