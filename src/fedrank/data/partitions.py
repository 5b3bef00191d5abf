"""How samples are dealt to clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedrank.errors import DataError

Indices = NDArray[np.int64]
Labels = NDArray[np.int64]


class Partition(Protocol):
    """A way to deal samples to clients: every sample goes to exactly one client."""

    def partition(self, labels: Labels, clients: int | None, rng: np.random.Generator) -> list[Indices]:
        """Return the samples of each client."""
        ...


@dataclass(frozen=True)
class Dirichlet:
    """Every class is spread over the clients in proportions drawn from Dirichlet(beta).

    Source: Hsu et al. (2019), Reddi et al. (2020). A small beta gives clients few classes; a large
    one approaches iid.
    """

    beta: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.beta < 1e6:
            raise DataError(f"beta is {self.beta}: it must lie between 0 and a million; IID() is the limit")

    def partition(self, labels: Labels, clients: int | None, rng: np.random.Generator) -> list[Indices]:
        """Return the samples of each client."""
        clients = _enough(labels, clients)
        owners = np.empty(labels.size, np.int64)
        for label in np.unique(labels):
            samples = rng.permutation(np.flatnonzero(labels == label))
            shares = rng.dirichlet(np.full(clients, self.beta))
            ends = np.round(np.cumsum(shares) * samples.size)
            ends[-1] = samples.size
            owners[samples] = np.searchsorted(ends, np.arange(samples.size), side="right")
        return _by_owner(owners, clients)


@dataclass(frozen=True)
class Shards:
    """Samples sorted by class are cut into equal shards; each client gets `per_client` of them.

    Source: McMahan et al. (2017). Two shards give a client at most two classes in most cases.

    Parameters
    ----------
    per_client : how many shards a client gets.
    test : cut the global test set into as many shards and deal them together with those of the training
        set, so that clients train on all their training samples and are tested on the same classes.
    """

    per_client: int = 2
    test: bool = False

    def __post_init__(self) -> None:
        if self.per_client < 1:
            raise DataError(f"per_client is {self.per_client}: a client needs at least one shard")

    def partition(self, labels: Labels, clients: int | None, rng: np.random.Generator) -> list[Indices]:
        """Return the samples of each client."""
        shards, dealt = self._cut(labels, clients, rng), self._assigned(clients, rng)
        return [np.concatenate([shards[shard] for shard in share]) for share in dealt]

    def partition_both(
        self, labels: Labels, test_labels: Labels, clients: int | None, rng: np.random.Generator
    ) -> tuple[list[Indices], list[Indices]]:
        """Return each client's training samples and its test samples, of the same places in the order."""
        both = self._cut(labels, clients, rng), self._cut(test_labels, clients, rng)
        dealt = self._assigned(clients, rng)
        train, test = ([np.concatenate([shards[s] for s in share]) for share in dealt] for shards in both)
        return train, test

    def _cut(self, labels: Labels, clients: int | None, rng: np.random.Generator) -> list[Indices]:
        clients = _enough(labels, clients, self.per_client)
        by_class = rng.permutation(labels.size)
        by_class = by_class[np.argsort(labels[by_class], kind="stable")]
        return np.array_split(by_class, clients * self.per_client)

    def _assigned(self, clients: int | None, rng: np.random.Generator) -> Indices:
        assert clients is not None
        return rng.permutation(clients * self.per_client).reshape(clients, self.per_client)


@dataclass(frozen=True)
class IID:
    """Samples are shuffled and dealt evenly."""

    def partition(self, labels: Labels, clients: int | None, rng: np.random.Generator) -> list[Indices]:
        """Return the samples of each client."""
        clients = _enough(labels, clients)
        return list(np.array_split(rng.permutation(labels.size), clients))


@dataclass(frozen=True, eq=False)
class ByWriter:
    """Each writer (or owner) of samples is a client. With fewer clients than writers, some are drawn."""

    writers: ArrayLike

    def partition(self, labels: Labels, clients: int | None, rng: np.random.Generator) -> list[Indices]:
        """Return the samples of each client."""
        names, owners = np.unique(np.asarray(self.writers), return_inverse=True)
        if owners.shape != labels.shape:
            raise DataError(f"there are {owners.size} writers' names for {labels.size} samples")
        dealt = _by_owner(owners.astype(np.int64), names.size)
        if clients is None or clients == names.size:
            return dealt
        if not 1 <= clients <= names.size:
            raise DataError(
                f"{clients} clients are asked for, but there are {names.size} writers: "
                f"ask for 1 to {names.size}, or name no number to take them all"
            )
        drawn = np.sort(rng.choice(names.size, clients, replace=False))
        return [dealt[writer] for writer in drawn]


def _enough(labels: Labels, clients: int | None, per_client: int = 1) -> int:
    if clients is None:
        raise DataError("the number of clients is missing")
    if clients < 1:
        raise DataError(f"{clients} clients are asked for: there must be at least one")
    if clients * per_client > labels.size:
        raise DataError(
            f"{clients} clients are asked for, but there are only {labels.size} samples: "
            f"ask for at most {labels.size // per_client} clients"
        )
    return clients


def _by_owner(owners: Indices, clients: int) -> list[Indices]:
    order = np.argsort(owners, kind="stable")
    ends = np.cumsum(np.bincount(owners, minlength=clients))
    return np.split(order, ends[:-1])
