"""Arrays of inputs and labels as users give them, checked and converted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrank.errors import DataError

Inputs = NDArray[np.generic]
Indices = NDArray[np.int64]
Labels = NDArray[np.int64]

PORTION = 2**20
"""About so many numbers are read at a time."""


def as_inputs(values: Any, whose: str = "") -> Inputs:
    """Return inputs as an array of finite numbers; `whose` begins the message if they are not.

    >>> as_inputs([[1.0, float("nan")]], "client ward-3: ")
    Traceback (most recent call last):
    fedrank.errors.DataError: client ward-3: sample 0 contains nan; inputs must be finite 32-bit floats
    """
    try:
        array = np.asarray(values)
    except Exception as error:  # tensors, lists and data frames each have their own
        raise DataError(f"{whose}the inputs cannot be converted to an array ({error})") from error
    if array.size and array.dtype.kind not in "biuf":
        hint = "; do all samples have the same shape?" if array.dtype == object else ""
        raise DataError(f"{whose}inputs must be numbers, got an array of type {array.dtype}{hint}")
    if array.dtype.kind == "f":
        _check_finite(array, whose)
    return array


def _check_finite(inputs: Inputs, whose: str) -> None:
    begin = 0
    for portion in portions(inputs):
        with np.errstate(over="ignore"):
            wrong = np.argwhere(~np.isfinite(portion.astype(np.float32, copy=False)))
        if wrong.size:
            first = tuple(wrong[0].tolist())
            sample = begin + first[0]
            raise DataError(
                f"{whose}sample {sample} contains {portion[first]}; inputs must be finite 32-bit floats"
            )
        begin += len(portion)


def as_labels(values: Any, whose: str = "") -> Labels:
    """Return labels as integers from 0.

    >>> as_labels(["cat", "dog"])
    Traceback (most recent call last):
    fedrank.errors.DataError: expected one integer label per sample, got <U3 of shape (2,); number the \
classes from 0, for example with np.unique(labels, return_inverse=True)[1]
    """
    try:
        array = np.asarray(values)
    except Exception as error:
        raise DataError(f"{whose}the labels cannot be converted to an array ({error})") from error
    if array.shape == (0,):
        return array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "biu":
        raise DataError(
            f"{whose}expected one integer label per sample, got {array.dtype} of shape {array.shape}"
            f"{_label_hint(array)}"
        )
    labels = array.astype(np.int64)
    if labels.min() < 0:
        raise DataError(
            f"{whose}labels must be integers from 0, got labels from {labels.min()} to {labels.max()}"
        )
    return labels


def _label_hint(labels: NDArray[Any]) -> str:
    if labels.ndim == 2:
        return "; pass labels.ravel()" if labels.shape[1] == 1 else "; pass labels.argmax(axis=1) if one-hot"
    if labels.ndim == 1 and labels.dtype.kind == "f":
        return "; pass labels.astype(int) if they are class numbers"
    if labels.ndim == 1:
        return "; number the classes from 0, for example with np.unique(labels, return_inverse=True)[1]"
    return ""


def check_lengths(inputs: Inputs, labels: Labels, whose: str = "") -> None:
    """Raise DataError unless there is one label for each input."""
    if inputs.ndim == 0 or len(inputs) != len(labels):
        raise DataError(f"{whose}got {len(inputs) if inputs.ndim else 'no'} inputs but {len(labels)} labels")


def as_pair(inputs: Any, labels: Any, whose: str = "") -> tuple[Inputs, Labels]:
    """Return inputs and as many labels.

    >>> as_pair([[0.5], [1.5]], [0, 1])[1]
    array([0, 1])
    """
    pair = as_inputs(inputs, whose), as_labels(labels, whose)
    check_lengths(*pair, whose)
    return pair


def portions(inputs: Inputs, samples: Indices | None = None) -> Iterator[Inputs]:
    """Yield the inputs, or some samples of them, in portions of about a million numbers."""
    size = max(1, PORTION // max(1, math.prod(inputs.shape[1:])))
    count = len(inputs) if samples is None else len(samples)
    for begin in range(0, count, size):
        some = slice(begin, begin + size)
        yield inputs[some] if samples is None else inputs[samples[some]]
