"""Builds a run from its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedrank.attacks import attack_named
from fedrank.data import IID, ByWriter, Dirichlet, Federation, Partition, Shards, load, partition
from fedrank.experiment.adversary import Adversary
from fedrank.experiment.config import Experiment
from fedrank.experiment.own import own_federation, own_module, part_named
from fedrank.experiment.rounds import RunSetup, Schedule
from fedrank.experiment.sections import DataSection
from fedrank.methods import FRL, FedAvg, Method, SignSGD, TopK
from fedrank.nn import (
    NETWORKS,
    LocalTraining,
    Network,
    PlainNetwork,
    Precision,
    Supernetwork,
    check_fit,
    supernetwork,
)


def build(experiment: Experiment, data_dir: Path) -> RunSetup:
    """Load and partition the data and build the network; raise an error if the parts do not fit."""
    experiment.import_modules()
    federation = build_federation(experiment.data, experiment.seed, data_dir)
    schedule = Schedule(experiment.rounds, experiment.clients_per_round, experiment.evaluate_every)
    schedule.check(federation)
    check_network(experiment, federation)
    adversary = build_adversary(experiment)
    return RunSetup.of(build_method(experiment), federation, schedule, adversary)


def build_federation(data: DataSection, seed: int, data_dir: Path) -> Federation:
    """Load the data and partition it among the clients."""
    if data.own:
        return own_federation(data, seed, lambda: _partition(data))
    loaded = load(data.name, data_dir)
    return partition(
        loaded.dataset,
        loaded.train_count,
        by=_partition(data, loaded.writers),
        clients=data.clients,
        seed=seed,
        test_share=data.test_share,
    )


def _partition(data: DataSection, writers: NDArray[np.str_] | None = None) -> Partition:
    match data.partition:
        case "shards":
            return Shards(data.shards_per_client, data.test_shards)
        case "iid":
            return IID()
        case "writer":
            assert writers is not None
            return ByWriter(writers)
        case _:
            return Dirichlet(data.beta)


def check_network(experiment: Experiment, federation: Federation) -> None:
    """Raise ConfigError if the network does not fit the data."""
    with part_named("network", experiment.network.name):
        check_fit(_module(experiment), federation)


def _module(experiment: Experiment) -> nn.Module:
    section = experiment.network
    return own_module(section.name, experiment.seed) if section.own else NETWORKS[section.name]()


def build_network(experiment: Experiment) -> Network:
    """Return the network; methods that train weights take a module of one's own as it is."""
    section = experiment.network
    with part_named("network", section.name):
        module = _module(experiment)
        if section.own and experiment.method.name != "frl":
            return PlainNetwork.of(module, experiment.seed)
        return supernetwork(
            module,
            seed=experiment.seed,
            keep=section.keep,
            weights=section.weights,
            scores=section.scores,
            fix=section.fix,
        )


def build_method(experiment: Experiment) -> Method[Any]:
    """Return the method of an experiment."""
    experiment.import_modules()
    network = build_network(experiment)
    local = experiment.local
    training = LocalTraining(
        epochs=local.epochs,
        learning_rate=local.learning_rate,
        momentum=local.momentum,
        weight_decay=local.weight_decay,
        batch_size=local.batch_size,
        precision=Precision(local.precision),
        balanced=local.balanced,
    )
    run = bytes.fromhex(experiment.fingerprint())[:16]
    method, decay = experiment.method, local.rate_decay
    assumed = method.assumed_malicious
    match method.name:
        case "frl":
            wire, memory = experiment.wire, method.memory * 2**20
            assert isinstance(network, Supernetwork)
            return FRL(
                network, training, wire.ballots, wire.broadcasts, decay, run, method.vote, assumed, memory
            )
        case "fedavg":
            return FedAvg(network, training, decay, run, method.aggregator, assumed)
        case "signsgd":
            return SignSGD(network, training, decay, run, method.server_rate)
        case "topk":
            return TopK(network, training, decay, run, method.aggregator, assumed, method.share)


def build_adversary(experiment: Experiment) -> Adversary | None:
    """Return the adversary of an experiment, or None without an attack."""
    section = experiment.attack
    if section.name == "none":
        return None
    attack = attack_named(section.name).having(**section.parameters)
    return Adversary(attack, None, section.redraw, section.lies, share=section.share)
