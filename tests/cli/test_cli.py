"""The command line as a person uses it: real processes, real signals."""

import json
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedrank.cli import main
from fedrank.experiment.rundir import RunDirectory
from tests.support.command_line import command, fedrank

SMALL = ["--preset", "digits"]
for setting in (
    "rounds=4",
    "data.clients=20",
    "clients_per_round=4",
    "local.epochs=2",
    "evaluate_every=2",
):
    SMALL += ["--set", setting]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped."""
    path = tmp_path_factory.mktemp("runs") / "finished"
    reply = fedrank("run", *SMALL, "--out", path, "--workers", 1)
    assert reply.returncode == 0, reply.stderr
    return path


def checkpoint(path: Path) -> bytes:
    return (path / "checkpoint.npz").read_bytes()


def rounds_in(path: Path) -> list[int]:
    lines = (path / "metrics.jsonl").read_text() if (path / "metrics.jsonl").exists() else ""
    return [json.loads(line)["round"] for line in lines.splitlines()]


def test_a_run_ends_with_a_readable_summary_and_all_its_files(finished: Path, tmp_path: Path) -> None:
    reply = fedrank("run", *SMALL, "--workers", 2, cwd=tmp_path)
    assert reply.returncode == 0, reply.stderr
    for wanted in (
        r"digits after 4 rounds",
        r"accuracy on all test data +\d+\.\d%",
        r"accuracy of \d+ clients +mean \d+\.\d%  std \d+\.\d%  min \d+\.\d%  max \d+\.\d%",
        r"upload per client, round +0\.30 MiB",
        r"download per client, round +0\.\d\d MiB",
        r"Results: runs/digits-\d{8}-\d{6} \(open report\.html\)",
    ):
        assert re.search(wanted, reply.stdout), wanted
    assert re.search(r"round 4/4  accuracy", reply.stderr)
    (path,) = (tmp_path / "runs").iterdir()
    names = {entry.name for entry in path.iterdir()}
    made = {"config.toml", "environment.json", "metrics.jsonl", "checkpoint.npz", "summary.json"}
    assert names == made | {"report.html"}
    assert rounds_in(path) == [1, 2, 3, 4]
    summary = json.loads((path / "summary.json").read_text())
    assert summary["rounds"] == 4
    assert summary["evaluation"]["clients"]["clients"] > 0
    environment = json.loads((path / "environment.json").read_text())
    assert {"fedrank", "torch", "numpy", "python", "revision", "workers", "command"} <= environment.keys()
    assert checkpoint(path) == checkpoint(finished), "two workers must end in the bytes of one"


@pytest.mark.slow
def test_a_file_with_the_resolved_configuration_gives_the_same_run(finished: Path, tmp_path: Path) -> None:
    shutil.copy(finished / "config.toml", tmp_path / "my.toml")
    reply = fedrank("run", tmp_path / "my.toml", "--out", tmp_path / "again", "--workers", 1)
    assert reply.returncode == 0, reply.stderr
    assert checkpoint(tmp_path / "again") == checkpoint(finished)


@pytest.mark.slow
def test_a_run_killed_at_random_moments_ends_in_the_bytes_of_one_never_stopped(
    finished: Path, tmp_path: Path
) -> None:
    path = tmp_path / "killed"
    kills, resumed_after = 0, 0
    arguments: tuple[object, ...] = ("run", *SMALL, "--out", path)
    for _ in range(20):
        process = subprocess.Popen(command(*arguments, "--workers", 2), stderr=subprocess.PIPE, text=True)
        try:
            if kills == 0:
                wait_for_round(path, process)  # at least once in the middle of things
                process.wait(timeout=random.uniform(0.0, 0.3))
            process.wait(timeout=random.uniform(1.0, 7.0) if kills < 3 else 120)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            kills += 1
        _, errors = process.communicate()
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, errors
        if path.exists():
            arguments = ("resume", path)
            resumed_after = max([resumed_after, *rounds_in(path)])
    assert kills
    assert resumed_after
    assert (path / "summary.json").exists()
    assert checkpoint(path) == checkpoint(finished)
    assert rounds_in(path) == [1, 2, 3, 4]


def wait_for_round(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if (path / "checkpoint.npz").exists():
            return
        time.sleep(0.02)
    raise AssertionError("no round was finished")


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_ctrl_c_finishes_the_round_saves_and_says_how_to_resume(
    finished: Path, tmp_path: Path, number: signal.Signals
) -> None:
    path = tmp_path / "stopped"
    arguments = ("run", *SMALL, "--set", "rounds=400", "--out", path, "--workers", 2)
    process = subprocess.Popen(command(*arguments), stderr=subprocess.PIPE, text=True)
    wait_for_round(path, process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Finishing this round" in errors
    assert f"fedrank resume {path}" in errors.replace("\n", "")
    done = rounds_in(path)[-1]
    assert 1 <= done < 400
    assert not (path / "summary.json").exists()
    config = path / "config.toml"
    config.write_text(config.read_text().replace("rounds = 400", f"rounds = {max(4, done + 1)}"))
    assert fedrank("resume", path).returncode == 0
    if done < 4:
        assert checkpoint(path) == checkpoint(finished)


def test_resuming_a_finished_run_changes_nothing(finished: Path) -> None:
    before = {entry.name: entry.read_bytes() for entry in finished.iterdir()}
    reply = fedrank("resume", finished)
    assert reply.returncode == 0
    assert "all 4 rounds are done" in reply.stdout
    assert {entry.name: entry.read_bytes() for entry in finished.iterdir()} == before


def test_resuming_a_finished_run_checks_it_and_writes_a_missing_report(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "my copy"
    shutil.copytree(finished, path)
    (path / "report.html").unlink()
    monkeypatch.setattr(sys, "argv", ["fedrank", "resume", str(path)])
    with pytest.raises(SystemExit):
        main()
    assert "all 4 rounds are done" in capsys.readouterr().out
    assert "accuracy" in (path / "report.html").read_text()
    (path / "checkpoint.npz").write_bytes(checkpoint(path)[:1000])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "checkpoint is damaged" in capsys.readouterr().err


def test_a_second_resume_of_a_busy_run_starts_no_workers(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "busy"
    shutil.copytree(finished, path)
    config = path / "config.toml"
    config.write_text(config.read_text().replace("rounds = 4", "rounds = 5"))
    monkeypatch.setattr("fedrank.experiment.runner.local_engine", None)
    monkeypatch.setattr(sys, "argv", ["fedrank", "resume", str(path)])
    with RunDirectory.open(path).locked(), pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "another process is working on this run" in capsys.readouterr().err


@pytest.mark.slow
def test_a_finished_run_can_be_prolonged(finished: Path, tmp_path: Path) -> None:
    path = tmp_path / "longer"
    shutil.copytree(finished, path)
    config = path / "config.toml"
    config.write_text(config.read_text().replace("rounds = 4", "rounds = 5"))
    assert fedrank("resume", path, "--workers", 1).returncode == 0
    assert rounds_in(path) == [1, 2, 3, 4, 5]
    assert json.loads((path / "summary.json").read_text())["rounds"] == 5


def test_too_few_clients_for_a_vote_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    few = ("--set", "clients_per_round=2", "--set", "method.vote=krum")
    reply = fedrank("run", "--preset", "digits", *few, "--out", tmp_path / "run")
    assert reply.returncode == 2
    assert "2 clients per round are too few for 'krum'" in reply.stderr
    assert not (tmp_path / "run").exists()


def test_audit_shows_the_votes_and_the_ballots(finished: Path) -> None:
    reply = fedrank("audit", finished)
    assert reply.returncode == 0, reply.stderr
    for wanted in (
        r"The vote of round 4, 4 ballots",
        r"linear\.3\.weight +1,280 +\d+\.\d\d% +0\.\d{3}",
        r"known only for the vote 'borda'",
        r"Ballots of round 4",
        r"\n +60% +\d\.\d{3} +0\.\d{4}",
    ):
        assert re.search(wanted, reply.stdout), (wanted, reply.stdout)
    before = checkpoint(finished)
    reply = fedrank("audit", finished, "--round", 9)
    assert reply.returncode == 2
    assert "no vote in round 9; the last was in round 4" in reply.stderr
    assert checkpoint(finished) == before


@pytest.mark.slow
def test_audit_of_the_papers_vote_plays_a_round_for_the_ballots_and_saves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run"
    attacked = ("--set", "attack.name=mirror", "--set", "attack.share=0.25", "--set", "method.vote=borda")
    assert fedrank("run", *SMALL, *attacked, "--out", path, "--workers", 1).returncode == 0
    before = {entry.name: entry.read_bytes() for entry in path.iterdir()}
    reply = fedrank("audit", path, "--workers", 1)
    assert reply.returncode == 0, reply.stderr
    assert re.search(r"layer +edges +changed +agreement +by 1 +by 2", reply.stdout)
    assert "Ballots of round 5" in reply.stdout
    assert {entry.name: entry.read_bytes() for entry in path.iterdir()} == before


def test_evaluate_measures_the_checkpoint_again(finished: Path) -> None:
    reply = fedrank("evaluate", finished, "--workers", 2)
    assert reply.returncode == 0, reply.stderr
    accuracy = json.loads((finished / "summary.json").read_text())["evaluation"]["test_accuracy"]
    assert f"{accuracy:.1%}" in reply.stdout
    assert "time of this evaluation" in reply.stdout


@pytest.mark.parametrize("suffix", ["svg", "png", "html"])
def test_plot_writes_a_picture(finished: Path, tmp_path: Path, suffix: str) -> None:
    picture = tmp_path / f"accuracy.{suffix}"
    assert fedrank("plot", finished, "--out", picture).returncode == 0
    start = picture.read_bytes()[:200].lower()
    assert {"svg": b"<svg", "png": b"png", "html": b"<!doctype html>"}[suffix] in start


@pytest.mark.slow
def test_a_real_write_error_stops_the_run_and_keeps_the_checkpoint(finished: Path, tmp_path: Path) -> None:
    """A limit on file sizes stands for a full disk: the kernel refuses the write."""
    path = tmp_path / "full"
    shutil.copytree(finished, path)
    (path / "summary.json").unlink()
    config = path / "config.toml"
    config.write_text(config.read_text().replace("rounds = 4", "rounds = 6"))
    before = checkpoint(path)

    def no_large_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    reply = fedrank("resume", path, "--workers", 1, preexec_fn=no_large_files)
    assert reply.returncode == 2
    assert "cannot be written" in reply.stderr
    assert "checkpoint is intact" in reply.stderr
    assert "Traceback" not in reply.stderr
    assert checkpoint(path) == before
    assert fedrank("resume", path, "--workers", 1).returncode == 0
    assert rounds_in(path) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["run"], "expected either a TOML file or --preset"),
        (["run", "x.toml", "--preset", "digits"], "expected either"),
        (["run", "missing.toml"], "missing.toml: no such file"),
        (["run", "--preset", "mnst"], "did you mean 'mnist'?"),
        (["run", "--preset", "digits", "--set", "local.epoch=2"], "did you mean 'epochs'?"),
        (["run", "--preset", "digits", "--set", "network.keep=1.5"], "network.keep = 1.5"),
        (["run", "--preset", "digits", "--set", "data.clients=5000"], "only 1797 samples"),
        (
            ["run", "--preset", "digits", "--set", "network.name=conv8"],
            "network.name = 'conv8': does not fit samples of shape (1, 8, 8)",
        ),
        (
            ["run", "--preset", "digits", "--set", "data.partition=iid", "--set", "data.clients=900"],
            "there are no test samples",
        ),
        (["run", "--preset", "digits", "--device", "abacus"], "device must be 'cpu' or 'cuda', got 'abacus'"),
        (["run", "--preset", "mnist", "--data-dir", "nowhere"], "fedrank data get mnist"),
        (["run", "--preset", "digits", "--out", "."], "nothing was overwritten"),
        (["run", "--preset", "digits", "--workers", "0"], "0 is not in the range"),
        (["resume", "nowhere"], "nowhere: not a run directory"),
        (["evaluate", "."], ".: not a run directory"),
        (["show", "imagenet"], "unknown preset 'imagenet'"),
        (["data", "show", "imagenet"], "unknown data set 'imagenet'"),
        (["data", "get", "imagenet"], "unknown data set 'imagenet'"),
        (["data", "show", "digits", "--clients", "0"], "data.clients = 0"),
        (["data", "show", "digits", "--partition", "alphabet"], "data.partition"),
        (["plot", "."], "not a run directory"),
        (["run", "--preset", "digits", "--device", "meta"], "device must be 'cpu' or 'cuda', got 'meta'"),
    ],
)
def test_mistakes_end_in_a_sentence_and_exit_code_2(
    tmp_path: Path,
    arguments: list[str],
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "precious").write_text("mine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["fedrank", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    errors = capsys.readouterr().err
    assert ended.value.code == 2
    assert complaint in errors.replace("\n", " ")
    assert "Traceback" not in errors
    assert [entry.name for entry in tmp_path.iterdir()] == ["precious"]


def test_a_run_of_another_version_or_a_damaged_checkpoint_is_refused(finished: Path, tmp_path: Path) -> None:
    path = tmp_path / "old"
    shutil.copytree(finished, path)
    (path / "summary.json").unlink()
    (path / "checkpoint.npz").write_bytes(checkpoint(finished)[:1000])
    reply = fedrank("resume", path)
    assert reply.returncode == 2
    assert "checkpoint is damaged" in reply.stderr
    assert checkpoint(path) == checkpoint(finished)[:1000]
    environment = path / "environment.json"
    environment.write_text(environment.read_text().replace('"format": 3', '"format": 1'))
    reply = fedrank("resume", path)
    assert reply.returncode == 2
    assert "has format 1" in reply.stderr


def test_presets_and_show_teach_the_settings(tmp_path: Path) -> None:
    listed = fedrank("presets").stdout
    assert all(name in listed for name in ("digits", "mnist", "cifar10", "femnist"))
    shown = fedrank("show", "mnist").stdout
    assert "learning_rate = 0.4" in shown
    assert 'scores = "signed"' in shown


def test_data_commands(tmp_path: Path) -> None:
    listed = fedrank("data", "list", "--data-dir", tmp_path)
    odd = str(tmp_path / "[red]not[/x] markup")
    assert odd in fedrank("data", "list", "--data-dir", odd).stdout
    assert re.search(r"digits +yes", listed.stdout)
    assert re.search(r"mnist +no", listed.stdout)
    assert "nothing to download" in fedrank("data", "get", "digits").stdout
    drawn = fedrank("data", "show", "digits", "--clients", 10, "--beta", 0.1).stdout
    assert "1,797 samples of 10 classes dealt to 10 clients" in drawn
    assert drawn.count("█") > 100


@pytest.mark.parametrize(
    "arguments", [["--help"], ["run", "--help"], ["presets"], ["show", "mnist"], ["data", "list"]]
)
def test_light_commands_do_not_import_torch(arguments: list[str]) -> None:
    program = (
        "import sys, atexit\n"
        "atexit.register(lambda: sys.stderr.write('heavy' if 'torch' in sys.modules else 'light'))\n"
        "from fedrank.cli import main; main()"
    )
    reply = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    assert reply.returncode == 0
    assert reply.stderr.endswith("light")


def test_importing_fedrank_does_not_import_torch() -> None:
    program = (
        "import sys, fedrank; dir(fedrank); assert 'torch' not in sys.modules\n"
        "fedrank.FRL; assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_public_name_exists() -> None:
    import fedrank

    assert all(getattr(fedrank, name) is not None for name in fedrank.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        fedrank.nonsense  # noqa: B018


@pytest.mark.slow
def test_the_demo_shows_the_point_of_it_all(tmp_path: Path) -> None:
    reply = fedrank("demo", "--out", tmp_path / "demo")
    assert reply.returncode == 0, reply.stderr
    assert "20% malicious" in reply.stdout
    accuracy = {
        name: json.loads((tmp_path / "demo" / name / "summary.json").read_text())["evaluation"][
            "test_accuracy"
        ]
        for name in ("FRL", "FRL-attacked", "FedAvg", "FedAvg-attacked")
    }
    assert min(accuracy["FRL"], accuracy["FedAvg"]) > 0.94
    assert accuracy["FRL-attacked"] > 0.9
    assert accuracy["FedAvg-attacked"] < 0.2
    assert "FedAvg-attacked" in (tmp_path / "demo" / "report.html").read_text()


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("methods", "signsgd"),
        ("attacks", "dyn-multi-krum"),
        ("aggregators", "nnm+"),
        ("aggregators", "borda"),
    ],
)
def test_what_there_is_is_listed(command: str, shown: str) -> None:
    reply = fedrank(command)
    assert reply.returncode == 0
    assert shown in reply.stdout


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (["attack.name=reverse"], "attack.name = 'reverse' needs attack.share greater than 0"),
        (["attack.name=revers", "attack.share=0.2"], "unknown attack 'revers'"),
        (["attack.name=scaled", "attack.share=0.2"], "targets weights, but frl sends rankings"),
        (["method.aggregator=median"], "frl takes no aggregator"),
        (
            ["method.name=fedavg", "method.aggregator=medians"],
            "unknown rule; did you mean 'median'",
        ),
        (["wire.ballots=some"], "unknown ballot format 'some'"),
        (["wire.broadcasts=top=50%"], "clients need the whole ranking"),
    ],
)
def test_what_does_not_go_together_is_refused(settings: list[str], complaint: str) -> None:
    flags = [word for setting in settings for word in ("--set", setting)]
    reply = fedrank("run", "--preset", "digits", *flags)
    assert reply.returncode == 2
    assert complaint in reply.stderr.replace("\n", " ")
    assert "Traceback" not in reply.stderr


@pytest.mark.slow
def test_traffic_is_printed_and_drawn(tmp_path: Path) -> None:
    reply = fedrank("traffic", "--net", "lenet", "--plot", tmp_path / "traffic.svg")
    assert reply.returncode == 0, reply.stderr
    assert "4.05" in reply.stdout
    assert (tmp_path / "traffic.svg").read_text().startswith("<svg")
    reply = fedrank("traffic", "--net", "lenett")
    assert reply.returncode == 2
    assert "unknown network 'lenett'; did you mean 'lenet'?" in reply.stderr


def test_diagnose_shows_layers_and_warnings() -> None:
    reply = fedrank("diagnose", *SMALL, "--set", "local.batch_size=64", "--set", "local.epochs=1")
    assert reply.returncode == 0, reply.stderr
    for shown in ("linear.1.weight", "131,072", "151,072 edges", "warning: half of the clients take 2 steps"):
        assert shown in reply.stdout, shown


def test_diagnose_refuses_methods_that_train_weights() -> None:
    reply = fedrank("diagnose", "--preset", "digits-weights")
    assert reply.returncode == 2
    assert "method.name is 'fedavg', but only frl can be diagnosed" in reply.stderr
