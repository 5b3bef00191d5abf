"""Attacks on vectors against their published formulas."""

import statistics

import numpy as np
import pytest

from fedrank.aggregators import Aggregator
from fedrank.attacks import View, attack_named
from fedrank.errors import ConfigError
from fedrank.rank import Layout


def view_of(n: int, m: int, size: int = 300, seed: int = 0, shift: float = 0.5) -> View:
    rng = np.random.default_rng(seed)
    updates = [(rng.normal(size=size) + shift).astype(np.float32) for _ in range(n)]
    most = Aggregator("multi-krum").max_malicious(n)

    def aggregate(some: list[np.ndarray]) -> np.ndarray:
        return Aggregator("multi-krum")(np.stack(some), min(m, most), rng)

    layout = Layout.of([("layer", (size,))])
    reference = np.zeros(size, np.float32)
    return View(layout, 0.5, reference, updates[:m], updates[m:], m, n, min(m, most), aggregate, rng)


def send(name: str, view: View, **parameters: object) -> np.ndarray:
    return attack_named(name).having(**parameters).updates(view)[0]


def oracle_z(n: int, m: int) -> float:
    """The source's z, by counting: the largest whose share of a normal distribution lies below."""
    supporters = int(np.floor(n / 2 + 1)) - m
    return statistics.NormalDist().inv_cdf((n - m - supporters) / (n - m))


@pytest.mark.parametrize(("n", "m"), [(50, 12), (25, 5), (20, 6)])
def test_lie_is_the_published_one(n: int, m: int) -> None:
    view = view_of(n, m)
    benign = np.stack(view.benign)
    expected = benign.mean(axis=0) - oracle_z(n, m) * benign.std(axis=0)
    np.testing.assert_allclose(send("alie", view), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("n", "m"), [(10, 1), (20, 1), (20, 2), (25, 1)])
def test_lie_never_helps_the_defender(n: int, m: int) -> None:
    view = view_of(n, m)
    mean = np.stack(view.benign).mean(axis=0)
    assert oracle_z(n, m) < 1e-9
    assert (send("alie", view) < mean).all()
    against = send("alie", view, direction="sign") - mean
    assert (np.sign(against) == -np.sign(mean)).all()


@pytest.mark.parametrize("name", ["alie", "min-max", "min-sum"])
def test_the_direction_is_the_plain_deviation_or_against_the_signs(name: str) -> None:
    view = view_of(25, 8, shift=0.1)
    benign = np.stack(view.benign)
    mean, deviation = benign.mean(axis=0), benign.std(axis=0)
    plain, signed = (send(name, view, **choice) for choice in ({}, {"direction": "sign"}))
    for moved, direction in ((plain, -deviation), (signed, -deviation * np.sign(mean))):
        cosine = (moved - mean) @ direction / np.linalg.norm(moved - mean) / np.linalg.norm(direction)
        assert cosine == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("direction", ["std", "sign"])
def test_min_max_and_min_sum_go_as_far_as_their_bounds(direction: str) -> None:
    view = view_of(20, 4)
    benign = np.stack(view.benign).astype(np.float64)
    distances = ((benign[:, None] - benign[None]) ** 2).sum(axis=2)
    for name, bound, of in (
        ("min-max", distances.max(), np.max),
        ("min-sum", distances.sum(axis=1).max(), np.sum),
    ):
        sent = send(name, view, direction=direction)
        farther = benign.mean(axis=0) + 1.01 * (sent - benign.mean(axis=0))
        assert of(((sent - benign) ** 2).sum(axis=1)) <= bound * (1 + 1e-4)
        assert of(((farther - benign) ** 2).sum(axis=1)) > bound


@pytest.mark.parametrize(("n", "m"), [(20, 4), (20, 9), (25, 12), (6, 2)])
def test_dyn_multi_krum_is_selected_by_a_rule_that_is_told_too_much(n: int, m: int) -> None:
    view = view_of(n, m)
    sent = send("dyn-multi-krum", view)
    longest = max(np.linalg.norm(update) for update in view.benign)
    assert np.linalg.norm(sent) < 100 * longest
    aggregate = view.aggregate([*view.benign, *[sent] * m])
    honest = np.stack(view.benign).mean(axis=0)
    towards_sent = (aggregate - honest) @ (sent - honest) / ((sent - honest) @ (sent - honest))
    selected = n - 2 * view.assumed - 2
    assert towards_sent > 0.9 * min(m, selected) / selected - 0.1


def test_a_parameter_that_does_not_exist_is_refused() -> None:
    for name, given, complaint in (
        ("alie", {"directoin": "sign"}, "has no parameter 'directoin'; did you mean 'direction'"),
        ("ipm", {"direction": "sign"}, "has no parameter 'direction'; it takes none"),
        ("alie", {"direction": "down"}, "direction = 'down': must be 'std' or 'sign'"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            attack_named(name).having(**given)
