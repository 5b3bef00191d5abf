"""What Flower costs: seconds a round and a client, and the ServerApp's memory.

    python benchmarks/flower.py --data-dir DATA

Rounds are those of the digits, played by this process, by Flower's simulation in Ray, and by a SuperLink
with SuperNodes on this machine. Memory is that of the ServerApp's process while 4, 16 and 64 nodes send it
ballots of 4 MB (MNIST's network, 1.6 million edges; the nodes are `light_nodes.py`).
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil

from fedrank.data import default_data_dir
from fedrank.experiment.build import build
from fedrank.experiment.config import Experiment, load_preset
from fedrank.experiment.rundir import RunDirectory
from fedrank.experiment.runner import Observers, run
from fedrank.flower.deployment import Deployment, write_app

CLIENTS, ROUNDS = 4, 5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, default=default_data_dir())
    parser.add_argument("--only", choices=("rounds", "memory"))
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fedrank-bench-"))
    try:
        if arguments.only != "memory":
            measure_rounds(folder)
        if arguments.only != "rounds":
            measure_memory(folder, arguments.data_dir)
    finally:
        shutil.rmtree(folder)


def measure_rounds(folder: Path) -> None:
    words = [
        f"rounds={ROUNDS}",
        f"data.clients={CLIENTS}",
        f"clients_per_round={CLIENTS}",
        "method.vote=borda",
    ]
    experiment = load_preset("digits", words)
    table = {}
    for workers in (1, 2):
        path = folder / f"local-{workers}"
        directory = RunDirectory.create(path, experiment, {"data_dir": "", "device": "cpu"})
        run(directory, build(experiment, folder), workers=workers, device="cpu", observer=Observers(()))
        table[f"local engine, workers: {workers}"] = seconds_a_round(path)
    local = table["local engine, workers: 2"]
    settings = {"settings": " ".join(words), "out": str(folder / "simulated")}
    with Deployment(folder / "simulation", simulation=True) as deployment:
        federation = f"num-supernodes={CLIENTS} client-resources-num-cpus=1"
        number = deployment.submit(write_app(folder / "app"), settings, federation)
        deployment.wait_for(number, 600)
    table["Flower, simulated in Ray"] = seconds_a_round(folder / "simulated")
    with Deployment(folder / "deployment") as deployment:
        for node in range(CLIENTS):
            deployment.start_node(node)
        number = deployment.submit(write_app(folder / "app"), settings | {"out": str(folder / "deployed")})
        deployment.wait_for(number, 600)
    table["Flower, deployed"] = seconds_a_round(folder / "deployed")
    headings = ("s a round", "more a round", "more a client")
    print(f"{f'{CLIENTS} clients':32}" + "".join(f"{heading:>14}" for heading in headings))
    for name, seconds in table.items():
        more = seconds - local
        print(f"{name:32}{seconds:14.2f}{more:14.2f}{more / CLIENTS:14.2f}")


def seconds_a_round(path: Path) -> float:
    records = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return float(statistics.median(record["wall_seconds"] for record in records[1:]))


def measure_memory(folder: Path, data_dir: Path) -> None:
    for clients in (4, 16, 64):
        words = ["rounds=3", f"data.clients={clients}", f"clients_per_round={clients}", "evaluate_every=9"]
        peak, ballot = server_peak(load_preset("mnist", words), folder / f"memory-{clients}", data_dir)
        size = f"{clients:3} clients, ballots of {ballot / 1e6:.1f} MB"
        print(f"{size}: the ServerApp's peak is {peak / 2**20:.0f} MiB", flush=True)


def server_peak(experiment: Experiment, folder: Path, data_dir: Path) -> tuple[int, float]:
    """Return the most memory that the ServerApp had, and the size of a ballot."""
    folder.mkdir()
    config = folder / "experiment.toml"
    config.write_text(experiment.to_toml())
    with Deployment(folder) as deployment:
        clients = str(experiment.data.clients)
        nodes = Path(__file__).with_name("light_nodes.py")
        words = [
            sys.executable,
            str(nodes),
            deployment.address,
            clients,
            str(config),
            str(data_dir.resolve()),
        ]
        deployment.start("nodes", words)
        settings = {"config": str(config), "out": str(folder / "run"), "data-dir": str(data_dir.resolve())}
        number = deployment.submit(write_app(folder / "app"), settings)
        peak = 0
        while not (folder / "run" / "summary.json").exists():
            peak = max(peak, *(server_memory(folder) or [0]))
            if deployment.processes["nodes"].poll() is not None:
                raise SystemExit(deployment.last_words("nodes"))
            time.sleep(0.2)
        deployment.wait_for(number, 60)
    record = json.loads((folder / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert not record["refused"], record["refused"]
    return peak, record["upload_bytes"] / experiment.clients_per_round


def server_memory(folder: Path) -> list[int]:
    """Return the peak so far of every ServerApp process of a deployment."""
    found = []
    for process in psutil.process_iter():
        try:
            if (
                "flwr-serverapp" in " ".join(process.cmdline())
                and str(folder) in process.environ()["FLWR_HOME"]
            ):
                status = Path(f"/proc/{process.pid}/status").read_text()
                found += [
                    int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")
                ]
        except (psutil.Error, OSError, KeyError):
            continue
    return found


if __name__ == "__main__":
    main()
