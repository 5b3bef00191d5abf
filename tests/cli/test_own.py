"""Own networks, data and attacks on the command line."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import fedrank as library
from tests.support.command_line import fedrank

MODULE = """
import numpy as np
from torch import nn
from fedrank.attacks import Knowledge, Target, attack

def net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))

@attack("own-push", target=Target.EITHER, knows=Knowledge.COLLUDERS, source="here")
def push(view, *, scale: float = 2.0):
    '''Push.'''
    return -scale * np.mean(view.own, axis=0)
"""
CONFIG = """
name = "mine"
seed = 7
rounds = 2
clients_per_round = 4
network = "mine:net"
data = "mine.npz"
[local]
epochs = 1
learning_rate = 0.4
batch_size = 4
"""
ATTACKED = ("--set", "attack.name=own-push", "--set", "attack.share=0.25")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a module, data and a configuration."""
    folder = tmp_path_factory.mktemp("mine")
    (folder / "mine.py").write_text(MODULE)
    (folder / "my.toml").write_text(CONFIG)
    labels = np.arange(160) % 3
    inputs = np.random.default_rng(5).normal(2, 3, size=(160, 6)) + 4 * np.eye(6)[labels]
    np.savez(folder / "mine.npz", inputs=inputs, labels=labels, clients=np.arange(160) // 3 % 8)
    return folder


def test_a_refusal_is_one_sentence_and_says_what_to_do(folder: Path) -> None:
    reply = fedrank("run", "my.toml", "--out", "runs/no", cwd=folder)
    assert reply.returncode == 2
    assert "error: network.name = 'mine:net': this model cannot be ranked edge by edge" in reply.stderr
    assert "set network.fix = true" in reply.stderr
    assert "Traceback" not in reply.stderr
    assert not (folder / "runs").exists()


@pytest.mark.slow
def test_every_command_works_on_a_run_of_own_parts(folder: Path, tmp_path: Path) -> None:
    fixed = ("my.toml", "--set", "network.fix=true", "--import", "mine", *ATTACKED)
    path = folder / "runs" / "yes"
    for words in (
        ("diagnose", *fixed),
        ("run", *fixed, "--out", path, "--workers", 2),
        ("evaluate", path),
        ("audit", path),
        ("export", path, "--to", "torch"),
        ("attacks", "--import", "mine"),
    ):
        reply = fedrank(*words, cwd=folder)
        assert reply.returncode == 0, (words, reply.stderr)
    assert "own-push" in reply.stdout
    assert "[network.layers]" in (path / "parts.toml").read_text()
    config = path / "config.toml"
    config.write_text(config.read_text().replace("rounds = 2", "rounds = 3"))
    for words in (("report", path), ("plot", path, "--out", tmp_path / "a.svg")):
        reply = fedrank(*words, cwd=tmp_path)  # where the module is not
        assert reply.returncode == 0, (words, reply.stderr)
    reply = fedrank("resume", path, cwd=tmp_path)
    assert (reply.returncode, reply.stdout) == (2, "")
    assert "there is no module 'mine': neither in the current directory" in reply.stderr
    assert fedrank("resume", path, cwd=folder).returncode == 0


@pytest.mark.slow
def test_an_exported_model_takes_own_inputs_as_they_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    monkeypatch.chdir(folder)
    runtime = pytest.importorskip("onnxruntime", reason="ONNX is not installed: pip install 'fedrank[onnx]'")
    path = folder / "runs" / "exported"
    reply = fedrank("run", "my.toml", "--set", "network.fix=true", "--out", path, cwd=folder)
    assert reply.returncode == 0, reply.stderr
    assert fedrank("export", path, "--to", "onnx", cwd=folder).returncode == 0
    session = runtime.InferenceSession(path / "model.onnx")
    data = np.load(folder / "mine.npz")
    inputs, owners = data["inputs"], data["clients"]
    parts = [(inputs[owners == client], data["labels"][owners == client]) for client in range(8)]
    standardized = library.federation(parts, seed=7).dataset.preprocess(inputs)
    (logits,) = session.run(None, {"inputs": inputs.astype(np.float32)})
    expected = library.load(path).subnetwork()(torch.from_numpy(standardized))
    np.testing.assert_allclose(logits, expected, rtol=1e-3, atol=1e-4)
    reply = fedrank("export", path, "--to", "fedrank", cwd=folder)
    assert reply.returncode == 2
    assert "use --to onnx or --to torch" in reply.stderr
