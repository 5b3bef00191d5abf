import hashlib
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy import stats

from fedrank.nn.init import (
    WEIGHT_INITIALIZERS,
    _portable_log,
    fans,
    initial_scores,
    initial_weights,
    standard_normal,
)
from fedrank.randomness import Purpose, keyed_generator, raw_words
from fedrank.rank import Layout

LAYOUT = Layout.of([("conv", (32, 16, 3, 3)), ("linear", (100, 301))])
DIGESTS = {
    "signed-kaiming-constant": "7a1cf19b3213778b",
    "kaiming-normal": "e34461fd4068acba",
    "glorot-normal": "3c6e4737de2ccbd3",
    "kaiming-uniform": "f4cb5d9fee757b7c",
    "scores": "614ce2bd1f927002",
}


def digests() -> dict[str, str]:
    arrays = {name: initial_weights(LAYOUT, 2024, name) for name in WEIGHT_INITIALIZERS}
    arrays["scores"] = initial_scores(LAYOUT, 2024)
    return {name: hashlib.sha256(a.astype("<f4").tobytes()).hexdigest()[:16] for name, a in arrays.items()}


def test_the_same_seed_gives_the_same_bytes_everywhere() -> None:
    assert digests() == DIGESTS


@pytest.mark.parametrize("threads", ["1", "2"])
def test_other_processes_and_thread_counts_give_the_same_bytes(threads: str) -> None:
    program = (
        f"import torch; torch.set_num_threads({threads})\n"
        "from tests.nn.test_init import digests; print(sorted(digests().items()))"
    )
    reply = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert reply.stdout.strip() == str(sorted(DIGESTS.items()))


def test_another_seed_or_layer_gives_other_bytes() -> None:
    words = raw_words(1, Purpose.WEIGHTS, 0, 100)
    assert not np.array_equal(words, raw_words(2, Purpose.WEIGHTS, 0, 100))
    assert not np.array_equal(words, raw_words(1, Purpose.WEIGHTS, 1, 100))
    assert not np.array_equal(words, raw_words(1, Purpose.SCORES, 0, 100))
    assert np.array_equal(words[:51], raw_words(1, Purpose.WEIGHTS, 0, 51))


def test_keyed_generators_depend_on_every_coordinate() -> None:
    keys = [(7, 1, 2), (8, 1, 2), (7, 2, 2), (7, 1, 3)]
    first = {keyed_generator(seed, Purpose.LOCAL_TRAINING, r, c).integers(2**62) for seed, r, c in keys}
    assert len(first) == len(keys)


def test_signed_constants_have_two_values_of_equal_share() -> None:
    weights = initial_weights(LAYOUT, 5, "signed-kaiming-constant")
    for layer, fan_in in zip(LAYOUT, (16 * 9, 301), strict=True):
        values = weights[layer.edges]
        sigma = np.float32(np.sqrt(2 / fan_in))
        assert set(np.unique(values)) == {-sigma, sigma}
        assert abs(np.mean(values > 0) - 0.5) < 4 * 0.5 / np.sqrt(layer.size)


@pytest.mark.parametrize(
    ("name", "deviation"),
    [("kaiming-normal", np.sqrt(2 / 301)), ("glorot-normal", np.sqrt(2 / 401))],
)
def test_normal_weights_are_normal(name: str, deviation: float) -> None:
    linear = initial_weights(LAYOUT, 5, name)[LAYOUT.layers[1].edges]
    assert stats.kstest(linear / deviation, "norm").pvalue > 0.01


def test_scores_are_uniform_within_the_bound() -> None:
    linear = initial_scores(LAYOUT, 5)[LAYOUT.layers[1].edges] * np.sqrt(301)
    assert stats.kstest(linear, stats.uniform(-1, 2).cdf).pvalue > 0.01
    assert np.abs(linear).max() <= 1


def test_uniform_weights_are_spread_as_torch_spreads_its_own() -> None:
    ours = initial_weights(LAYOUT, 5, "kaiming-uniform")[LAYOUT.layers[1].edges]
    theirs = torch.nn.Linear(301, 100).weight.detach().numpy().ravel()
    assert stats.ks_2samp(ours, theirs).pvalue > 1e-4


def test_normal_quantiles_agree_with_scipy() -> None:
    words = np.concatenate([raw_words(3, Purpose.WEIGHTS, 0, 10_000), [0, 1, 2**31, 2**32 - 1]]).astype(
        np.uint32
    )
    expected = stats.norm.ppf((words.astype(np.float64) + 0.5) / 2**32)
    np.testing.assert_allclose(standard_normal(words), expected, rtol=2e-6, atol=2e-7)


def test_portable_logarithm_agrees_with_numpys() -> None:
    values = np.concatenate([np.logspace(-10, 0, 1000), [0.5, 0.075]])
    np.testing.assert_allclose(_portable_log(values), np.log(values), rtol=1e-14, atol=1e-15)


def test_fans_of_linear_and_grouped_convolution() -> None:
    assert fans((128, 784)) == (784, 128)
    assert fans((64, 8, 3, 5)) == (8 * 15, 64 * 15)
