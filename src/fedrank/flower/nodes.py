"""The clients of the Flower app: where their data comes from, and what malicious ones do with it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from flwr.app import UserConfig

from fedrank.attacks import Knowledge, attack_named
from fedrank.data import Client, Dataset, Federation, default_data_dir, find_source
from fedrank.engine.task import Worker
from fedrank.errors import ConfigError, DataError
from fedrank.experiment.adversary import Adversary, divide
from fedrank.experiment.build import build, build_method, check_network
from fedrank.experiment.config import Experiment, parse
from fedrank.experiment.rounds import RunSetup, Schedule
from fedrank.flower.client import Voter
from fedrank.methods import FRL, ClientUpdate
from fedrank.methods.frl import RoundInput

PARTS = ("train_inputs", "train_labels", "test_inputs", "test_labels")


def voter_of(experiment: Experiment, node: UserConfig) -> Voter:
    """Return the client that a node is.

    A node with a file of its own (`data="..."`) knows nothing but that. Any other deals the whole data set
    (in `data-dir`) as a local run does, and is the client of its `partition-id`.
    """
    if "data" in node:
        return _voter_with_own_data(experiment, Path(str(node["data"])), str(node.get("attack", "")))
    number = node.get("partition-id")
    if not isinstance(number, int):
        raise ConfigError(
            "this node does not know which client it is: start its SuperNode with "
            "--node-config 'partition-id=0' (or 1, ...), or with data=\"FILE\" of its own"
        )
    data_dir = Path(str(node["data-dir"])) if "data-dir" in node else default_data_dir()
    setup = _built(experiment.to_toml(), data_dir)
    federation = setup.federation
    if not 0 <= number < len(federation.clients):
        raise ConfigError(f"partition-id is {number}, but the clients are 0 to {len(federation.clients) - 1}")
    method, adversary = setup.method, setup.adversary
    assert isinstance(method, FRL)
    train, test = federation.train_samples(number), federation.test_samples(number)
    if adversary is None or number not in adversary.clients or adversary.attack.poison:
        return Voter(method, train, test)
    return Colluder(method, train, test, setup=setup)


@lru_cache(maxsize=1)
def _built(experiment: str, data_dir: Path) -> RunSetup:
    """Partition the data once for all clients of a process: in a simulation it is one after the other."""
    return build(parse(experiment, "the run's settings"), data_dir)


def _voter_with_own_data(experiment: Experiment, path: Path, attack_name: str) -> Voter:
    federation = read_own_data(path, experiment)
    check_network(experiment, federation)
    method = build_method(experiment)
    assert isinstance(method, FRL)
    attack = attack_named(attack_name) if attack_name else None
    if attack and attack.poison:
        federation = attack.poison(federation, frozenset([0]))
    train, test = federation.train_samples(0), federation.test_samples(0)
    if attack is None or attack.poison:
        return Voter(method, train, test)
    alone = RunSetup(method, federation, Schedule(1, 1), Adversary(attack, frozenset()))
    return Colluder(method, train, test, setup=alone)


def write_own_data(federation: Federation, folder: Path) -> list[Path]:
    """Write a file for each client, with its samples and nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(len(federation.clients)):
        train, test = federation.train_samples(number), federation.test_samples(number)
        arrays = (train.inputs, train.labels, test.inputs, test.labels)
        paths.append(folder / f"client-{number}.npz")
        np.savez(paths[-1], **dict(zip(PARTS, arrays, strict=True)))  # type: ignore[arg-type]
    return paths


def read_own_data(path: Path, experiment: Experiment) -> Federation:
    """Return the data of one client, as a federation of this client alone."""
    source = find_source(experiment.data.name)
    try:
        with np.load(path, allow_pickle=False) as archive:
            train, train_labels, test, test_labels = (archive[part] for part in PARTS)
    except Exception as error:  # a damaged archive makes its reader raise almost anything
        raise DataError(f"{path}: cannot be read as a client's data ({error!r})") from error
    if train.shape[1:] != source.shape:
        raise DataError(f"{path}: samples of {source.name} have shape {source.shape}, not {train.shape[1:]}")
    inputs, labels = np.concatenate([train, test]), np.concatenate([train_labels, test_labels])
    own = Client(np.arange(len(train)), np.arange(len(train), len(inputs)))
    return Federation(Dataset(inputs, labels, source.classes, source.preprocess), (own,), own.test)


@dataclass(frozen=True, kw_only=True)
class Colluder(Voter):
    """A malicious client, to rehearse an attack: it sends what the attack makes of what colluders know.

    Colluders that share their data come to the same as in a local run, each computing for all of them.
    One that was not drawn with the others, or has only data of its own, colludes with itself.
    """

    setup: RunSetup

    def learn(self, received: RoundInput, number: int) -> ClientUpdate:
        """Return the update that the attack wants this client to send."""
        setup = self.setup
        assert setup.adversary is not None
        own = super().learn(received, number)
        learned = {number: own}
        honest, malicious = divide(setup.select(received.round), setup.adversary)
        if number not in malicious:
            honest, malicious = (), (number,)
        else:
            worker = Worker(self.method, setup.federation, self.device)
            worker.received = received
            known = malicious
            if setup.adversary.attack.knows is Knowledge.BENIGN:
                known = (*honest, *malicious)
            learned |= {client: worker.learn(client) for client in known if client != number}
        crafted = setup.adversary.craft(self.method, received, learned, honest, malicious)
        return ClientUpdate(crafted[number], own.loss)
