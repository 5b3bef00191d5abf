"""`fedrank.federation`: clients that already are clients, each with data of its own."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedrank.data.arrays import Indices, Inputs, Labels
from fedrank.data.federation import (
    Client,
    Dataset,
    Federation,
    Preprocessing,
    check_names,
    check_options,
    hold_out,
    preprocessed,
    unprocessed,
)
from fedrank.data.reading import Columns, check_column, check_undivided, is_hugging_face, listed, read
from fedrank.errors import DataError
from fedrank.parameters import did_you_mean


@dataclass(frozen=True, eq=False)
class Part:
    """Samples that belong together, and whose they are."""

    whose: str
    inputs: Inputs
    labels: Labels


def federation(
    clients: Any,
    *,
    test: Any = None,
    test_share: float = 0.2,
    seed: int = 0,
    preprocess: Preprocessing = "standardize",
    client: str | None = None,
    inputs: str | Sequence[str] | None = None,
    labels: str | None = None,
) -> Federation:
    """Return the federation of clients that each have data of their own.

    The data of a client is a tuple `(inputs, labels)`, a PyTorch `Dataset`, a Hugging Face
    `datasets.Dataset`, or a function without arguments that returns one of these. Functions are called when
    the federation is built, one after the other.

    Parameters
    ----------
    clients : a dict of names and data, a list of data, or one Hugging Face data set with a column `client`.
    test : a dict (or list) of the clients' own test data, or one global test set. Clients without test data
        of their own hold out `test_share` of their samples.
    test_share : share of its samples that a client holds out for testing; may be 0 with a global test set.
    seed : determines which samples are held out.
    preprocess : "standardize" gives the training data mean 0 and deviation 1 by channel or column; None only
        divides uint8 by 255; a `Preprocess` has values of your own.
    client : column of a Hugging Face data set that says whose a sample is.
    inputs : column of a Hugging Face data set, or several columns of a table.
    labels : column of a Hugging Face data set.

    >>> federation({"north": ([[0.0], [2.0]], [0, 1]), "south": ([[4.0]], [1])}, test_share=0.5)
    Federation(2 clients, 2 training and 1 test samples of shape (1,), 2 classes)
    """
    check_options(seed, test_share, preprocess)
    columns = Columns(inputs, labels)
    if (inputs or labels) and not _has_columns([clients, test]):
        raise DataError("inputs=... and labels=... name columns, but no data set here is one of Hugging Face")
    if client is None:
        names, parts = _listed_clients(clients, columns)
    else:
        names, parts = _clients_in_column(clients, client, columns)
    own_tests, shared = _test_parts(test, names, parts, columns)
    dataset, shares = _joined([*parts, *own_tests.values(), *([shared] if shared else [])])
    tests = dict(zip(own_tests, shares[len(parts) :], strict=False))
    members = tuple(
        Client(share, tests[number]) if number in tests else hold_out(share, number, seed, test_share)
        for number, share in enumerate(shares[: len(parts)])
    )
    tested = shares[-1] if shared else np.sort(np.concatenate([member.test for member in members]))
    return preprocessed(Federation(dataset, members, tested, names=names), preprocess)


def _has_columns(given: Iterable[Any]) -> bool:
    """Return whether some data has columns, or may have: what a function returns is not known yet."""
    for data in given:
        if isinstance(data, Mapping | list):
            if _has_columns(data.values() if isinstance(data, Mapping) else data):
                return True
        elif is_hugging_face(data) or callable(data):
            return True
    return False


def _listed_clients(clients: Any, columns: Columns) -> tuple[tuple[str, ...], list[Part]]:
    """Return the names, if any, and the data of clients that were given one by one."""
    check_undivided(clients, "clients: ")
    if is_hugging_face(clients):
        raise DataError(
            "name the column that says whose a sample is with client=...; there are " + listed(clients)
        )
    if isinstance(clients, Mapping):
        names, data = tuple(clients), list(clients.values())
        check_names(names)
    elif isinstance(clients, list | tuple | Iterator):
        names, data = (), list(clients)
    else:
        raise DataError(
            f"clients must be a dict of names and data, or a list of data, got {type(clients).__name__}"
        )
    if not data:
        raise DataError("there are no clients")
    owners = names or range(len(data))
    return names, [_part(each, columns, f"client {owner}") for owner, each in zip(owners, data, strict=True)]


def _clients_in_column(dataset: Any, column: str, columns: Columns) -> tuple[tuple[str, ...], list[Part]]:
    """Return the names and the data of the clients that a column names, in order of appearance."""
    check_undivided(dataset, "clients: ")
    if not is_hugging_face(dataset):
        raise DataError(
            f"client={column!r} names a column of one Hugging Face data set, got {type(dataset).__name__}"
        )
    check_column(dataset, column, "")
    owners = list(_owners(dataset, column))
    if not owners:
        raise DataError("there are no clients")
    names = tuple(dict.fromkeys(owners))
    check_names(names)
    numbers = {name: number for number, name in enumerate(names)}
    inputs, labels = read(dataset, columns, "")
    order = np.argsort([numbers[owner] for owner in owners], kind="stable")
    ends = np.cumsum(np.bincount([numbers[owner] for owner in owners], minlength=len(names)))
    inputs, labels = inputs[order], labels[order]
    parts = zip(names, np.split(inputs, ends[:-1]), np.split(labels, ends[:-1]), strict=True)
    return names, [Part(f"client {name}", some, theirs) for name, some, theirs in parts]


def _owners(dataset: Any, column: str) -> Iterator[str]:
    """Yield the name of each sample's client. A number needs more than itself to be a name."""
    for number, owner in enumerate(dataset[column]):
        if isinstance(owner, str):
            yield f"{column}-{owner}" if owner.isdecimal() else owner
            continue
        try:
            yield f"{column}-{operator.index(owner)}"
        except TypeError:
            raise DataError(
                f"column {column!r} must contain strings or integers, got {owner!r} for sample {number}"
            ) from None


def _test_parts(
    test: Any, names: Sequence[str], parts: Sequence[Part], columns: Columns
) -> tuple[dict[int, Part], Part | None]:
    """Return the clients' own test data by client number, or the global test set."""
    if test is None:
        return {}, None
    check_undivided(test, "test: ")
    if isinstance(test, Mapping):
        for name in test:
            if name not in names:
                hint = did_you_mean(str(name), names) if names else ": the clients have no names; pass a list"
                raise DataError(f"test: unknown client {name!r}{hint}")
        given = {names.index(name): data for name, data in test.items()}
    elif isinstance(test, list):
        if names or len(test) != len(parts):
            raise DataError(
                "test must be a tuple (inputs, labels) or another data set for all, a dict of the clients' "
                f"names, or a list with one item for each of {len(parts)} numbered clients"
            )
        given = {number: data for number, data in enumerate(test) if data is not None}
    else:
        return {}, _part(test, columns, "the global test set")
    return {
        number: _part(data, columns, f"the test data of {parts[number].whose}")
        for number, data in sorted(given.items(), key=operator.itemgetter(0))
    }, None


def _part(data: Any, columns: Columns, whose: str) -> Part:
    return Part(whose, *read(data, columns, f"{whose}: "))


def _joined(parts: Sequence[Part]) -> tuple[Dataset, list[Indices]]:
    """Return all samples in one data set, and which of them are those of each part."""
    filled = [part for part in parts if part.labels.size]
    if not filled:
        raise DataError("the data set is empty")
    first = filled[0]
    for part in filled:
        shapes = part.inputs.shape[1:], first.inputs.shape[1:]
        if shapes[0] != shapes[1]:
            raise DataError(
                f"samples of {part.whose} have shape {shapes[0]}, but those of {first.whose} {shapes[1]}"
            )
        types = part.inputs.dtype, first.inputs.dtype
        if types[0] != types[1] and np.uint8 in types:  # which may mean 0 to 255 here and 0 to 1 there
            raise DataError(
                f"samples of {part.whose} have type {types[0]}, but those of {first.whose} {types[1]}; "
                "convert them to one type, on one scale"
            )
    inputs = np.concatenate([part.inputs for part in filled])
    labels = np.concatenate([part.labels for part in parts])
    ends = np.cumsum([part.labels.size for part in parts])
    return unprocessed(inputs, labels), np.split(np.arange(ends[-1]), ends[:-1])
