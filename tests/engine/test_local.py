import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import nbformat
import numpy as np
import psutil
import pytest
import torch
from nbclient import NotebookClient
from torch import Tensor, nn

from fedrank.data import IID, Federation, split
from fedrank.engine import local_engine
from fedrank.engine.pool import close_resting_workers
from fedrank.errors import ConfigError, ModelError, TrainingError
from fedrank.experiment.metrics import test_samples as samples_to_test
from fedrank.methods import FRL
from fedrank.nn import LeNet, LocalTraining, supernetwork
from tests.support.methods import small_frl


class Stumbling(nn.Module):
    """Raises, dies or dawdles on batches of more than `limit` images."""

    def __init__(self, how: str, limit: int = 4) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10, bias=False)
        self.how, self.limit = how, limit

    def forward(self, images: Tensor) -> Tensor:
        if len(images) > self.limit:
            if self.how == "raise":
                raise ValueError("too many images for me")
            if self.how == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "exit":
                os._exit(3)
            if self.how == "dawdle":
                time.sleep(60)
        return self.linear(images.flatten(1))


def stumbling(how: str) -> FRL:
    return FRL(supernetwork(Stumbling(how), seed=1))


def test_one_and_two_workers_give_the_same_bytes(digits: Federation) -> None:
    # a convolutional net: its sums do depend on the number of threads
    frl = FRL(supernetwork(LeNet(side=8), seed=1), vote="borda")
    clients = [int(c) for c in digits.voters[:7]]
    tallies, losses, predictions = [], [], []
    for workers in (1, 2, 3):
        with local_engine(frl, digits, workers=workers) as engine:
            collected = engine.collect(frl.broadcast(frl.init()), clients)
            tallies.append(collected.messages.total.tobytes())
            losses.append(collected.outcomes)
            predicted = engine.predict(frl.init(), samples_to_test(digits))
            predictions.append((predicted.correct.tobytes(), predicted.losses.tobytes()))
    assert tallies[0] == tallies[1] == tallies[2]
    assert losses[0] == losses[1] == losses[2]
    assert predictions[0] == predictions[1] == predictions[2]


def test_predictions_are_those_of_the_model(digits: Federation) -> None:
    frl = small_frl()
    samples = samples_to_test(digits)
    with local_engine(frl, digits, workers=1) as engine:
        predicted = engine.predict(frl.init(), samples)
    images = torch.from_numpy(digits.dataset.preprocess(digits.dataset.inputs[samples]))
    logits = frl.model(frl.init())(images).numpy()
    labels = digits.dataset.labels[samples]
    assert np.array_equal(predicted.correct, logits.argmax(1) == labels)
    log_sum = np.log(np.exp(logits).sum(1))
    np.testing.assert_allclose(predicted.losses, log_sum - logits[np.arange(len(labels)), labels], rtol=1e-4)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_client_that_raises_is_named_with_its_round(digits: Federation, workers: int) -> None:
    frl = stumbling("raise")
    clients = [int(c) for c in digits.voters[:4]]
    with (
        local_engine(frl, digits, workers=workers) as engine,
        pytest.raises(
            TrainingError, match=r"training client \d+ in round 1 failed: ValueError: too many"
        ) as failure,
    ):
        engine.collect(frl.broadcast(frl.init()), clients)
    assert "in forward" in failure.value.__notes__[0]


@pytest.mark.parametrize(("how", "complaint"), [("die", "was killed by SIGKILL"), ("exit", "exit code 3")])
def test_a_worker_that_dies_is_named_with_its_client_and_round(
    digits: Federation, how: str, complaint: str
) -> None:
    frl = stumbling(how)
    with (
        local_engine(frl, digits, workers=2) as engine,
        pytest.raises(TrainingError, match=rf"training client \d+ in round 1 failed.*{complaint}"),
    ):
        engine.collect(frl.broadcast(frl.init()), [int(c) for c in digits.voters[:4]])


@pytest.mark.slow
def test_a_worker_killed_from_outside_is_reported(digits: Federation) -> None:
    frl = stumbling("dawdle")
    with local_engine(frl, digits, workers=2) as engine:
        victim = engine.workers[0].process.pid
        threading.Timer(4.0, os.kill, (victim, signal.SIGKILL)).start()
        with pytest.raises(TrainingError, match="SIGKILL"):
            engine.collect(frl.broadcast(frl.init()), [int(c) for c in digits.voters[:4]])


@pytest.mark.slow
def test_workers_that_start_together_all_get_a_large_handout() -> None:
    images = np.zeros((60_000, 1, 8, 8), np.uint8)
    many = split(images, np.arange(60_000) % 10, by=IID(), clients=10_000, seed=1)
    frl = small_frl(local=LocalTraining(epochs=1))
    with local_engine(frl, many, workers=4) as engine:
        assert engine.collect(frl.broadcast(frl.init()), list(range(8))).messages.voters == set(range(8))


def trained(model: nn.Module, federation: Federation) -> tuple[set[int], bytes]:
    """Train two clients with two workers; return the workers' process ids, and the votes."""
    frl = FRL(supernetwork(model, seed=1), LocalTraining(epochs=1), vote="borda")
    with local_engine(frl, federation, workers=2) as engine:
        ids = {worker.process.pid for worker in engine.workers}
        collected = engine.collect(frl.broadcast(frl.init()), [int(c) for c in federation.voters[:2]])
    return ids, collected.messages.total.tobytes()


def test_workers_rest_until_the_next_run_and_end_with_the_program(digits: Federation) -> None:
    close_resting_workers()
    first, votes = trained(LeNet(side=8), digits)
    others, _ = trained(nn.Sequential(nn.Flatten(), nn.Linear(64, 10, bias=False)), digits)
    again, same_votes = trained(LeNet(side=8), digits)
    assert first == others == again
    assert votes == same_votes
    assert all(psutil.pid_exists(worker) for worker in first)
    close_resting_workers()
    assert not any(psutil.pid_exists(worker) for worker in first)


@pytest.mark.slow
def test_busy_workers_do_not_rest(digits: Federation) -> None:
    frl = stumbling("dawdle")
    engine = local_engine(frl, digits, workers=2)
    ids = {worker.process.pid for worker in engine.workers}
    engine._all("starting", "begin", frl.broadcast(frl.init()), frozenset({0}))
    for worker in engine.workers:
        worker.call("training", "train", int(digits.voters[0]))
    engine.close()
    assert not any(psutil.pid_exists(worker) for worker in ids)


@pytest.mark.slow
def test_workers_that_know_former_code_are_replaced(
    digits: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = """
from torch import nn
class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 10, bias=False))
    def forward(self, images):
        return super().forward(images * {scale})
"""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "edited_net.py").write_text(module.format(scale="1.0"))
    import edited_net  # type: ignore[import-not-found]

    first, votes = trained(edited_net.Net(), digits)
    assert trained(edited_net.Net(), digits) == (first, votes)
    (tmp_path / "edited_net.py").write_text(module.format(scale="(-3.0)"))
    later, other_votes = trained(importlib.reload(edited_net).Net(), digits)
    assert not first & later
    assert votes != other_votes


@pytest.mark.slow
def test_a_resting_worker_that_was_killed_is_replaced(digits: Federation) -> None:
    first, votes = trained(LeNet(side=8), digits)
    victim = first.pop()
    os.kill(victim, signal.SIGKILL)
    psutil.Process(victim).wait(10)
    ids, same_votes = trained(LeNet(side=8), digits)
    assert victim not in ids
    assert votes == same_votes


def test_the_callers_thread_count_is_left_alone(digits: Federation) -> None:
    before = torch.get_num_threads()
    frl = small_frl(local=LocalTraining(epochs=1))
    with local_engine(frl, digits, workers=1) as engine:
        engine.collect(frl.broadcast(frl.init()), [int(digits.voters[0])])
    assert torch.get_num_threads() == before


def test_no_workers_are_refused(digits: Federation) -> None:
    with pytest.raises(ConfigError, match="workers must be at least 1, got 0"):
        local_engine(small_frl(), digits, workers=0)


def test_a_worker_that_cannot_start_is_reported(digits: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    close_resting_workers()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    frl = small_frl()
    with pytest.raises(TrainingError, match=r"starting the workers failed: .* ended with exit code 1"):
        local_engine(frl, digits, workers=2)


def test_a_model_that_cannot_be_sent_is_refused(digits: Federation) -> None:
    model = nn.Linear(64, 10, bias=False)
    model.lock = threading.Lock()  # type: ignore[assignment]
    with pytest.raises((ModelError, TypeError), match="cannot"):
        local_engine(FRL(supernetwork(model, seed=1)), digits, workers=2)


@pytest.mark.slow
def test_modules_in_the_current_directory_do_not_reach_the_workers(
    digits: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tempfile.py").write_text("raise ImportError('the wrong one')")
    monkeypatch.chdir(tmp_path)
    frl = small_frl()
    with local_engine(frl, digits, workers=2) as engine:
        assert engine.collect(frl.broadcast(frl.init()), [int(digits.voters[0])]).messages.voters == {
            int(digits.voters[0])
        }


@pytest.mark.parametrize("workers", [1, 2])
def test_an_illegal_ballot_costs_its_own_vote_and_nothing_else(digits: Federation, workers: int) -> None:
    frl = Cheating(supernetwork(nn.Sequential(nn.Flatten(), nn.Linear(64, 10, bias=False)), seed=1))
    clients = [int(c) for c in digits.voters[:5]]
    with local_engine(frl, digits, workers=workers) as engine:
        collected = engine.collect(frl.broadcast(frl.init()), clients)
    cheats = [client for client in clients if digits.clients[client].train.size % 2]
    assert sorted(collected.refused) == sorted(cheats)
    assert all("names an edge twice" in reason for reason in collected.refused.values())
    assert collected.messages.voters == set(clients) - set(cheats)
    assert 0 < len(cheats) < len(clients)


class Cheating(FRL):
    """Clients with an odd number of samples name one edge twice."""

    def client_update(self, received, samples, rng, workspace):  # type: ignore[no-untyped-def]
        learned = super().client_update(received, samples, rng, workspace)
        if len(samples) % 2:
            learned.update[5] = learned.update[4]
        return learned


SCRIPT = """
import fedrank
from sklearn.datasets import load_digits
from torch import nn

class MyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 32, bias=False), nn.ReLU(),
                                    nn.Linear(32, 10, bias=False))

    def forward(self, x):
        return self.layers(x)

images, labels = load_digits(return_X_y=True)
net = fedrank.supernetwork(MyModel(), seed=7, keep=0.5)
clients = fedrank.split(images / 16, labels, clients=20, by=fedrank.Dirichlet(1.0), seed=7)
run = fedrank.train(fedrank.FRL(net), clients, rounds=3, clients_per_round=4, workers=2)
model = run.subnetwork()
print(type(model).__name__, len(run.history), f"{run.evaluation.test_accuracy:.3f}")
"""


def test_a_script_needs_no_main_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    reply = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert reply.returncode == 0, reply.stderr
    assert reply.stdout.startswith("MyModel 3 ")
    assert reply.stdout.count("\n") == 1


@pytest.mark.slow
def test_a_model_class_from_a_neighboring_module_is_found(tmp_path: Path) -> None:
    class_definition, rest = SCRIPT.split("images, labels", 1)
    (tmp_path / "my_model.py").write_text(class_definition)
    script = tmp_path / "script.py"
    script.write_text("from my_model import *\nimport fedrank\nimages, labels" + rest)
    reply = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert reply.stdout.startswith("MyModel 3 "), reply.stderr


@pytest.mark.slow
def test_a_model_class_of_a_notebook_cell_reaches_the_workers() -> None:
    imports, rest = SCRIPT.split("class MyModel", 1)
    definition, work = rest.split("images, labels", 1)
    cells = [imports, "class MyModel" + definition, "images, labels" + work]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    output = "".join(o.get("text", "") for o in notebook.cells[2].outputs if o.get("name") == "stdout")
    assert output.startswith("MyModel 3 ")
    told = "".join(o.get("text", "") for o in notebook.cells[2].outputs if o.get("name") == "stderr")
    assert "round 3/3  accuracy" in told, "progress without ipywidgets"
    assert "ipywidgets" not in told
