"""From a configuration to the method and the federation that it describes."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from fedrank.data import IID, ByWriter, Dirichlet, Federation, Loaded, Partition, Shards, deal, load
from fedrank.errors import ConfigError
from fedrank.experiment.config import DataSection, Experiment
from fedrank.methods import FRL
from fedrank.nn import NETWORKS, LocalTraining, supernetwork


def build_federation(data: DataSection, seed: int, data_dir: Path) -> Federation:
    """Load the data and deal it to the clients."""
    loaded = load(data.name, data_dir)
    return deal(
        loaded.dataset,
        loaded.train_count,
        by=_partition(data, loaded),
        clients=data.clients,
        seed=seed,
        test_share=data.test_share,
    )


def _partition(data: DataSection, loaded: Loaded) -> Partition:
    match data.partition:
        case "dirichlet":
            return Dirichlet(data.beta)
        case "shards":
            return Shards(data.shards_per_client)
        case "iid":
            return IID()
        case "writer":
            assert loaded.writers is not None
            return ByWriter(loaded.writers)


def build_method(experiment: Experiment, federation: Federation) -> FRL:
    """Make the method and check that its network fits the data."""
    network, local = experiment.network, experiment.local
    skeleton = NETWORKS[network.name]()
    _check_fit(skeleton, network.name, federation)
    return FRL(
        supernetwork(
            skeleton,
            seed=experiment.seed,
            keep=network.keep,
            weights=network.weights,
            scores=network.scores,
        ),
        LocalTraining(
            epochs=local.epochs,
            learning_rate=local.learning_rate,
            momentum=local.momentum,
            weight_decay=local.weight_decay,
            batch_size=local.batch_size,
        ),
        top=experiment.ballot.top,
        rate_decay=local.rate_decay,
    )


def _check_fit(skeleton: nn.Module, name: str, federation: Federation) -> None:
    shape, classes = federation.dataset.inputs.shape[1:], federation.dataset.classes
    try:
        with torch.inference_mode():
            outputs = skeleton(torch.zeros(1, *shape)).shape[1]
    except RuntimeError:
        raise ConfigError(f"network.name = {name!r} does not fit images of shape {shape}") from None
    if outputs < classes:
        raise ConfigError(f"network.name = {name!r} knows {outputs} classes, the data has {classes}")
