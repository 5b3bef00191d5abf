"""Runs of `fedrank.train` that are kept: resumed, loaded, saved, reported."""

import io
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner, Result

import fedrank
from fedrank import training
from fedrank.attacks import View
from fedrank.cli import app
from fedrank.data import Federation
from fedrank.errors import ConfigError
from fedrank.experiment.description import Description
from fedrank.experiment.rundir import RunDirectory
from tests.support.methods import small_net

FILES = {
    "checkpoint.npz",
    "description.toml",
    "environment.json",
    "metrics.jsonl",
    "report.html",
    "summary.json",
}


class Net(nn.Module):
    """A model as people write it: with biases, and an argument that has a default."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)


def frl(model: nn.Module | None = None, **options: object) -> fedrank.FRL:
    net = fedrank.supernetwork(model or Net(), seed=11, keep=0.7, fix=True)
    local = fedrank.LocalTraining(epochs=1)
    return fedrank.FRL(net, local, **{"vote": "borda", **options})  # type: ignore[arg-type]


def train(clients: Federation, method: fedrank.FRL | None = None, **options: object) -> fedrank.Run:
    settings = {"rounds": 3, "clients_per_round": 4, "workers": 1, "progress": False, **options}
    return fedrank.train(method or frl(), clients, **settings)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _quick_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page has tests of its own, and takes a second."""
    monkeypatch.setattr(training, "own_report", lambda run: (run.path / "report.html").write_text("quick"))


@pytest.fixture(scope="module")
def kept(digits: Federation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "mine"
    train(digits, out=path)
    return path


@pytest.fixture
def copy(kept: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kept, tmp_path / "mine"))


def content(path: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in path.iterdir()}


def test_a_run_is_kept_in_an_ordinary_run_directory(kept: Path, digits: Federation) -> None:
    assert content(kept).keys() == FILES
    directory, plain = RunDirectory.open(kept), train(digits)
    assert [record.round for record in directory.read_metrics()] == [1, 2, 3]
    assert directory.read_checkpoint()["ranking"].tolist() == plain.state.ranking.tolist()
    assert directory.read_summary().evaluation == plain.evaluation


def test_a_run_in_parts_ends_in_the_bytes_of_one_in_one_go(
    kept: Path, digits: Federation, tmp_path: Path
) -> None:
    first = train(digits, out=tmp_path / "mine", rounds=1)
    assert len(first.history) == 1
    second = train(digits, out=tmp_path / "mine")
    assert [done.number for done in second.history] == [1, 2, 3]
    assert content(tmp_path / "mine")["checkpoint.npz"] == content(kept)["checkpoint.npz"]
    assert content(tmp_path / "mine")["description.toml"] == content(kept)["description.toml"]


def test_a_finished_run_is_not_trained_again(
    copy: Path, digits: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(copy)
    monkeypatch.setattr(training, "local_engine", None)
    run = train(digits, out=copy)
    assert len(run.history) == 3
    assert content(copy) == before


def test_a_run_that_was_killed_after_its_last_round_gets_its_summary(copy: Path, digits: Federation) -> None:
    before = content(copy)
    for name in ("summary.json", "report.html"):
        (copy / name).unlink()
    train(digits, out=copy)
    assert content(copy)["summary.json"] == before["summary.json"]
    assert (copy / "report.html").exists()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("model", "the model's layers changed"),
        ("activation", "the model changed"),
        ("seed", "network.seed was 11 and is now 12"),
        ("local", "local.epochs was 1 and is now 2"),
        ("vote", "method.vote was 'borda' and is now 'median'"),
        ("method", r"other settings: the method was FRL and is now FedAvg\. Choose"),
        ("data", "the data changed"),
        ("adversary", "attack.name was 'none' and is now 'reverse'"),
        ("clients_per_round", "clients_per_round was 4 and is now 5"),
        ("rounds", "has 3 completed rounds, but rounds is 2"),
    ],
)
def test_what_changed_is_said_and_nothing_is_touched(
    kept: Path, digits: Federation, change: str, complaint: str
) -> None:
    method, clients, options = frl(), digits, {}
    if change in ("model", "activation"):
        model = Net(13 if change == "model" else 12)
        if change == "activation":
            model.layers[2] = nn.Tanh()
        method = frl(model)
    elif change == "seed":
        method = replace(method, network=fedrank.supernetwork(Net(), seed=12, keep=0.7, fix=True))
    elif change == "local":
        method = replace(method, local=fedrank.LocalTraining(epochs=2))
    elif change == "vote":
        method = replace(method, vote="median")
    elif change == "method":
        method = fedrank.FedAvg(method.network)
    elif change == "data":
        clients = replace(digits, clients=digits.clients[::-1])
    else:
        reverse = fedrank.Adversary("reverse", clients={1, 2})
        options = {change: {"adversary": reverse, "clients_per_round": 5, "rounds": 2}[change]}
    before = content(kept)
    with pytest.raises(fedrank.FedrankError, match=complaint):
        train(clients, method, out=kept, **options)
    assert content(kept) == before


def test_a_busy_run_is_refused_before_workers_start(
    copy: Path, digits: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "local_engine", None)
    with (
        RunDirectory.open(copy).locked(),
        pytest.raises(fedrank.FedrankError, match="another process is working on this run"),
    ):
        train(digits, out=copy, rounds=4)


def test_a_loaded_run_is_the_run(kept: Path, digits: Federation) -> None:
    trained, loaded = train(digits), fedrank.load(kept)
    assert loaded.method == replace(trained.method, network=loaded.method.network)
    assert loaded.evaluation == trained.evaluation
    assert [done.vote for done in loaded.history] == [done.vote for done in trained.history]
    assert not loaded.interrupted
    images = torch.randn(5, 1, 8, 8)
    assert torch.equal(loaded.subnetwork()(images), trained.subnetwork()(images))
    for mine, theirs in zip(loaded.to_records(), trained.to_records(), strict=True):
        assert {**mine, "wall_seconds": 0} == {**theirs, "wall_seconds": 0}
    assert repr(loaded) == f"<Run: FRL, 3 rounds, accuracy {trained.evaluation.test_accuracy:.1%}>"


def test_a_model_that_cannot_be_made_again_is_asked_for(digits: Federation, tmp_path: Path) -> None:
    path = tmp_path / "wide"
    run = train(digits, frl(Net(20)), out=path, rounds=1)
    loaded = fedrank.load(path)
    assert loaded.to_records()[0]["test_accuracy"] == run.evaluation.test_accuracy
    with pytest.raises(
        fedrank.FedrankError,
        match=r"could not be rebuilt: .* its layers differ. Pass it as fedrank.load\(..., net=model\)",
    ):
        loaded.subnetwork()
    images = torch.randn(5, 1, 8, 8)
    for net in (Net(20), run.method.network):
        model = fedrank.load(path, net=net).subnetwork()
        assert torch.equal(model(images), run.subnetwork()(images))
    other = fedrank.supernetwork(Net(20), seed=1, keep=0.7, fix=True)
    for wrong, complaint in ((Net(21), "its layers differ"), (other, "its seed differs")):
        with pytest.raises(fedrank.FedrankError, match=f"is not the model of this run: {complaint}$"):
            fedrank.load(path, net=wrong)


def test_what_is_no_run_or_model_is_refused_by_name(kept: Path) -> None:
    got = {
        Net: r"the class Net; call it: net=Net\(...\)",
        "Net": "'Net'",
        7: "7",
    }
    for net, shown in got.items():
        with pytest.raises(fedrank.FedrankError, match=f"net must be the model .* supernetwork, got {shown}"):
            fedrank.load(kept, net=net)  # type: ignore[arg-type]
    with pytest.raises(fedrank.FedrankError, match="path must be the path of a run directory, got None"):
        fedrank.load(None)  # type: ignore[arg-type]


def test_loading_runs_no_code_that_the_directory_names(copy: Path, tmp_path: Path) -> None:
    description = copy / "description.toml"
    source = f'source = "{Net.__module__}:Net"'
    assert source in description.read_text()
    for other in ("shutil:rmtree", "builtins:exit", "nowhere.at.all:Net"):
        description.write_text((copy / "description.toml").read_text().replace(source, f'source = "{other}"'))
        with pytest.raises(fedrank.FedrankError, match="the model could not be rebuilt"):
            fedrank.load(copy).subnetwork()
        source = f'source = "{other}"'


@pytest.mark.parametrize("damage", ["", "name = 3", "rounds = [", "\x00"])
def test_a_damaged_description_is_refused(copy: Path, damage: str) -> None:
    (copy / "description.toml").write_text(damage)
    with pytest.raises(fedrank.FedrankError, match=r"description\.toml: (damaged|cannot be read)"):
        fedrank.load(copy)


def test_a_run_that_was_not_kept_can_be_saved_and_continued(
    kept: Path, digits: Federation, tmp_path: Path
) -> None:
    run = train(digits, rounds=2)
    run.save(tmp_path / "mine")
    run.save(tmp_path / "mine")
    assert fedrank.load(tmp_path / "mine").evaluation == run.evaluation
    train(digits, out=tmp_path / "mine")
    assert content(tmp_path / "mine")["checkpoint.npz"] == content(kept)["checkpoint.npz"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious").write_text("mine")
    with pytest.raises(fedrank.FedrankError, match="not a run directory"):
        run.save(tmp_path / "other")
    with pytest.raises(fedrank.FedrankError, match="contains another run"):
        train(digits, frl(vote="median"), rounds=1).save(kept)


def test_a_saved_run_is_never_replaced_by_fewer_rounds(
    copy: Path, digits: Federation, tmp_path: Path
) -> None:
    before = content(copy)
    with pytest.raises(fedrank.FedrankError, match=r"has 3 completed rounds of this run, but only 2 would"):
        train(digits, rounds=2).save(copy)
    assert content(copy) == before
    train(digits, rounds=4).save(copy)
    assert fedrank.load(copy).state.round == 4
    (tmp_path / "file").write_text("mine")
    with pytest.raises(fedrank.FedrankError, match="file: cannot be used as a run directory"):
        train(digits, rounds=1).save(tmp_path / "file")


def test_a_saved_run_has_no_result_of_other_rounds(copy: Path, digits: Federation) -> None:
    longer = train(digits, rounds=4)
    replace(longer, measured=None).save(copy)
    assert RunDirectory.open(copy).read_summary() is None


def test_every_method_attack_and_rule_of_ones_own_can_be_described(digits: Federation) -> None:
    def push(view: View, *, scale: float = 2.0) -> np.ndarray:
        return -scale * view.own[0]

    net = frl().network
    for method in (
        fedrank.FRL(net, vote=lambda updates, m: updates.max(axis=0)),
        fedrank.FRL(net, vote={"name": "measured-mean", "validators": 5}),
        fedrank.FedAvg(net, aggregator="nnm+trimmed-mean"),
        fedrank.SignSGD(net),
        fedrank.TopK(net, share=0.2),
    ):
        adversary = fedrank.Adversary(push, clients={1, 2}, params={"scale": 3.0})
        schedule = training.Schedule(2, 3)
        made = Description.of("mine", method, digits, schedule, adversary)
        again = Description.of("mine", made.rebuild(Net()), digits, schedule, adversary)
        assert again.attack.parameters == {"scale": 3.0}
        if not callable(getattr(method, "vote", None)):
            assert again == made
            assert again.fingerprint() == made.fingerprint()
            assert made.changes(again) == []


def test_a_report_is_a_page(digits: Federation, tmp_path: Path) -> None:
    run = train(digits, rounds=1)
    with pytest.raises(ConfigError, match=r"HTML page: name it .*r\.html, not .*r\.pdf"):
        run.report(tmp_path / "r.pdf")
    assert not list(tmp_path.iterdir())


def test_a_report_needs_no_directory(digits: Federation, tmp_path: Path) -> None:
    run = train(digits, rounds=1)
    run.report(tmp_path / "mine.html")
    text = (tmp_path / "mine.html").read_text()
    assert f"{run.evaluation.test_accuracy:.1%}" in text
    assert "<h1>mine</h1>" in text
    assert "<td>network.edges</td><td>888</td>" in text
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine.html"]


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


def test_the_command_line_reads_what_it_can(kept: Path, tmp_path: Path) -> None:
    command("report", kept, "--out", tmp_path / "r.html")
    assert "<h1>mine</h1>" in (tmp_path / "r.html").read_text()
    assert "has no data" in str(command("plot", kept, "--chart", "refused").exception)
    assert "Measured" not in command("audit", kept).output
    assert command("export", kept, "--out", tmp_path / "model.pt").exit_code == 0
    weights = torch.load(io.BytesIO((tmp_path / "model.pt").read_bytes()))
    expected = fedrank.load(kept).subnetwork().state_dict()
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in weights)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ("evaluate",),
            r"that trained it has\. In that program, fedrank\.train\(\.\.\., out='.*mine'\) resumes the run",
        ),
        (("resume",), "needs the run's data"),
        (("export", "--to", "onnx"), "exported --to torch only"),
    ],
)
def test_the_command_line_says_what_it_cannot_do(
    kept: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    before = content(kept)
    assert re.search(complaint, str(command(*arguments, kept).exception))
    assert content(kept) == before


@pytest.mark.parametrize("rounds", [3, 4])
def test_a_lost_history_is_reported_by_whatever_reads_it(
    copy: Path, digits: Federation, caplog: pytest.LogCaptureFixture, rounds: int
) -> None:
    (copy / "metrics.jsonl").unlink()
    assert "metrics.jsonl has no completed round" in str(command("audit", copy).exception)
    again = train(digits, out=copy, rounds=rounds)
    assert [done.number for done in again.history] == list(range(4, rounds + 1))
    summary = RunDirectory.open(copy).read_summary()
    assert summary is not None
    assert summary.rounds == rounds
    (message,) = caplog.messages[:1]
    assert message.endswith("metrics.jsonl: rounds 1 to 3 are missing; the history and reports go without")


INTERRUPTED = """
import os, signal, sys
import fedrank
from tests.test_run import frl
from sklearn.datasets import load_digits

digits = load_digits()
clients = fedrank.split(digits.images / 16, digits.target, clients=20, by=fedrank.IID(), seed=7)
press = lambda done: os.kill(os.getpid(), signal.SIGINT) if done.number == 2 else None
for out in ("first", "second"):
    run = fedrank.train(frl(), clients, rounds=4, clients_per_round=3, workers=1, out=out, on_round=press)
    print(run)
    if run.interrupted:
        break
print(fedrank.load("first").interrupted)
press = lambda done: None
print(fedrank.train(frl(), clients, rounds=4, clients_per_round=3, workers=1, out="first"))
"""


@pytest.mark.slow
def test_a_loop_of_runs_can_tell_that_it_was_interrupted(tmp_path: Path) -> None:
    root = Path(__file__).parents[1]
    reply = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(root)!r})\n{INTERRUPTED}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    first, loaded, resumed = reply.stdout.splitlines()
    assert first.startswith("<Run: FRL, 2 rounds, accuracy ")
    assert first.endswith(", interrupted>")
    assert loaded == "True"
    assert resumed.startswith("<Run: FRL, 4 rounds")
    assert not (tmp_path / "second").exists()
    assert json.loads((tmp_path / "first" / "summary.json").read_text())["rounds"] == 4


def test_what_cannot_be_kept_is_refused_before_training(digits: Federation, tmp_path: Path) -> None:
    def push(view: View, *, how: object = None) -> np.ndarray:
        return -view.own[0]

    adversary = fedrank.Adversary(push, share=0.1, params={"how": object()})
    with pytest.raises(fedrank.FedrankError, match="how is <object"):
        train(digits, frl(), out=tmp_path / "mine", adversary=adversary)
    assert not list(tmp_path.iterdir())


def test_small_nets_of_plain_torch_classes_are_asked_for(digits: Federation, tmp_path: Path) -> None:
    train(digits, frl(small_net()), out=tmp_path / "mine", rounds=1)
    with pytest.raises(
        fedrank.FedrankError,
        match=r"the model could not be rebuilt: its class, Sequential, needs arguments\. Pass it as",
    ):
        fedrank.load(tmp_path / "mine").subnetwork()


def test_weighted_averaging_is_kept_and_continued(digits: Federation, tmp_path: Path) -> None:
    net = fedrank.supernetwork(Net(), seed=11, fix=True)
    method = fedrank.FedAvg(net, fedrank.LocalTraining(epochs=1, learning_rate=0.05), weighted=True)
    options = {"clients_per_round": 4, "workers": 1, "progress": False}
    fedrank.train(method, digits, rounds=1, out=tmp_path / "parts", **options)
    parts = fedrank.train(method, digits, rounds=2, out=tmp_path / "parts", **options)
    whole = fedrank.train(method, digits, rounds=2, **options)
    assert (parts.state.weights == whole.state.weights).all()
    again = fedrank.load(tmp_path / "parts", net=net)
    assert again.method.weighted is True
    given = replace(method, weighted=dict.fromkeys(range(len(digits.clients)), 1))
    fedrank.train(given, digits, rounds=1, out=tmp_path / "given", **options)
    assert fedrank.load(tmp_path / "given", net=net).method.weighted == given.weighted


def test_a_run_of_a_plain_module_cannot_be_kept(digits: Federation, tmp_path: Path) -> None:
    method = fedrank.FedAvg(Net(), seed=7)
    with pytest.raises(fedrank.FedrankError, match="only runs of a supernetwork can be kept"):
        fedrank.train(method, digits, rounds=1, clients_per_round=4, progress=False, out=tmp_path / "plain")
    assert not (tmp_path / "plain").exists()


def test_runs_of_before_the_balanced_loss_load_and_resume(digits: Federation, tmp_path: Path) -> None:
    path, local = tmp_path / "mine", fedrank.LocalTraining(epochs=1, balanced=False)
    method = replace(frl(), local=local)
    train(digits, method, out=path, rounds=2)
    description = path / "description.toml"
    assert "balanced = false\n" in description.read_text()
    description.write_text(description.read_text().replace("balanced = false\n", ""))
    assert fedrank.load(path, net=Net()).method.local == local
    with pytest.raises(fedrank.FedrankError, match="balanced"):
        train(digits, replace(method, local=fedrank.LocalTraining(epochs=1)), out=path)
    again = train(digits, method, out=path, rounds=3)
    assert again.state.ranking.tolist() == train(digits, method, rounds=3).state.ranking.tolist()
