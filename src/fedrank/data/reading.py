"""Reads one client's data from what users have: arrays, PyTorch or Hugging Face data sets, functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedrank.arguments import kind_of
from fedrank.data.arrays import Inputs, Labels, as_inputs, as_labels, as_pair
from fedrank.errors import DataError
from fedrank.parameters import did_you_mean

FORMS = (
    "expected a tuple (inputs, labels), a PyTorch Dataset, a Hugging Face Dataset, "
    "or a function without arguments that returns one of these"
)
PLAIN_MODES = ("L", "RGB", "I", "I;16", "F")
"""The modes of images with one meaning as numbers: no palette, no transparency."""


@dataclass(frozen=True)
class Columns:
    """The columns of a Hugging Face data set that hold inputs and labels."""

    inputs: str | Sequence[str] | None = None
    labels: str | None = None

    def of(self, dataset: Any, whose: str) -> tuple[list[str], str]:
        """Return the columns of inputs and of labels; raise DataError if the data set lacks one."""
        if self.inputs is None or self.labels is None:
            raise DataError(
                f"{whose}name the columns with inputs=... and labels=...; there are {listed(dataset)}"
            )
        wanted = [self.inputs] if isinstance(self.inputs, str) else list(self.inputs)
        for column in (*wanted, self.labels):
            check_column(dataset, column, whose)
        return wanted, self.labels


def check_column(dataset: Any, column: Any, whose: str) -> None:
    """Raise DataError if a Hugging Face data set has no such column."""
    if column not in dataset.column_names:
        hint = did_you_mean(str(column), dataset.column_names)
        raise DataError(f"{whose}there is no column {column!r}{hint}")


def is_hugging_face(data: Any) -> bool:
    """Return whether this is a `datasets.Dataset`, without importing that package."""
    return hasattr(data, "column_names") and hasattr(data, "features")


def check_undivided(data: Any, whose: str) -> None:
    """Raise DataError for a `datasets.DatasetDict`, whose parts are no clients."""
    if isinstance(data, dict) and hasattr(data, "column_names"):
        raise DataError(f"{whose}this has the parts {', '.join(map(repr, data))}; pass one of them")


def read(data: Any, columns: Columns, whose: str) -> tuple[Inputs, Labels]:
    """Return the inputs and labels of some data; `whose` begins the message if they cannot be read."""
    if isinstance(data, tuple):
        if len(data) != 2:
            raise DataError(f"{whose}{FORMS}, got a tuple of {len(data)}")
        return as_pair(*data, whose)
    check_undivided(data, whose)
    if is_hugging_face(data):
        inputs, labels = columns.of(data, whose)
        return _stacked(_rows(data, inputs, labels, whose), _length(data, whose), whose)
    if callable(data):
        return read(_called(data, whose), columns, whose)
    if isinstance(data, list | str | dict) or hasattr(data, "dtype") or not hasattr(data, "__getitem__"):
        hint = "; pass its .dataset" if hasattr(data, "dataset") else ""
        raise DataError(f"{whose}{FORMS}, got {type(data).__name__}{hint}")
    return _stacked(_samples(data, whose), _length(data, whose), whose)


def _called(function: Any, whose: str) -> Any:
    try:
        data = function()
    except Exception as error:  # the user's own code can raise any exception
        raise DataError(f"{whose}the function that loads its data failed ({error!r})") from error
    if callable(data):
        raise DataError(f"{whose}the function that loads its data returned a function")
    return data


def _length(data: Any, whose: str) -> int:
    try:
        return len(data)
    except (TypeError, NotImplementedError):
        raise DataError(f"{whose}the data set has no length; streams cannot be used") from None


def _samples(dataset: Any, whose: str) -> Iterator[tuple[Any, Any]]:
    """Yield the samples of a map-style PyTorch data set."""
    for number in range(_length(dataset, whose)):
        try:
            sample = dataset[number]
        except Exception as error:  # the data set's own code can raise any exception
            raise DataError(
                f"{whose}sample {number} could not be read ({type(error).__name__}: {error})"
            ) from error
        if not (isinstance(sample, tuple | list) and len(sample) == 2):
            raise DataError(f"{whose}sample {number} must be a pair (input, label), got {_kind(sample)}")
        yield sample[0], sample[1]


def _kind(sample: Any) -> str:
    size = f" of {len(sample)}" if isinstance(sample, tuple | list | dict) else ""
    return kind_of(sample) + size


def _rows(dataset: Any, inputs: list[str], labels: str, whose: str) -> Iterator[tuple[Any, Any]]:
    """Yield the inputs and labels of a Hugging Face data set; several columns become one vector."""
    for number in range(_length(dataset, whose)):
        try:
            row = dataset[number]
        except Exception as error:  # an image that cannot be decoded can raise any exception
            raise DataError(f"{whose}sample {number} cannot be read ({error!r})") from error
        values = [row[column] for column in inputs]
        yield values[0] if len(values) == 1 else values, row[labels]


def _stacked(rows: Iterator[tuple[Any, Any]], count: int, whose: str) -> tuple[Inputs, Labels]:
    """Return samples as arrays; only one sample is in memory twice."""
    inputs: Inputs = np.empty((0,))
    labels = []
    for number, (value, label) in enumerate(rows):
        sample = _as_array(value, f"{whose}sample {number}: ")
        if number == 0:
            inputs = np.empty((count, *sample.shape), sample.dtype)
        if sample.shape != inputs.shape[1:] or not np.can_cast(sample.dtype, inputs.dtype):
            raise DataError(
                f"{whose}sample {number} has shape {sample.shape} and type {sample.dtype}, but those before "
                f"it have shape {inputs.shape[1:]} and type {inputs.dtype}"
            )
        inputs[number] = sample
        labels.append(label)
    return as_inputs(inputs, whose), as_labels(labels, whose)


def _as_array(value: Any, whose: str) -> Inputs:
    """Return one input as an array; an image becomes channels first."""
    mode = getattr(value, "mode", None)
    if mode is None or not hasattr(value, "getbands"):
        return _number_array(value, whose)
    if mode not in PLAIN_MODES:
        raise DataError(f"{whose}the image has mode {mode!r}; convert it with .convert('RGB') or 'L' first")
    pixels = np.asarray(value)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _number_array(value: Any, whose: str) -> Inputs:
    try:
        array = np.asarray(value)
    except Exception as error:  # ragged lists, tensors on another device
        raise DataError(f"{whose}the input cannot be converted to an array ({error})") from error
    if array.dtype.kind not in "biuf":
        raise DataError(f"{whose}the input must be numbers, got {array.dtype}")
    return array


def listed(dataset: Any) -> str:
    """Return the columns of a Hugging Face data set as text."""
    return ", ".join(map(repr, dataset.column_names))
