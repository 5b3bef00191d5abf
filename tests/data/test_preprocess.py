"""Standardized inputs, against means and deviations that NumPy computes at once."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedrank.data import IID, Preprocess, samples, split
from fedrank.data import arrays as portions_module
from fedrank.errors import DataError

SHAPES = st.sampled_from([(7,), (1,), (3, 4), (2, 3, 4), (1, 5, 5), (3, 2, 2, 2)])


def oracle(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean and deviation of the columns of a table, of the channels of images, or of everything."""
    apart = values.ndim == 2 or values.ndim >= 4
    axes = tuple(axis for axis in range(values.ndim) if axis != 1) if apart else None
    return np.atleast_1d(values.mean(axes)), np.atleast_1d(values.std(axes))


@given(st.data(), SHAPES, st.integers(2, 30), st.sampled_from([np.float32, np.float64, np.uint8, np.int64]))
def test_standardized_inputs_have_mean_0_and_deviation_1(data, shape, count, dtype) -> None:
    numbers = {"elements": st.integers(0, 200)} if np.issubdtype(dtype, np.integer) else {
        "elements": st.floats(-100, 100, width=32)
    }  # fmt: skip
    inputs = data.draw(arrays.arrays(dtype, (count, *shape), **numbers))
    preprocess = Preprocess.fitted(inputs)
    scaled = inputs.astype(np.float64) / (255 if dtype == np.uint8 else 1)
    mean, std = oracle(scaled)
    np.testing.assert_allclose(preprocess.mean, mean, rtol=1e-6, atol=1e-7)
    made_mean, made_std = oracle(preprocess(inputs).astype(np.float64))
    varies = std > 1e-4 * (np.abs(mean) + 1e-3)
    np.testing.assert_allclose(np.asarray(preprocess.std)[varies], std[varies], rtol=1e-6)
    np.testing.assert_allclose(made_mean[varies], 0, atol=2e-2)
    np.testing.assert_allclose(made_std[varies], 1, rtol=1e-3)


@pytest.mark.parametrize("constant", [0.0, 0.1, -1e9, 3e30, 1e-300])
def test_a_constant_column_is_only_centered(constant: float) -> None:
    inputs = np.column_stack([np.full(1000, constant), np.arange(1000)])
    preprocess = Preprocess.fitted(inputs)
    assert preprocess.std[0] == 1
    assert np.abs(preprocess(inputs)[:, 0]).max() == 0


def test_the_portions_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = np.random.default_rng(1).normal(5, 2, (300, 3, 4, 4))
    at_once = Preprocess.fitted(inputs)
    monkeypatch.setattr(portions_module, "PORTION", 100)
    by_twos = Preprocess.fitted(inputs)
    np.testing.assert_allclose(at_once.mean, by_twos.mean, rtol=2e-7)
    np.testing.assert_allclose(at_once.std, by_twos.std, rtol=2e-7)
    assert Preprocess.fitted(inputs, np.arange(10)) == Preprocess.fitted(inputs[:10])


def test_split_standardizes_by_what_clients_train_on() -> None:
    rng = np.random.default_rng(2)
    inputs, labels = rng.normal([1, 50, -3], [1, 20, 0.1], (200, 3)), np.arange(200) % 4
    test = inputs[:50] + 1000, labels[:50]
    clients = split(inputs, labels, by=IID(), clients=10, seed=1, test=test)
    train = np.concatenate([clients.train_samples(number).inputs for number in range(10)])
    assert len(train) == 160
    np.testing.assert_allclose(clients.dataset.preprocess.mean, train.mean(0), rtol=1e-6)
    np.testing.assert_allclose(clients.dataset.preprocess.std, train.std(0), rtol=1e-6)
    again = split(inputs, labels, by=IID(), clients=10, seed=1, test=test)
    assert again.dataset.preprocess == clients.dataset.preprocess
    given = Preprocess(mean=(1, 2, 3))
    assert split(inputs, labels, by=IID(), clients=10, seed=1, preprocess=given).dataset.preprocess == given


def test_means_belong_to_the_columns_of_a_table_and_the_channels_of_images_and_signals() -> None:
    preprocess = Preprocess(scale=2.0, mean=(1, 2), std=[2, 4])
    for shape in ((5, 2), (5, 2, 3), (5, 2, 3, 4)):
        inputs = np.random.default_rng(1).normal(size=shape)
        made = preprocess(inputs)
        for channel, (mean, std) in enumerate([(1, 2), (2, 4)]):
            expected = (inputs[:, channel] / 2 - mean) / std
            np.testing.assert_allclose(made[:, channel], expected, rtol=1e-5, atol=1e-6)


def test_preprocess_is_a_value_with_a_short_text() -> None:
    preprocess = Preprocess.fitted(np.random.default_rng(1).normal(size=(5, 3)))
    assert eval(repr(preprocess), {"Preprocess": Preprocess}) == preprocess
    assert hash(preprocess) == hash(copy.copy(preprocess)) == hash(pickle.loads(pickle.dumps(preprocess)))
    assert len(repr(Preprocess.fitted(np.random.default_rng(1).normal(size=(5, 1000))))) < 150


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"std": 0}, "must be positive"),
        ({"scale": 0}, "must be positive"),
        ({"std": (1, -1)}, "must be positive"),
        ({"mean": (1, 2), "std": (1, 2, 3)}, "2 means but 3"),
        ({"mean": float("nan")}, "mean must be finite"),
        ({"mean": "mean"}, "mean must be finite"),
        ({"mean": ()}, "mean must be finite"),
    ],
)
def test_impossible_values_are_refused(options: dict, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        Preprocess(**options)


def test_preprocessing_that_does_not_fit_the_samples_is_refused() -> None:
    with pytest.raises(DataError, match="3 channels or columns, but a sample has shape \\(2,\\)"):
        samples(np.zeros((4, 2)), [0, 1, 0, 1], Preprocess(mean=(1, 2, 3)))
    with pytest.raises(DataError, match="crop_and_flip needs images"):
        samples(np.zeros((4, 2)), [0, 1, 0, 1], Preprocess(crop_and_flip=True))
    with pytest.raises(DataError, match="all clients share"):
        samples(np.zeros((4, 2)), [0, 1, 0, 1], "standardize")  # type: ignore[arg-type]
