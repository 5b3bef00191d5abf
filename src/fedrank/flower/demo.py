"""A demo deployment: one SuperLink, SuperNodes with their own data, one run."""

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
    """Run an experiment over a temporary deployment on this machine."""
    with (
        tempfile.TemporaryDirectory(prefix="fedrank-flower-") as folder,
        Deployment(Path(folder)) as deployment,
    ):
        home = Path(folder)
        say(f"SuperLink listening on {deployment.address}")
        config = home / "experiment.toml"
        config.write_text(experiment.to_toml())
        for number, file in enumerate(write_own_data(federation, home / "data")):
            deployment.start_node(number, {"data": str(file)})
            say(f"Starting SuperNode {number} with {federation.clients[number].train.size} training samples")
        settings = {"config": str(config), "out": str(path.resolve())}
        run = deployment.submit(write_app(home / "app"), settings)
        say(f"Started run {run}; a round takes a few seconds, mostly waiting.")
        status = deployment.wait_for(
            run, LIMIT, lambda line: say(line) if line.startswith("round ") else None
        )
        if status != "finished:completed":
            raise RunError(f"the run ended with status {status}: {deployment.last_words(run)}")
