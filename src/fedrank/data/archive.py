"""Data of one's own in a NumPy archive (`np.savez`)."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrank.data.arrays import Inputs, Labels, as_pair
from fedrank.errors import DataError
from fedrank.parameters import did_you_mean

Pair = tuple[Inputs, Labels]
NEEDED = ("inputs", "labels")
TEST = ("test_inputs", "test_labels")
OWNER = "clients"


@dataclass(frozen=True)
class Archive:
    """The samples of all clients, or of each client by name; a global test set; or one of both."""

    samples: Pair | dict[str, Pair] | None
    test: Pair | None


def read_archive(path: Path) -> Archive:
    """Read `inputs` and `labels`, and if there are any, `clients`, `test_inputs` and `test_labels`.

    `clients` says whose each sample is, by a string or an integer. An archive may also have a test set alone.
    Nothing is unpickled.
    """
    arrays = _arrays(path)
    test = None
    if "test_inputs" in arrays:
        test = as_pair(arrays["test_inputs"], arrays["test_labels"], "test: ")
    if "inputs" not in arrays:
        return Archive(None, test)
    inputs, labels = as_pair(arrays["inputs"], arrays["labels"])
    if OWNER not in arrays:
        return Archive((inputs, labels), test)
    return Archive(_by_owner(arrays[OWNER], inputs, labels), test)


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    known = (*NEEDED, OWNER, *TEST)
    try:
        if path.exists() and not zipfile.is_zipfile(path):
            raise DataError("it is not a NumPy archive; np.savez writes one")
        with np.load(path, allow_pickle=False) as archive:
            for name in archive.files:
                if name not in known:
                    raise DataError(f"unknown array {name!r}{did_you_mean(name, known)}")
            arrays = {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise DataError(f"no such file in the current directory ({Path.cwd()})") from None
    except DataError:
        raise
    except Exception as error:  # reading a damaged archive can raise any exception
        hint = ""
        if "pickle" in str(error):
            hint = "; fedrank reads no pickled objects: convert them, for example with .astype(str)"
        raise DataError(f"cannot be read as a NumPy archive ({error}){hint}") from error
    tested = bool(arrays.keys() & {*TEST})
    needed = NEEDED if not tested or arrays.keys() - {*TEST} else ()
    for name in (*needed, *(TEST if tested else ())):
        if name not in arrays:
            raise DataError(f"there is no array {name!r}, only {', '.join(map(repr, arrays)) or 'nothing'}")
    return arrays


def _by_owner(owners: NDArray[Any], inputs: Inputs, labels: Labels) -> dict[str, Pair]:
    """Return the samples of each client, in the order of their names or numbers."""
    if owners.shape != labels.shape or owners.dtype.kind not in "iuU":
        raise DataError(
            f"{OWNER!r} must be one string or integer for each of {labels.size} samples, "
            f"got {owners.dtype} of shape {owners.shape}"
        )
    values, owner = np.unique(owners, return_inverse=True)
    order = np.argsort(owner, kind="stable")
    ends = np.cumsum(np.bincount(owner, minlength=values.size))[:-1]
    parts = zip(np.split(inputs[order], ends), np.split(labels[order], ends), strict=True)
    names = [f"client-{value}" if str(value).isdecimal() else str(value) for value in values]
    return dict(zip(names, parts, strict=True))
