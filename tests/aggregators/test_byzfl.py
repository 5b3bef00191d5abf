"""The rules and attacks against ByzFL's, where both mean the same. Runs where ByzFL is installed."""

import importlib.util
import itertools
import statistics
from types import ModuleType

import numpy as np
import pytest

from fedrank.aggregators import RULES, Aggregator
from fedrank.attacks import View, attack_named
from fedrank.rank import Layout

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def peer(pytestconfig: pytest.Config) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "byzfl_peer", pytestconfig.rootpath / "benchmarks/byzfl_peer.py"
    )
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def byzfl(peer: ModuleType) -> ModuleType:
    try:
        return peer.load_byzfl()
    except ImportError as error:
        pytest.skip(str(error))


SIZES = [(n, m, d) for (n, m), d in itertools.product([(7, 1), (20, 4), (21, 6), (60, 20)], [1, 50, 3000])]


def updates_of(n: int, m: int, d: int) -> np.ndarray:
    """Honest updates, and some that are far away."""
    updates = np.random.default_rng(100 * n + d).normal(size=(n, d))
    updates[:m] = 3 * updates[:m] + 2
    return updates


@pytest.mark.parametrize(("n", "m", "d"), SIZES)
def test_rules_equal_those_of_byzfl(peer: ModuleType, byzfl: ModuleType, n: int, m: int, d: int) -> None:
    updates = updates_of(n, m, d)
    compared = 0
    for name, theirs in peer.peers(byzfl, m).items():
        if "bucketing" in name:
            continue  # draws its own pairs: compared below
        # A geometric median is a limit: both come near it, neither to the last digit.
        close = 1e-4 if name == "geometric-median" else 1e-9
        if name == "geometric-median":
            theirs = byzfl.GeometricMedian(nu=1e-9, T=3000)
        ours = Aggregator(name)(updates, m, np.random.default_rng(0))
        np.testing.assert_allclose(ours, theirs(updates), rtol=close, atol=close, err_msg=name)
        compared += 1
    assert compared == 7


@pytest.mark.parametrize("n", [6, 9])
def test_bucketing_equals_that_of_byzfl(byzfl: ModuleType, n: int) -> None:
    updates = updates_of(n, 1, 40)
    np.random.seed(5)  # noqa: NPY002 (where ByzFL draws from)
    order = np.random.permutation(n)  # noqa: NPY002

    class Drawn:
        def permutation(self, _n: int) -> np.ndarray:
            return order

    counts = RULES["bucketing"].function(n, Drawn())
    np.random.seed(5)  # noqa: NPY002
    theirs = byzfl.Bucketing(2)(updates)
    np.testing.assert_allclose(counts @ updates / counts.sum(axis=1, keepdims=True), theirs, rtol=1e-12)


def test_attacks_equal_those_of_byzfl(byzfl: ModuleType) -> None:
    n, m, d = 20, 6, 300
    updates = list(updates_of(n, 0, d).astype(np.float32))
    rng = np.random.default_rng(0)
    layout, nothing = Layout.of([("layer", (d,))]), np.zeros(d, np.float32)
    view = View(layout, 0.5, nothing, updates[:m], updates[m:], m, n, m, lambda some: some[0], rng)
    benign = np.stack(view.benign)
    sent = {name: attack_named(name).updates(view)[0] for name in ("ipm", "alie", "sign-flip")}
    ipm = byzfl.InnerProductManipulation(tau=1.1 * len(benign) / m)
    np.testing.assert_allclose(sent["ipm"], ipm(benign), rtol=1e-4, atol=1e-5)
    supporters = n // 2 + 1 - m
    z = statistics.NormalDist().inv_cdf((n - m - supporters) / (n - m))
    # ByzFL moves up, and by the deviation of a sample.
    alie = byzfl.ALittleIsEnough(tau=-z * float(np.sqrt((len(benign) - 1) / len(benign))))
    np.testing.assert_allclose(sent["alie"], alie(benign), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(sent["sign-flip"], byzfl.SignFlipping()(np.stack([updates[0]])), rtol=1e-6)
