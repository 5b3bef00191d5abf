"""The clients of the Flower app: their data, and the attacks of malicious clients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from flwr.app import Message, UserConfig

from fedrank.attacks import attack_named
from fedrank.ballots.candidates import question_round, question_stage
from fedrank.data import Client, Dataset, Federation, default_data_dir, find_source
from fedrank.data.arrays import Inputs, Labels, as_pair
from fedrank.data.federation import unprocessed
from fedrank.engine.task import Worker
from fedrank.errors import ConfigError, DataError
from fedrank.experiment.adversary import Adversary, divide
from fedrank.experiment.build import build, build_method, check_network
from fedrank.experiment.config import Experiment, parse
from fedrank.experiment.own import shared_preprocess
from fedrank.experiment.rounds import RunSetup, Schedule
from fedrank.experiment.sections import DataSection
from fedrank.flower.client import Voter
from fedrank.flower.wire import QUESTION, read_question, rehearsed_entropy
from fedrank.methods import FRL, ClientUpdate
from fedrank.methods.frl import RoundInput

PARTS = ("train_inputs", "train_labels", "test_inputs", "test_labels")


def voter_of(experiment: Experiment, node: UserConfig) -> Voter:
    """Return the client of a node.

    A node with its own file (`data="..."`) sees nothing else. Any other node partitions the whole data set
    (in `data-dir`) as a local run does, and takes the share of its `partition-id`.
    """
    if "data" in node:
        return _voter_with_own_data(experiment, Path(str(node["data"])), str(node.get("attack", "")))
    number = node.get("partition-id")
    if not isinstance(number, int):
        raise ConfigError(
            "this node has no partition-id: start its SuperNode with --node-config 'partition-id=0' "
            "(or 1, ...), or give it its own data with --node-config 'data=\"FILE\"'"
        )
    data_dir = Path(str(node["data-dir"])) if "data-dir" in node else default_data_dir()
    setup = _built(experiment.to_toml(), data_dir)
    federation = setup.federation
    if not 0 <= number < len(federation.clients):
        raise ConfigError(f"partition-id must be between 0 and {len(federation.clients) - 1}, got {number}")
    method, adversary = setup.method, setup.adversary
    assert isinstance(method, FRL)
    train, test = federation.train_samples(number), federation.test_samples(number)
    if adversary is None or number not in adversary.clients or adversary.attack.poison:
        return Voter(method, train, test)
    return Colluder(method, train, test, setup=setup)


@lru_cache(maxsize=1)
def _built(experiment: str, data_dir: Path) -> RunSetup:
    """Build the run once per process: in a simulation, one process serves many clients."""
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
    """Write one file per client, with only its own samples."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(len(federation.clients)):
        train, test = federation.train_samples(number), federation.test_samples(number)
        arrays = (train.inputs, train.labels, test.inputs, test.labels)
        paths.append(folder / f"client-{number}.npz")
        np.savez(paths[-1], **dict(zip(PARTS, arrays, strict=True)))  # type: ignore[arg-type]
    return paths


def read_own_data(path: Path, experiment: Experiment) -> Federation:
    """Return one client's data as a federation of a single client."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            train, train_labels, test, test_labels = (archive[part] for part in PARTS)
        inputs, labels = np.concatenate([train, test]), np.concatenate([train_labels, test_labels])
    except Exception as error:  # reading a damaged archive can raise any exception
        raise DataError(f"{path}: cannot be read as a client's data ({error!r})") from error
    own = Client(np.arange(len(train)), np.arange(len(train), len(inputs)))
    return Federation(_dataset(path, experiment.data, inputs, labels), (own,), own.test)


def _dataset(path: Path, data: DataSection, inputs: Inputs, labels: Labels) -> Dataset:
    """Return a client's samples, preprocessed as everywhere else in the run."""
    if data.own:
        dataset = unprocessed(*as_pair(inputs, labels, f"{path}: "))
        preprocess = shared_preprocess(data, inputs)
        preprocess.check_fits(inputs)
        return replace(dataset, preprocess=preprocess)
    source = find_source(data.name)
    if inputs.shape[1:] != source.shape:
        raise DataError(
            f"{path}: expected samples of shape {source.shape} ({source.name}), got {inputs.shape[1:]}"
        )
    return Dataset(inputs, labels, source.classes, source.preprocess)


@dataclass(frozen=True, kw_only=True)
class Colluder(Voter):
    """A malicious client, to rehearse an attack: it sends the update that the attack crafts.

    Malicious clients that share their data get the same result as in a local run; each computes it for
    all of them. One that was not drawn with the others, or has only its own data, attacks alone.
    """

    setup: RunSetup

    def learn(self, received: RoundInput, number: int) -> ClientUpdate:
        """Return the update that the attack crafts for this client."""
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
            seed = self.method.network.seed
            known = setup.adversary.learners(honest, malicious, setup.federation, seed, received.round)
            learned |= {client: worker.learn(client) for client in (*malicious, *known) if client != number}
        crafted = setup.adversary.craft(self.method, setup.federation, received, learned, honest, malicious)
        return ClientUpdate(crafted[number], own.loss)

    def report(self, message: Message) -> bytes:
        """Lie for the malicious clients, as in a local run where everyone votes."""
        setup = self.setup
        assert setup.adversary is not None
        question, number = read_question(message, QUESTION)
        round_number, stage = question_round(question), question_stage(question)
        voters, entropy = setup.select(round_number), rehearsed_entropy(message)
        return setup.adversary.report(self.method, round_number, voters, entropy, number, stage)
