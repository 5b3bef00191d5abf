"""A federation: the data of all clients in one array, and the samples of each client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedrank.arguments import check_number, whole_number
from fedrank.data import description
from fedrank.data.arrays import Indices, Inputs, Labels, as_pair, check_lengths
from fedrank.data.partitions import Partition, Shards
from fedrank.data.preprocess import Preprocess
from fedrank.errors import DataError
from fedrank.parameters import did_you_mean
from fedrank.randomness import Purpose, keyed_generator

Preprocessing = Preprocess | Literal["standardize"] | None
"""Values of one's own, the training data's mean and deviation, or nothing but uint8 divided by 255."""


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Labeled samples as stored. Images are uint8, channels first."""

    inputs: Inputs
    labels: Labels
    classes: int
    preprocess: Preprocess

    def __post_init__(self) -> None:
        check_lengths(self.inputs, self.labels)
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

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return description.of_dataset(self)


@dataclass(frozen=True, eq=False, repr=False)
class Samples:
    """Some samples of a data set, to iterate over in batches."""

    inputs: Inputs
    labels: Labels
    preprocess: Preprocess

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return description.of_samples(self)

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

    Inputs of type uint8 are divided by 255 unless `preprocess` says otherwise. All clients need the same
    `preprocess`, so no client computes it from its own samples.

    >>> samples([[1.0], [3.0]], [0, 1], Preprocess(mean=2.0))
    Samples(2 samples of shape (1,) and type float64)
    """
    inputs, labels = as_pair(inputs, labels)
    if not (preprocess is None or isinstance(preprocess, Preprocess)):
        raise DataError(f"preprocess must be a Preprocess that all clients share, got {preprocess!r}")
    preprocess = preprocess or Preprocess.default_for(inputs)
    preprocess.check_fits(inputs)
    return Samples(inputs, labels, preprocess)


@dataclass(frozen=True, eq=False, repr=False)
class Client:
    """One client's share: the indices of its training and test samples."""

    train: Indices
    test: Indices

    def __repr__(self) -> str:
        return f"Client({self.train.size:,} training and {self.test.size:,} test samples)"


@dataclass(frozen=True, eq=False, repr=False)
class Federation:
    """The data of all clients, and the global test set.

    `test` is used for global accuracy: the official test set if there is one, otherwise all clients' test
    samples. `probe` holds test samples with a backdoor trigger, labeled with the attacker's target class.
    `names` are the clients' names; without them, clients are known by number. Iterating yields the clients;
    `clients["ward-3"]` is one of them, and `"ward-3" in clients` says whether there is one of that name.
    """

    dataset: Dataset
    clients: tuple[Client, ...]
    test: Indices
    probe: Indices | None = None
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.names and len(self.names) != len(self.clients):
            raise DataError(f"got {len(self.names)} names for {len(self.clients)} clients")
        check_names(self.names)

    def __len__(self) -> int:
        return len(self.clients)

    def __iter__(self) -> Iterator[Client]:
        return iter(self.clients)

    def __getitem__(self, client: int | str) -> Client:
        return self.clients[self.number_of(client)]

    def __contains__(self, client: object) -> bool:
        if isinstance(client, str):
            return client in self.names
        return client in self.clients

    def __repr__(self) -> str:
        return description.of_federation(self)

    def _repr_html_(self) -> str:
        return description.as_html(self)

    @property
    def voters(self) -> NDArray[np.int64]:
        """The clients that have training data. The others never vote."""
        return np.flatnonzero([client.train.size > 0 for client in self.clients])

    @property
    def idle(self) -> frozenset[int]:
        """The clients without training data."""
        return frozenset(range(len(self.clients))) - frozenset(self.voters.tolist())

    def name_of(self, client: int) -> int | str:
        """Return what people call a client: its name, or its number if clients have no names."""
        return self.names[client] if self.names else client

    def number_of(self, client: int | str) -> int:
        """Return the number of a client given by name or number."""
        if isinstance(client, str):
            if client in self.names:
                return self.names.index(client)
            if self.names:
                raise DataError(f"unknown client {client!r}{did_you_mean(client, self.names)}")
            raise DataError(f"unknown client {client!r}: the clients have no names, only numbers from 0")
        number = whole_number("a client's number", client, error=DataError)
        if number >= len(self.clients):
            raise DataError(f"unknown client {number}: clients are numbered 0 to {len(self.clients) - 1}")
        return number

    def train_samples(self, client: int | str) -> Samples:
        """Return a client's training samples."""
        return self.dataset.select(self.clients[self.number_of(client)].train)

    def test_samples(self, client: int | str) -> Samples:
        """Return a client's test samples."""
        return self.dataset.select(self.clients[self.number_of(client)].test)


def check_federation(clients: object) -> None:
    """Raise DataError for clients that have not been made a federation."""
    if not isinstance(clients, Federation):
        raise DataError(
            f"expected a federation of clients, got {type(clients).__name__}: make one with "
            "fedrank.federation(...) or fedrank.split(...)"
        )


def check_names(names: Sequence[Any]) -> None:
    """Raise DataError unless all clients have different names that are no numbers."""
    for name in names:
        if not isinstance(name, str):
            raise DataError(f"a client's name must be a string, got {name!r}; pass a list to number clients")
        if name.isdecimal():
            raise DataError(
                f"{name!r} cannot be a client's name, because plain numbers are positions; "
                f"use a name such as 'client-{name}'"
            )
        if not name.strip() or not name.isprintable():
            raise DataError(f"{name!r} cannot be a client's name: a name must be printable and not blank")
    if len(set(names)) < len(names):
        twice = next(name for position, name in enumerate(names) if name in names[:position])
        raise DataError(f"two clients are called {twice!r}")


def split(
    inputs: Any,
    labels: Any,
    *,
    by: Partition,
    clients: int | None = None,
    seed: int,
    test: tuple[Any, Any] | None = None,
    test_share: float = 0.2,
    preprocess: Preprocessing = "standardize",
) -> Federation:
    """Partition arrays of inputs and labels among clients.

    Parameters
    ----------
    inputs : an array of any shape (samples, ...).
    labels : integers from 0.
    by : `Dirichlet(beta)`, `Shards()`, `IID()` or `ByWriter(writers)`.
    clients : number of clients; may be omitted for `ByWriter`, which then uses every writer.
    seed : the same seed gives the same partition.
    test : inputs and labels of a global test set; by default, all clients' test samples.
    test_share : share of its samples that each client holds out for testing.
    preprocess : "standardize" gives the training data mean 0 and deviation 1 by channel or column; None only
        divides uint8 by 255; a `Preprocess` has values of your own.

    >>> split([[0.0], [2.0], [4.0], [6.0]], [0, 1, 0, 1], by=Shards(1), clients=2, seed=1)
    Federation(2 clients, 4 training and 0 test samples of shape (1,), 2 classes)
    """
    check_options(seed, test_share, preprocess)
    if isinstance(by, str | type) or not hasattr(by, "partition"):
        raise DataError(f"by must be a partition such as IID() or Dirichlet(1.0), got {by!r}")
    if labels is None:
        raise DataError(
            "labels must be an array, got None; for a PyTorch or Hugging Face data set, pass arrays of its "
            "inputs and labels"
        )
    inputs, labels = as_pair(inputs, labels)
    train_count = len(labels)
    if test is not None:
        if not isinstance(test, tuple | list) or len(test) != 2:
            raise DataError("test must be a pair (inputs, labels)")
        test_inputs, test_labels = as_pair(*test, "test: ")
        kinds = [(part.shape[1:], part.dtype) for part in (inputs, test_inputs)]
        if kinds[0] != kinds[1]:
            raise DataError(
                f"training samples have shape {kinds[0][0]} and type {kinds[0][1]}, "
                f"but test samples have shape {kinds[1][0]} and type {kinds[1][1]}"
            )
        inputs = np.concatenate([inputs, test_inputs])
        labels = np.concatenate([labels, test_labels])
    dataset = unprocessed(inputs, labels)
    dealt = partition(dataset, train_count, by=by, clients=clients, seed=seed, test_share=test_share)
    return preprocessed(dealt, preprocess)


def check_options(seed: Any, test_share: Any, preprocess: Any) -> None:
    """Raise DataError for values that `split` and `federation` cannot use."""
    whole_number("seed", seed, error=DataError)
    check_number("test_share", test_share, least=0, below=1, error=DataError)
    if not (preprocess is None or isinstance(preprocess, Preprocess) or _standardizes(preprocess)):
        raise DataError(f"preprocess must be 'standardize', None or a Preprocess, got {preprocess!r}")


def _standardizes(preprocess: Any) -> bool:
    return isinstance(preprocess, str) and preprocess == "standardize"


def unprocessed(inputs: Inputs, labels: Labels) -> Dataset:
    """Return samples of as many classes as the labels say; uint8 is divided by 255."""
    classes = int(labels.max()) + 1 if labels.size else 1
    return Dataset(inputs, labels, classes, Preprocess.default_for(inputs))


def preprocessed(federation: Federation, preprocess: Preprocessing) -> Federation:
    """Return the federation with this preprocessing; "standardize" takes the training data's statistics."""
    dataset = federation.dataset
    if preprocess is None:
        return federation
    if isinstance(preprocess, str):
        train = np.sort(np.concatenate([client.train for client in federation.clients]))
        preprocess = Preprocess.fitted(dataset.inputs, train)
    preprocess.check_fits(dataset.inputs)
    return replace(federation, dataset=replace(dataset, preprocess=preprocess))


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
    assigned = tuple(hold_out(share, number, seed, test_share) for number, share in enumerate(shares))
    if count < len(dataset.labels):
        test = np.arange(count, len(dataset.labels))
    else:
        test = np.sort(np.concatenate([client.test for client in assigned]))
    return Federation(dataset, assigned, test)


def hold_out(share: Indices, number: int, seed: int, test_share: float) -> Client:
    """Return the client with this number, which holds out a part of its share for testing."""
    shuffled = keyed_generator(seed, Purpose.HOLD_OUT, number).permutation(share)
    held_out = round(test_share * share.size)
    return Client(train=shuffled[held_out:], test=shuffled[:held_out])


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
