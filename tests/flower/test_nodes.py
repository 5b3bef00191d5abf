"""The clients of the app: their data, and the attacks that they rehearse."""

import numpy as np
import pytest
from typer.testing import CliRunner

from fedrank.cli import app as cli
from fedrank.engine import local_engine
from fedrank.engine.task import one_thread
from fedrank.errors import ConfigError, DataError, RunError
from fedrank.experiment.build import build
from fedrank.experiment.config import load_preset
from fedrank.experiment.rounds import run_rounds
from fedrank.flower import RankVote
from fedrank.flower.client_app import app
from fedrank.flower.nodes import read_own_data, voter_of, write_own_data
from fedrank.flower.settings import Settings
from tests.support.table_grid import TableGrid, node_of

SMALL = (
    "rounds=2",
    "data.clients=6",
    "clients_per_round=5",
    "local.epochs=1",
    "evaluate_every=9",
    "data.partition=iid",
)


def run_over_flower(setup, settings, node_config=lambda number: {}):
    config = Settings(settings=" ".join(settings)).model_dump(by_alias=True)
    count = len(setup.federation.clients)
    nodes = {
        900 + number: node_of(app, number, 900 + number, config, **node_config(number))
        for number in range(count)
    }
    settings = {"clients_per_round": 5, "min_available_nodes": count, "deadline": 60, "startup_timeout": 0}
    settings["without_data"] = setup.federation.idle
    strategy = RankVote(setup.method, **settings, adversary=setup.adversary)
    return list(strategy.rounds(TableGrid(nodes), setup.method.init(), setup.schedule.rounds))


def run_here(setup):
    with local_engine(setup.method, setup.federation, workers=1) as engine:
        return list(run_rounds(setup, engine, setup.method.init()))


@pytest.mark.parametrize(
    "attack",
    [
        "none",
        "reverse",  # what one client knows
        "mirror",  # what the colluders know
        pytest.param("mirror-omniscient", marks=pytest.mark.slow),  # what everybody knows
        pytest.param("min-max", marks=pytest.mark.slow),  # a vector
        pytest.param("label-flip", marks=pytest.mark.slow),  # poisoned data
    ],
)
def test_attacks_over_flower_come_to_the_same_as_in_a_local_run(attack, tmp_path):
    settings = SMALL if attack == "none" else (*SMALL, f"attack.name={attack}", "attack.share=0.34")
    setup = build(load_preset("digits", settings), tmp_path)
    over_flower, here = run_over_flower(setup, settings), run_here(setup)
    for (state, played), (local_state, local) in zip(over_flower, here, strict=True):
        np.testing.assert_array_equal(state.ranking, local_state.ranking)
        assert (played.clients, played.malicious) == (local.clients, local.malicious)
        assert played.train_loss == local.train_loss
    assert attack == "none" or any(played.malicious for _, played in over_flower)


def test_clients_without_data_are_not_asked(tmp_path):
    """A Dirichlet distribution can leave a client with nothing."""
    settings = (
        *SMALL,
        "data.partition=dirichlet",
        "data.beta=0.001",
        "data.clients=40",
        "clients_per_round=5",
    )
    setup = build(load_preset("digits", settings), tmp_path)
    assert setup.federation.idle
    over_flower, here = run_over_flower(setup, settings), run_here(setup)
    assert not any(played.refused for _, played in over_flower)
    np.testing.assert_array_equal(over_flower[-1][0].ranking, here[-1][0].ranking)


def test_a_node_with_a_file_of_its_own_votes_the_same(tmp_path):
    setup = build(load_preset("digits", SMALL), tmp_path)
    files = write_own_data(setup.federation, tmp_path)
    over_flower = run_over_flower(setup, SMALL, lambda number: {"data": str(files[number])})
    np.testing.assert_array_equal(over_flower[-1][0].ranking, run_here(setup)[-1][0].ranking)


@pytest.mark.parametrize("attack", ["reverse", "mirror", "backdoor"])
def test_a_node_with_a_file_of_its_own_can_attack_alone(attack, tmp_path):
    experiment = load_preset("digits", SMALL)
    setup = build(experiment, tmp_path)
    path = write_own_data(setup.federation, tmp_path)[1]
    received = setup.method.receive(setup.method.broadcast(setup.method.init()))
    with one_thread():
        honest = voter_of(experiment, {"data": str(path)}).learn(received, 1)
        malicious = voter_of(experiment, {"data": str(path), "attack": attack}).learn(received, 1)
    assert (honest.update != malicious.update).any()
    ballot = setup.method.encode(received, malicious.update, 1)
    setup.method.collector(received, {1}).add(1, ballot)  # a legal one


def test_own_data_is_the_clients_share_and_nothing_else(tmp_path):
    experiment = load_preset("digits", SMALL)
    federation = build(experiment, tmp_path).federation
    path = write_own_data(federation, tmp_path)[2]
    own = read_own_data(path, experiment)
    assert (own.train_samples(0).inputs == federation.train_samples(2).inputs).all()
    assert (own.test_samples(0).labels == federation.test_samples(2).labels).all()
    assert len(own.dataset.labels) == federation.clients[2].train.size + federation.clients[2].test.size


def test_nodes_that_cannot_vote_say_why(tmp_path):
    experiment = load_preset("digits", SMALL)
    with pytest.raises(ConfigError, match="has no partition-id"):
        voter_of(experiment, {})
    with pytest.raises(ConfigError, match="between 0 and 5, got 6"):
        voter_of(experiment, {"partition-id": 6})
    (tmp_path / "bad.npz").write_bytes(b"no archive")
    with pytest.raises(DataError, match=r"bad\.npz: cannot be read"):
        voter_of(experiment, {"data": str(tmp_path / "bad.npz")})
    mnist = {name: np.zeros((3, 1, 28, 28), np.uint8) for name in ("train_inputs", "test_inputs")}
    np.savez(tmp_path / "mnist.npz", train_labels=np.zeros(3, int), test_labels=np.zeros(3, int), **mnist)
    with pytest.raises(DataError, match="expected samples of shape"):
        voter_of(experiment, {"data": str(tmp_path / "mnist.npz")})


def test_settings_say_what_is_wrong():
    assert Settings.read({}).experiment.name == "digits"
    with pytest.raises(ConfigError, match="--run-config deadline="):
        Settings.read({"deadline": "soon"})
    with pytest.raises(ConfigError, match="deadlin"):
        Settings.read({"deadlin": 3.0})
    with pytest.raises(ConfigError, match="only frl"):
        _ = Settings.read({"preset": "digits-weights"}).experiment
    with pytest.raises(ConfigError, match="unknown preset"):
        _ = Settings.read({"preset": "digit"}).experiment


def test_the_projects_app_has_the_settings_that_the_code_knows(pytestconfig):
    import tomllib

    project = tomllib.loads((pytestconfig.rootpath / "pyproject.toml").read_text())
    assert project["tool"]["flwr"]["app"]["config"] == Settings().model_dump(by_alias=True)


def test_client_files_are_not_overwritten(tmp_path):
    words = ["flower", "partition", str(tmp_path / "data"), "--set", "data.clients=2"]
    first = CliRunner().invoke(cli, words)
    assert first.exit_code == 0, first.output
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["client-0.npz", "client-1.npz"]
    assert isinstance(CliRunner().invoke(cli, words).exception, ConfigError)


def test_keys_are_made_once_and_for_real_hosts(tmp_path):
    words = ["flower", "keys", str(tmp_path / "keys"), "--nodes", "1"]
    assert isinstance(CliRunner().invoke(cli, [*words, "--host", "localhost:8000"]).exception, ConfigError)
    assert not (tmp_path / "keys").exists()
    made = CliRunner().invoke(cli, [*words, "--host", "server.example", "--host", "::1"])
    assert made.exit_code == 0, made.output
    assert (tmp_path / "keys" / "server.key").stat().st_mode & 0o777 == 0o600
    assert isinstance(CliRunner().invoke(cli, words).exception, RunError)


def test_an_app_is_written_once(tmp_path):
    assert CliRunner().invoke(cli, ["flower", "app", str(tmp_path / "app")]).exit_code == 0
    assert isinstance(
        CliRunner().invoke(cli, ["flower", "app", str(tmp_path / "app")]).exception, ConfigError
    )
