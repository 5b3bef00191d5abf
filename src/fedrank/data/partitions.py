"""Partitions: which client gets which samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from fedrank.arguments import is_number, whole_number
from fedrank.data.arrays import Indices, Labels
from fedrank.errors import DataError


class Partition(Protocol):
    """Assigns every sample to exactly one client."""

    def partition(self, labels: Labels, clients: int | None, rng: np.random.Generator) -> list[Indices]:
        """Return the samples of each client."""
        ...


@dataclass(frozen=True)
class Dirichlet:
    """Splits every class among the clients in proportions drawn from Dirichlet(beta).

    Source: Hsu et al. (2019), Reddi et al. (2020). A small beta gives clients few classes; a large
    one approaches iid.
    """

    beta: float = 1.0

    def __post_init__(self) -> None:
        if not is_number(self.beta) or not 0 < self.beta < 1e6:
            raise DataError(
                f"beta must be between 0 and 1e6, got {self.beta!r}; use IID() for the limit of large beta"
            )

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
    """Sorts samples by class, cuts them into equal shards and gives each client `per_client` of them.

    Source: McMahan et al. (2017). With two shards, most clients have at most two classes.

    Parameters
    ----------
    per_client : shards per client.
    test : cut the global test set into as many shards and assign them together with the training shards,
        so that clients train on all their training samples and are tested on the same classes.
    """

    per_client: int = 2
    test: bool = False

    def __post_init__(self) -> None:
        whole_number("per_client", self.per_client, least=1, error=DataError)

    def partition(self, labels: Labels, clients: int | None, rng: np.random.Generator) -> list[Indices]:
        """Return the samples of each client."""
        shards, assigned = self._cut(labels, clients, rng), self._assigned(clients, rng)
        return [np.concatenate([shards[shard] for shard in share]) for share in assigned]

    def partition_both(
        self, labels: Labels, test_labels: Labels, clients: int | None, rng: np.random.Generator
    ) -> tuple[list[Indices], list[Indices]]:
        """Return each client's training and test samples, from corresponding shards."""
        both = self._cut(labels, clients, rng), self._cut(test_labels, clients, rng)
        assigned = self._assigned(clients, rng)
        train, test = ([np.concatenate([shards[s] for s in share]) for share in assigned] for shards in both)
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
    """Shuffles the samples and splits them evenly."""

    def partition(self, labels: Labels, clients: int | None, rng: np.random.Generator) -> list[Indices]:
        """Return the samples of each client."""
        clients = _enough(labels, clients)
        return list(np.array_split(rng.permutation(labels.size), clients))


@dataclass(frozen=True, eq=False)
class ByWriter:
    """Makes each writer (or owner) of samples a client. With fewer clients, draws writers at random."""

    writers: ArrayLike

    def partition(self, labels: Labels, clients: int | None, rng: np.random.Generator) -> list[Indices]:
        """Return the samples of each client."""
        names, owners = np.unique(np.asarray(self.writers), return_inverse=True)
        if owners.shape != labels.shape:
            raise DataError(
                f"expected one writer per sample, got {owners.size} writers for {labels.size} samples"
            )
        shares = _by_owner(owners.astype(np.int64), names.size)
        if clients is None or clients == names.size:
            return shares
        if not 1 <= whole_number("clients", clients, error=DataError) <= names.size:
            raise DataError(
                f"clients must be between 1 and {names.size}, the number of writers, got {clients}; "
                "omit it to use all writers"
            )
        drawn = np.sort(rng.choice(names.size, clients, replace=False))
        return [shares[writer] for writer in drawn]


def _enough(labels: Labels, clients: int | None, per_client: int = 1) -> int:
    if clients is None:
        raise DataError("this partition needs the number of clients")
    clients = whole_number("clients", clients, least=1, error=DataError)
    if clients * per_client > labels.size:
        raise DataError(
            f"clients is {clients}, but there are only {labels.size} samples: "
            f"use at most {labels.size // per_client} clients"
        )
    return clients


def _by_owner(owners: Indices, clients: int) -> list[Indices]:
    order = np.argsort(owners, kind="stable")
    ends = np.cumsum(np.bincount(owners, minlength=clients))
    return np.split(order, ends[:-1])
