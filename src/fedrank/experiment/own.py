"""A model and data of the user's own, as a configuration names them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedrank.data import Federation, Inputs, Partition, Preprocess, split
from fedrank.data.archive import read_archive
from fedrank.data.federation import Preprocessing
from fedrank.data.own import federation
from fedrank.errors import ConfigError, DataError, FedrankError, ModelError
from fedrank.experiment.sections import ARCHIVE, DataSection, preprocess_of
from fedrank.importing import imported


@contextlib.contextmanager
def part_named(part: str, name: str) -> Iterator[None]:
    """Say of an error which part of the configuration it is about."""
    try:
        yield
    except FedrankError as error:
        raise ConfigError(f"{part}.name = {name!r}: {error}") from error


def own_module(path: str, seed: int) -> nn.Module:
    """Return the module with an import path, or that its class or function returns.

    Its initial weights, which only methods that train weights use, follow from the seed.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        found = imported(path)
        torch.manual_seed(seed)  # the first import may have drawn numbers
        module = found if isinstance(found, nn.Module) else _called(found, path, "a torch module")
    if not isinstance(module, nn.Module):
        raise ModelError(
            f"{path} is neither a torch module nor a function that returns one (got {type(module).__name__})"
        )
    return module


def own_federation(data: DataSection, seed: int, by: Callable[[], Partition]) -> Federation:
    """Return the federation of data of the user's own, partitioned unless it is divided among clients."""
    with part_named("data", data.name):
        found, test = _found(data.name)
        if isinstance(found, Federation):
            _check_divided(data, len(found))
            if data.preprocess is not None:
                raise DataError("it is a federation with its own preprocessing; leave out data.preprocess")
            return found
        preprocess = _preprocessing(data)
        if isinstance(found, dict | list):
            _check_divided(data, len(found))
            return federation(found, test=test, test_share=data.test_share, seed=seed, preprocess=preprocess)
        if not (isinstance(found, tuple) and len(found) == 2):
            raise DataError(
                "expected a federation, a dict or list of clients, or a pair (inputs, labels), "
                f"got {type(found).__name__}"
            )
        if data.partition is None:
            raise DataError(
                "its samples are not divided among clients yet: set data.clients, and optionally "
                "data.partition (dirichlet, shards or iid)"
            )
        return split(
            *found,
            by=by(),
            clients=data.clients,
            seed=seed,
            test=test,
            test_share=data.test_share,
            preprocess=preprocess,
        )


def _found(name: str) -> tuple[Any, Any]:
    """Return what a name stands for, and the global test set of an archive."""
    if name.endswith(ARCHIVE):
        archive = read_archive(Path(name))
        if archive.samples is None:
            raise DataError("it has a test set only; clients need 'inputs' and 'labels', too")
        return archive.samples, archive.test
    found = imported(name)
    return _called(found, name, "data") if callable(found) else found, None


def _called(found: Any, path: str, wanted: str) -> Any:
    if not callable(found):
        raise ModelError(f"{path} is {type(found).__name__}, but {wanted} or what returns it was expected")
    try:
        return found()
    except FedrankError:
        raise
    except Exception as error:  # the user's own code can raise any exception
        raise ModelError(
            f"{path} failed, called without arguments ({type(error).__name__}: {error})"
        ) from error


def _check_divided(data: DataSection, clients: int) -> None:
    if data.partition is not None:
        raise DataError(
            f"it is divided among {clients} clients already; leave out data.partition and data.clients"
        )


def shared_preprocess(data: DataSection, inputs: Inputs) -> Preprocess:
    """Return the preprocessing of clients that do not see each other's data: what the settings say."""
    if isinstance(data.preprocess, dict):
        return preprocess_of(data.preprocess)
    if data.preprocess == "none":
        return Preprocess.default_for(inputs)
    raise ConfigError(
        "data.preprocess must say what all clients do to their inputs, who cannot compute it from data of "
        "others: values such as {mean = [0.3], std = [0.4]}, or none"
    )


def _preprocessing(data: DataSection) -> Preprocessing:
    match data.preprocess:
        case None | "standardize":
            return "standardize"
        case dict():
            return preprocess_of(data.preprocess)
        case _:
            return None
