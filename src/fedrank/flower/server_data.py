"""What the server of a deployment knows: all data, or of data of the user's own only a test set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from fedrank.data import Client, Federation
from fedrank.data.archive import Archive, read_archive
from fedrank.data.federation import unprocessed
from fedrank.errors import ConfigError
from fedrank.experiment.build import build, build_method, check_network
from fedrank.experiment.config import Experiment
from fedrank.experiment.own import part_named, shared_preprocess
from fedrank.experiment.rounds import RunSetup, Schedule
from fedrank.experiment.sections import ARCHIVE


def server_setup(experiment: Experiment, data_dir: Path) -> RunSetup:
    """Return the parts of the server's run. An archive with a test set alone says nothing of the clients."""
    name = experiment.data.name
    if not name.endswith(ARCHIVE):
        return build(experiment, data_dir)
    with part_named("data", name):
        archive = read_archive(Path(name))
    if archive.samples is not None:
        return build(experiment, data_dir)
    if experiment.attack.name != "none":
        raise ConfigError(
            "the server has a test set only and cannot say who is malicious: let single nodes attack, with "
            "--node-config 'attack=\"...\"'"
        )
    experiment.import_modules()
    federation = _tested(experiment, archive)
    check_network(experiment, federation)
    schedule = Schedule(experiment.rounds, experiment.clients_per_round, experiment.evaluate_every)
    return RunSetup(build_method(experiment), federation, schedule)


def _tested(experiment: Experiment, archive: Archive) -> Federation:
    """Return a federation of clients whose data is not known."""
    data = experiment.data
    assert archive.test is not None
    if data.clients is None:
        raise ConfigError("data.clients is missing: say how many there are, of whom the server has no data")
    dataset = unprocessed(*archive.test)
    dataset = replace(dataset, preprocess=shared_preprocess(data, dataset.inputs))
    dataset.preprocess.check_fits(dataset.inputs)
    unknown = Client(np.arange(0), np.arange(0))
    return Federation(dataset, (unknown,) * data.clients, np.arange(len(dataset)))
