"""Accuracy and loss of the global model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator

from fedrank.data import Federation

if TYPE_CHECKING:  # reading a run's records must not import torch
    from fedrank.engine import Predictions


def number_or_name(name: Any) -> Any:
    """Return a client's number if that is what a key in a JSON file is; no client's name is a number."""
    return int(name) if isinstance(name, str) and name.isdecimal() else name


ClientName = Annotated[int | str, BeforeValidator(number_or_name)]
"""A client's name in its federation, or its number if clients have no names."""


@dataclass(frozen=True)
class Accuracy:
    """Statistics of the clients' accuracies, each on its own test samples."""

    mean: float
    std: float
    min: float
    max: float
    clients: int
    """The number of clients with test samples."""


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The global model's results on each client's own test data and on the global test set."""

    clients: Accuracy | None
    """None if no client has test samples of its own."""
    test_accuracy: float
    test_loss: float
    test_samples: int
    backdoor: float | None = None
    """The share of samples with a backdoor trigger that are classified as the attacker wants."""
    worst_class: float | None = None
    """The lowest accuracy of a class on the global test set."""
    accuracies: dict[ClientName, float] = field(default_factory=dict)
    """The accuracy of every client with test samples, by name or number."""
    samples: dict[ClientName, int] = field(default_factory=dict)
    """The number of test samples of each of them."""

    def __repr__(self) -> str:
        facts = f"accuracy {self.test_accuracy:.1%}, loss {self.test_loss:.3g}"
        return f"<Evaluation: {facts}, {self.test_samples:,} samples>"


def test_samples(federation: Federation) -> NDArray[np.int64]:
    """Return the indices of all samples that an evaluation needs, without duplicates."""
    own = [client.test for client in federation]
    probe = () if federation.probe is None else (federation.probe,)
    return np.unique(np.concatenate([*own, federation.test, *probe]))


def evaluation(federation: Federation, predictions: Predictions) -> Evaluation:
    """Summarize predictions on `test_samples(federation)`."""
    position = np.zeros(len(federation.dataset.labels), np.int64)
    samples = test_samples(federation)
    position[samples] = np.arange(samples.size)
    tested = [number for number, client in enumerate(federation) if client.test.size]
    accuracies = client_accuracies(federation, predictions.correct, position)
    names = [federation.name_of(number) for number in tested]
    sizes = [federation.clients[number].test.size for number in tested]
    on_test = position[federation.test]
    return Evaluation(
        clients=_summary(accuracies) if tested else None,
        test_accuracy=float(predictions.correct[on_test].mean()),
        test_loss=float(predictions.losses[on_test].mean(dtype=np.float64)),
        test_samples=federation.test.size,
        backdoor=_backdoor(federation, predictions.correct, position),
        worst_class=_worst_class(federation, predictions.correct[on_test]),
        accuracies=dict(zip(names, accuracies.tolist(), strict=True)),
        samples=dict(zip(names, sizes, strict=True)),
    )


def _summary(accuracies: NDArray[np.float64]) -> Accuracy:
    return Accuracy(
        mean=float(accuracies.mean()),
        std=float(accuracies.std()),
        min=float(accuracies.min()),
        max=float(accuracies.max()),
        clients=accuracies.size,
    )


def _worst_class(federation: Federation, correct: NDArray[np.bool_]) -> float:
    """Return the lowest accuracy of a class, given what is correct on the global test set."""
    labels = federation.dataset.labels[federation.test]
    count = np.bincount(labels, minlength=federation.dataset.classes)
    hits = np.bincount(labels, correct, federation.dataset.classes)
    return float((hits[count > 0] / count[count > 0]).min())


def _backdoor(
    federation: Federation, correct: NDArray[np.bool_], position: NDArray[np.int64]
) -> float | None:
    return None if federation.probe is None else float(correct[position[federation.probe]].mean())


def client_accuracies(
    federation: Federation, correct: NDArray[np.bool_], position: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the accuracy of every client with test samples."""
    own = [client.test for client in federation if client.test.size]
    if not own:
        return np.empty(0)
    sizes = np.array([test.size for test in own])
    begins = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    hits = correct[position[np.concatenate(own)]].astype(np.int64)
    return np.asarray(np.add.reduceat(hits, begins) / sizes, np.float64)
