"""A federation: the data of all clients in one array, and the samples of each client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrank.data.partitions import Indices, Labels, Partition, Shards
from fedrank.data.preprocess import Inputs, Preprocess
from fedrank.errors import DataError
from fedrank.randomness import Purpose, keyed_generator


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labeled samples as stored. Images are uint8, channels first."""

    inputs: Inputs
    labels: Labels
    classes: int
    preprocess: Preprocess

    def __post_init__(self) -> None:
        _check_lengths(self.inputs, self.labels)
        if len(self.labels) == 0:
            raise DataError("the data set is empty")
        lowest, highest = int(self.labels.min()), int(self.labels.max())
        if lowest < 0 or highest >= self.classes:
            raise DataError(
                f"expected labels from 0 to {self.classes - 1} for {self.classes} classes, "
                f"got labels from {lowest} to {highest}"
            )

    def select(self, indices: Indices) -> Samples:
        """Return the samples at these indices."""
        return Samples(self.inputs[indices], self.labels[indices], self.preprocess)


@dataclass(frozen=True, eq=False)
class Samples:
    """Some samples of a data set, to iterate over in batches."""

    inputs: Inputs
    labels: Labels
    preprocess: Preprocess

    def __len__(self) -> int:
        return len(self.labels)

    def batches(
        self, batch_size: int, rng: np.random.Generator
    ) -> Iterator[tuple[NDArray[np.float32], Labels]]:
        """Yield training batches in random order, augmented if the data set asks for it."""
        order = rng.permutation(len(self))
        for begin in range(0, len(self), batch_size):
            chosen = order[begin : begin + batch_size]
            augmented = self.preprocess.augment(self.inputs[chosen], rng)
            yield self.preprocess(augmented), self.labels[chosen]

    def some(self, numbers: Indices) -> Samples:
        """Return the samples with these numbers."""
        return Samples(self.inputs[numbers], self.labels[numbers], self.preprocess)

    def parts(self, size: int) -> Iterator[Samples]:
        """Yield the samples in order, `size` at a time."""
        for begin in range(0, len(self), size):
            some = slice(begin, begin + size)
            yield Samples(self.inputs[some], self.labels[some], self.preprocess)


def samples(inputs: Any, labels: Any, preprocess: Preprocess | None = None) -> Samples:
    """Wrap arrays of inputs and labels as one client's samples.

    Inputs of type uint8 are divided by 255 unless `preprocess` says otherwise.
    """
    inputs, labels = np.asarray(inputs), _as_labels(labels)
    _check_lengths(inputs, labels)
    return Samples(inputs, labels, preprocess or Preprocess.default_for(inputs))


@dataclass(frozen=True, eq=False)
class Client:
    """One client's share: the indices of its training and test samples."""

    train: Indices
    test: Indices


@dataclass(frozen=True, eq=False)
class Federation:
    """The data of all clients, and the global test set.

    `test` is used for global accuracy: the official test set if there is one, otherwise all clients' test
    samples. `probe` holds test samples with a backdoor trigger, labeled with the attacker's target class.
    """

    dataset: Dataset
    clients: tuple[Client, ...]
    test: Indices
    probe: Indices | None = None

    @property
    def voters(self) -> NDArray[np.int64]:
        """The clients that have training data. The others never vote."""
        return np.flatnonzero([client.train.size > 0 for client in self.clients])

    @property
    def idle(self) -> frozenset[int]:
        """The clients without training data."""
        return frozenset(range(len(self.clients))) - frozenset(self.voters.tolist())

    def train_samples(self, client: int) -> Samples:
        """Return a client's training samples."""
        return self.dataset.select(self.clients[client].train)

    def test_samples(self, client: int) -> Samples:
        """Return a client's test samples."""
        return self.dataset.select(self.clients[client].test)


def split(
    inputs: Any,
    labels: Any,
    *,
    by: Partition,
    clients: int | None = None,
    seed: int,
    test: tuple[Any, Any] | None = None,
    test_share: float = 0.2,
    preprocess: Preprocess | None = None,
) -> Federation:
    """Partition arrays of inputs and labels among clients.

    Parameters
    ----------
    inputs : an array of any shape (samples, ...). uint8 is divided by 255 unless `preprocess` says otherwise.
    labels : integers from 0.
    by : `Dirichlet(beta)`, `Shards()`, `IID()` or `ByWriter(writers)`.
    clients : number of clients; may be omitted for `ByWriter`, which then uses every writer.
    seed : the same seed gives the same partition.
    test : inputs and labels of a global test set; by default, all clients' test samples.
    test_share : share of its samples that each client holds out for testing.
    preprocess : converts stored inputs to network inputs.
    """
    inputs, labels = np.asarray(inputs), _as_labels(labels)
    train_count = len(labels)
    _check_lengths(inputs, labels)
    if test is not None:
        test_inputs, test_labels = np.asarray(test[0]), _as_labels(test[1])
        _check_lengths(test_inputs, test_labels)
        kinds = [(part.shape[1:], part.dtype) for part in (inputs, test_inputs)]
        if kinds[0] != kinds[1]:
            raise DataError(
                f"training samples have shape {kinds[0][0]} and type {kinds[0][1]}, "
                f"but test samples have shape {kinds[1][0]} and type {kinds[1][1]}"
            )
        inputs = np.concatenate([inputs, test_inputs])
        labels = np.concatenate([labels, test_labels])
    classes = int(labels.max()) + 1 if labels.size else 1
    dataset = Dataset(inputs, labels, classes, preprocess or Preprocess.default_for(inputs))
    return partition(dataset, train_count, by=by, clients=clients, seed=seed, test_share=test_share)


def partition(
    dataset: Dataset,
    count: int,
    *,
    by: Partition,
    clients: int | None,
    seed: int,
    test_share: float = 0.2,
) -> Federation:
    """Partition the first `count` samples of a data set among clients; the rest is the global test set.

    Each client holds out `test_share` of its samples for testing, unless it gets shards of the test set.
    """
    rng = keyed_generator(seed, Purpose.PARTITION)
    if isinstance(by, Shards) and by.test:
        if count == len(dataset.labels):
            raise DataError("Shards(test=True) needs a global test set, but there is none; pass test=...")
        both = by.partition_both(dataset.labels[:count], dataset.labels[count:], clients, rng)
        assigned = tuple(Client(train, count + test) for train, test in zip(*both, strict=True))
        return Federation(dataset, assigned, np.arange(count, len(dataset.labels)))
    shares = by.partition(dataset.labels[:count], clients, rng)
    clients_shares = []
    for number, share in enumerate(shares):
        shuffled = keyed_generator(seed, Purpose.HOLD_OUT, number).permutation(share)
        held_out = round(test_share * share.size)
        clients_shares.append(Client(train=shuffled[held_out:], test=shuffled[:held_out]))
    if count < len(dataset.labels):
        test = np.arange(count, len(dataset.labels))
    else:
        test = np.sort(np.concatenate([client.test for client in clients_shares]))
    return Federation(dataset, tuple(clients_shares), test)


def with_inputs(federation: Federation, inputs: Inputs) -> Federation:
    """Return the federation with another copy of its inputs, such as memory shared between workers."""
    return replace(federation, dataset=replace(federation.dataset, inputs=inputs))


def with_labels(federation: Federation, labels: Labels) -> Federation:
    """Return the federation with other labels."""
    return replace(federation, dataset=replace(federation.dataset, labels=labels))


def with_probe(federation: Federation, inputs: Inputs, label: int) -> Federation:
    """Return the federation with extra samples that measure a backdoor."""
    dataset = federation.dataset
    count = len(dataset.labels)
    longer = replace(
        dataset,
        inputs=np.concatenate([dataset.inputs, inputs]),
        labels=np.concatenate([dataset.labels, np.full(len(inputs), label)]),
    )
    return replace(federation, dataset=longer, probe=np.arange(count, count + len(inputs)))


def _check_lengths(inputs: Inputs, labels: Labels) -> None:
    if inputs.ndim == 0 or len(inputs) != len(labels):
        raise DataError(f"got {len(inputs) if inputs.ndim else 'no'} inputs but {len(labels)} labels")


def _as_labels(labels: Any) -> Labels:
    array = np.asarray(labels)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise DataError(f"expected one integer label per sample, got {array.dtype} of shape {array.shape}")
    return array.astype(np.int64)
