"""Real SuperLinks and SuperNodes on loopback: the same bytes, faults, kills, restarts, TLS."""

import json
import shutil
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from fedrank.experiment.build import build
from fedrank.experiment.config import load_preset
from fedrank.experiment.rundir import RunDirectory
from fedrank.experiment.runner import Observers, run
from fedrank.flower.certificates import Credentials
from fedrank.flower.deployment import Deployment, free_port, write_app
from fedrank.flower.nodes import write_own_data

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def settings_for(clients, rounds, **others):
    words = {"rounds": rounds, "data.clients": clients, "clients_per_round": clients, "local.epochs": 1}
    return [f"{key}={value}" for key, value in (words | others).items()]


def local_ranking(settings, folder):
    experiment = load_preset("digits", settings)
    directory = RunDirectory.create(folder, experiment, {"data_dir": "", "device": "cpu"})
    run(directory, build(experiment, folder), workers=1, device="cpu", observer=Observers(()))
    return ranking_of(folder)


def ranking_of(folder):
    with np.load(folder / "checkpoint.npz") as checkpoint:
        return checkpoint["ranking"].tobytes()


def metrics_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def wait_until(true, limit=400):
    end = time.monotonic() + limit
    while not true():
        assert time.monotonic() < end, "it has not happened"
        time.sleep(0.1)


def flower_processes(folder):
    """Return the processes that were started with this folder as Flower's home."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(folder) in process.environ().get("FLWR_HOME", ""):
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_a_simulated_run_ends_in_the_same_bytes_as_a_local_one(tmp_path, pytestconfig):
    """The app is the project itself, as `flwr run .` takes it."""
    settings = settings_for(4, 2, **{"attack.name": "mirror", "attack.share": 0.25})
    with Deployment(tmp_path, simulation=True) as deployment:
        run_id = deployment.submit(
            pytestconfig.rootpath,
            {"settings": " ".join(settings), "out": str(tmp_path / "run")},
            "num-supernodes=4 client-resources-num-cpus=1",
        )
        assert deployment.wait_for(run_id, 600) == "finished:completed", deployment.last_words(run_id)
    assert ranking_of(tmp_path / "run") == local_ranking(settings, tmp_path / "local")
    assert any(record["malicious"] for record in metrics_of(tmp_path / "run"))
    assert "--token" not in (tmp_path / "run" / "environment.json").read_text()
    assert (tmp_path / "run" / "report.html").exists()


def test_a_deployed_run_with_tls_and_keys_ends_in_the_same_bytes_and_strangers_are_turned_away(tmp_path):
    settings = settings_for(2, 2, **{"method.vote": "measured-mean"})
    federation = build(load_preset("digits", settings), tmp_path).federation
    data = write_own_data(federation, tmp_path / "data")
    keys = Credentials.create(tmp_path / "keys", 3)
    with Deployment(tmp_path, credentials=keys) as deployment:
        for number in range(2):
            deployment.start_node(number, {"data": str(data[number])})
        stranger = deployment.start_node(2, register=False)
        plain = ["flower-supernode", "--insecure", "--superlink", deployment.address]
        deployment.start("plain", [*plain, "--port", str(free_port()), "--max-retries", "2"])
        run_id = deployment.submit(
            write_app(tmp_path / "app"), {"settings": " ".join(settings), "out": str(tmp_path / "run")}
        )
        assert deployment.wait_for(run_id, 600) == "finished:completed", deployment.last_words(run_id)
        log = (tmp_path / "superlink.log").read_text()
        assert log.count("Activated node_id=") == 2
        assert "No SuperNode found with the given public key" in log
        assert "could not establish a connection" in (tmp_path / f"{stranger}.log").read_text()
        assert "Connection attempt failed" in (tmp_path / "plain.log").read_text()
    assert ranking_of(tmp_path / "run") == local_ranking(settings, tmp_path / "local")
    assert not flower_processes(tmp_path), "everything is stopped"


FAULTS = ("none", "dies", "hang", "late", "crash", "garbage", "replay")
DEADLINE = 75.0
"""Each answer takes a new process that imports torch, seven at a time: a slow machine needs most of this."""
NO_REPLY = f"did not reply within {DEADLINE:g} seconds"


@pytest.fixture(scope="module")
def faulty_run(tmp_path_factory):
    """Run two rounds with an honest client and one for each fault; return the metrics and the log."""
    folder = tmp_path_factory.mktemp("faults")
    app = write_app(folder / "app", "faulty:app")
    shutil.copy(Path(__file__).with_name("faulty.py"), app)
    settings = settings_for(len(FAULTS), 2, **{"method.vote": "borda"})
    with Deployment(folder) as deployment:
        for number, fault in enumerate(FAULTS):
            deployment.start_node(number, {"fault": fault})
        run_id = deployment.submit(
            app,
            {"settings": " ".join(settings), "out": str(folder / "run"), "deadline": DEADLINE, "strikes": 1},
        )
        doomed = folder / f"node-{FAULTS.index('dies')}.log"
        wait_until(lambda: "Receiving: train message" in doomed.read_text())
        deployment.kill(f"node-{FAULTS.index('dies')}")
        status = deployment.wait_for(run_id, 600)
        log = (folder / f"{run_id}.log").read_text()
    assert status == "finished:completed", log
    return metrics_of(folder / "run"), log


def refusals(faulty_run, fault):
    number = str(FAULTS.index(fault))
    records, _ = faulty_run
    asked = [record for record in records if int(number) in record["clients"]]
    return [record["refused"].get(number) for record in asked]


def test_an_honest_client_votes_whatever_the_others_do(faulty_run):
    assert refusals(faulty_run, "none") == [None, None]


def test_a_client_that_is_killed_costs_its_own_vote(faulty_run):
    first, *later = refusals(faulty_run, "dies")
    assert first is not None
    assert None not in later


def test_a_client_that_hangs_does_not_hold_up_the_round(faulty_run):
    assert refusals(faulty_run, "hang") == [NO_REPLY] * 2
    assert all(record["wall_seconds"] < DEADLINE + 10 for record in faulty_run[0])


def test_a_late_answer_does_not_count_and_the_next_does(faulty_run):
    first, *later = refusals(faulty_run, "late")
    assert first == NO_REPLY
    assert later[-1] is None


def test_a_client_that_fails_says_why(faulty_run):
    reasons = refusals(faulty_run, "crash")
    assert len(reasons) == 2
    assert all("no data today" in reason for reason in reasons)


def test_garbage_is_refused_and_who_keeps_sending_it_is_no_longer_asked(faulty_run):
    [reason] = refusals(faulty_run, "garbage")
    assert "illegal reply" in reason
    assert f"Client {FAULTS.index('garbage')} (node" in faulty_run[1]


def test_a_ballot_of_another_round_is_refused(faulty_run):
    first, *later = refusals(faulty_run, "replay")
    assert first is None
    assert all("round" in reason for reason in later)


def test_a_superlink_and_a_server_that_are_killed_go_on_and_end_in_the_same_bytes(tmp_path):
    """With a database and a SuperExec of its own a SuperLink survives its restart, as docs/flower.md says.

    It is killed in the middle of a message to a node, as interrupted.py tells. A ballot that is lost in a
    restart is asked for again after the deadline, as all votes are needed.
    """
    settings = settings_for(2, 3)
    app = write_app(tmp_path / "app", serverapp="interrupted:app")
    shutil.copy(Path(__file__).with_name("interrupted.py"), app)
    config = {"settings": " ".join(settings), "out": str(tmp_path / "run"), "deadline": 30.0, "min-votes": 2}
    (tmp_path / "secret").write_bytes(b"a secret of at least thirty-two bytes")
    secret = ["--superexec-auth-secret-file", str(tmp_path / "secret")]
    lasting = ["--isolation", "process", "--database", str(tmp_path / "state.db"), *secret]
    with Deployment(tmp_path, options=lasting) as deployment:
        runner = ["flower-superexec", "--insecure", "--runtime-api-address", deployment.address]
        deployment.start("superexec", [*runner, *secret])
        for number in range(2):
            deployment.start_node(number)
        deployment.submit(app, config)
        superlink = deployment.processes["superlink"]
        wait_until(lambda: superlink.poll() is not None)
        assert len(metrics_of(tmp_path / "run")) == 1
        deployment.start_superlink()
        wait_until(lambda: len(metrics_of(tmp_path / "run")) == 2)
        servers = [each for each in flower_processes(tmp_path) if "serverapp" in " ".join(each.cmdline())]
        assert servers
        for server in servers:
            server.kill()
        assert not (tmp_path / "run" / "summary.json").exists()
        again = deployment.submit(app, config)
        assert deployment.wait_for(again, 600) == "finished:completed", deployment.last_words(again)
        assert "Resuming the run" in (tmp_path / f"{again}.log").read_text()
        third = deployment.submit(app, config)
        assert deployment.wait_for(third, 100) == "finished:failed"
        assert "contains a finished run" in (tmp_path / f"{third}.log").read_text()
        assert 'File "' not in (tmp_path / f"{third}.log").read_text()
    assert ranking_of(tmp_path / "run") == local_ranking(settings, tmp_path / "local")
