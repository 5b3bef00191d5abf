import numpy as np
import pytest

from fedrank.data import IID, split
from fedrank.data.federation import Client, Federation
from fedrank.engine import Predictions
from fedrank.experiment.metrics import evaluation
from fedrank.experiment.metrics import test_samples as samples_to_test


def indices(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


@pytest.fixture
def federation() -> Federation:
    """Three clients: two, none and three test samples; samples 8 and 9 are the official test set."""
    dataset = split(np.zeros((10, 1)), np.zeros(10, int), by=IID(), clients=2, seed=1).dataset
    clients = (
        Client(indices(0), indices(5, 1)),
        Client(indices(2), indices()),
        Client(indices(), indices(3, 7, 4)),
    )
    return Federation(dataset, clients, indices(8, 9))


def test_every_sample_is_tested_once(federation: Federation) -> None:
    assert samples_to_test(federation).tolist() == [1, 3, 4, 5, 7, 8, 9]


def test_accuracies_are_counted_for_each_client_and_for_all(federation: Federation) -> None:
    right = {1, 5, 7, 9}
    samples = samples_to_test(federation).tolist()
    predictions = Predictions(
        np.array([sample in right for sample in samples]), np.array(samples, np.float32)
    )
    measured = evaluation(federation, predictions)
    assert measured.clients.clients == 2
    assert measured.clients.mean == pytest.approx((1 + 1 / 3) / 2)
    assert measured.clients.std == pytest.approx(1 / 3)
    assert (measured.clients.min, measured.clients.max) == (pytest.approx(1 / 3), 1.0)
    assert measured.test_accuracy == 0.5
    assert measured.test_loss == 8.5
    assert measured.test_samples == 2
    assert measured.accuracies == {0: 1.0, 2: pytest.approx(1 / 3)}
    assert measured.samples == {0: 2, 2: 3}
