"""From a configuration to the method and the federation that it describes."""

from __future__ import annotations

from pathlib import Path

from fedrank.attacks import ATTACKS
from fedrank.data import IID, ByWriter, Dirichlet, Federation, Loaded, Partition, Shards, deal, load
from fedrank.errors import ConfigError, ModelError
from fedrank.experiment.config import DataSection, Experiment
from fedrank.experiment.rounds import Adversary, check_fit
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
    try:
        check_fit(skeleton, federation)
    except ModelError as error:
        raise ConfigError(f"network.name = {network.name!r}: {error}") from None
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
        ballots=experiment.wire.ballots,
        broadcasts=experiment.wire.broadcasts,
        rate_decay=local.rate_decay,
        run=bytes.fromhex(experiment.fingerprint())[:16],
    )


def build_adversary(experiment: Experiment) -> Adversary | None:
    """Return the malicious clients of an experiment, if it has any."""
    section = experiment.attack
    if section.name == "none":
        return None
    return Adversary(ATTACKS[section.name], section.share, section.redraw)
