"""The app with a network and data of the user's own: nodes have files, the server has a test set."""

import sys
from pathlib import Path

import numpy as np
import pytest

import fedrank
from fedrank.errors import ConfigError, DataError
from fedrank.experiment.build import build, build_method
from fedrank.experiment.config import Experiment, load_preset
from fedrank.experiment.rounds import Schedule
from fedrank.experiment.rundir import RunDirectory
from fedrank.flower.client_app import app
from fedrank.flower.deployment import Deployment, write_app
from fedrank.flower.nodes import read_own_data, voter_of, write_own_data
from fedrank.flower.server_data import server_setup
from fedrank.flower.settings import Settings
from fedrank.flower.strategy import RankVote
from tests.support.runs import rounds_of
from tests.support.table_grid import TableGrid, node_of

MODULE = """
from torch import nn

def net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
"""
PREPROCESS = fedrank.Preprocess(mean=2.0, std=3.0)
COUNT = 4


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_net", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_net.py").write_text(MODULE)
    return tmp_path


def hospitals() -> fedrank.Federation:
    rng = np.random.default_rng(5)
    labels = np.arange(160) % 3
    inputs = rng.normal(2, 3, size=(160, 6)) + 4 * np.eye(6)[labels]
    parts = [(inputs[n::8], labels[n::8]) for n in range(COUNT)]
    return fedrank.federation(parts, preprocess=PREPROCESS, test=(inputs[7::8], labels[7::8]))


def settings(folder: Path, *more: str) -> list[str]:
    """Write the server's test set; return the settings of the run."""
    clients = hospitals()
    test = clients.dataset.select(clients.test)
    np.savez(folder / "test.npz", test_inputs=test.inputs, test_labels=test.labels)
    return [
        *(f"network=own_net:net network.fix=true data={folder}/test.npz data.clients={COUNT}").split(),
        *("rounds=2", "clients_per_round=3", "local.epochs=1", "method.vote=borda"),
        *("data.preprocess={mean=[2.0],std=[3.0]}", *more),
    ]


def experiment(folder: Path, *more: str) -> Experiment:
    return load_preset("digits", settings(folder, *more))


def expected_ranking(configured: Experiment) -> bytes:
    """Return what the same clients come to in one federation, where nothing is sent."""
    return rounds_of(build_method(configured), hospitals(), Schedule(2, 3))[-1][0].ranking.tobytes()


def test_nodes_with_files_and_a_server_with_a_test_set_vote_as_one_federation_would(here: Path) -> None:
    words = settings(here)
    configured = load_preset("digits", words)
    files = write_own_data(hospitals(), here / "data")
    config = Settings(settings=" ".join(words)).model_dump(by_alias=True)
    nodes = {
        900 + number: node_of(app, number, 900 + number, config, data=str(file))
        for number, file in enumerate(files)
    }
    setup = server_setup(configured, here)
    assert (len(setup.federation.clients), setup.federation.test.size) == (COUNT, 20)
    strategy = RankVote(setup.method, clients_per_round=3, min_available_nodes=COUNT, startup_timeout=0)
    state, done = list(strategy.rounds(TableGrid(nodes), setup.method.init(), 2))[-1]
    assert not done.refused
    assert state.ranking.tobytes() == expected_ranking(configured)


def test_a_file_is_preprocessed_as_the_settings_say(here: Path) -> None:
    path = write_own_data(hospitals(), here / "data")[1]
    assert read_own_data(path, experiment(here)).dataset.preprocess == PREPROCESS
    none = experiment(here, "data.preprocess=none")
    assert read_own_data(path, none).dataset.preprocess == fedrank.Preprocess()
    with pytest.raises(ConfigError, match=r"data\.preprocess must say what all clients do"):
        read_own_data(path, experiment(here, "data.preprocess=standardize"))
    with pytest.raises(DataError, match="has the means of 2 channels"):
        read_own_data(path, experiment(here, "data.preprocess={mean=[1.0, 2.0], std=[1.0, 1.0]}"))


def test_a_file_that_does_not_fit_is_refused(here: Path) -> None:
    path = write_own_data(hospitals(), here / "data")[1]
    arrays = dict(np.load(path))
    wrong = {
        "nan": arrays | {"train_inputs": np.full_like(arrays["train_inputs"], np.nan)},
        "narrow": {name: each[:, :5] if each.ndim == 2 else each for name, each in arrays.items()},
        "uneven": arrays | {"test_inputs": arrays["test_inputs"][:, :5]},
        "many": arrays | {"train_labels": arrays["train_labels"] + 3},
    }
    complaints = {
        "nan": "nan.npz: sample 0 contains nan",
        "narrow": "does not fit samples of shape .5,.",
        "uneven": "uneven.npz: cannot be read as a client's data",
        "many": "outputs 3 values per sample, but the labels have 6 classes",
    }
    for name, content in wrong.items():
        np.savez(here / f"{name}.npz", **content)
        with pytest.raises((ConfigError, DataError), match=complaints[name]):
            voter_of(experiment(here), {"data": str(here / f"{name}.npz")})


def test_a_server_with_a_test_set_alone_cannot_know_all(here: Path) -> None:
    with pytest.raises(ConfigError, match="let single nodes attack"):
        server_setup(experiment(here, "attack.name=mirror", "attack.share=0.25"), here)
    with pytest.raises(ConfigError, match=r"data\.clients is missing"):
        server_setup(experiment(here, f"data={here}/test.npz", "data.preprocess=none"), here)
    with pytest.raises(ConfigError, match="it has a test set only"):
        build(experiment(here), here)


@pytest.mark.slow
def test_a_module_in_the_apps_folder_reaches_all_nodes(tmp_path: Path, here: Path) -> None:
    words = settings(here)
    files = write_own_data(hospitals(), tmp_path / "data")
    folder = write_app(tmp_path / "app")
    (tmp_path / "own_net.py").rename(folder / "own_net.py")
    with Deployment(tmp_path / "deployed") as deployment:
        for number, file in enumerate(files):
            deployment.start_node(number, {"data": str(file)})
        run_id = deployment.submit(folder, {"settings": " ".join(words), "out": str(tmp_path / "run")})
        assert deployment.wait_for(run_id, 600) == "finished:completed", deployment.last_words(run_id)
    directory = RunDirectory.open(tmp_path / "run")
    checkpoint, summary = directory.read_checkpoint(), directory.read_summary()
    assert checkpoint is not None
    assert summary is not None
    assert summary.evaluation.test_samples == 20
    assert (directory.path / "parts.toml").exists()
    sys.path.insert(0, str(folder))
    assert checkpoint["ranking"].tobytes() == expected_ranking(load_preset("digits", words))
