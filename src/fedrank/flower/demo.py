"""A deployment to look at: one SuperLink, SuperNodes with data of their own, one run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from fedrank.data import Federation
from fedrank.errors import RunError
from fedrank.experiment.config import Experiment
from fedrank.flower.deployment import Deployment, write_app
from fedrank.flower.nodes import write_own_data

LIMIT = 3600.0


def deploy(experiment: Experiment, federation: Federation, path: Path, say: Callable[[str], None]) -> None:
    """Run an experiment over a deployment on this machine, which is stopped and removed afterwards."""
    with (
        tempfile.TemporaryDirectory(prefix="fedrank-flower-") as folder,
        Deployment(Path(folder)) as deployment,
    ):
        home = Path(folder)
        say(f"A SuperLink listens on {deployment.address}.")
        config = home / "experiment.toml"
        config.write_text(experiment.to_toml())
        for number, file in enumerate(write_own_data(federation, home / "data")):
            deployment.start_node(number, {"data": str(file)})
            say(f"SuperNode {number} starts with {federation.clients[number].train.size} samples of its own.")
        settings = {"config": str(config), "out": str(path.resolve())}
        run = deployment.submit(write_app(home / "app"), settings)
        say(f"Run {run} goes on; a round takes some seconds, mostly of waiting.")
        status = deployment.wait_for(
            run, LIMIT, lambda line: say(line) if line.startswith("round ") else None
        )
        if status != "finished:completed":
            raise RunError(f"the run is {status}: {deployment.last_words(run)}")
