"""Aggregation rules against plain oracles, and where they break."""

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import optimize, stats

from fedrank.aggregators import RULES, Aggregator, Role, aggregator
from fedrank.aggregators.base import inner_products
from fedrank.aggregators.rules import multi_krum_selection, squared_distances
from fedrank.errors import ConfigError

AGGREGATORS = [name for name, rule in RULES.items() if not rule.is_preaggregator]


def some_updates(seed: int, n: int, d: int, dtype: type = np.float64) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)).astype(dtype)


def aggregate(name: str, updates: np.ndarray, m: int) -> np.ndarray:
    return Aggregator(name)(updates, m, np.random.default_rng(0))


def mixed(name: str, updates: np.ndarray, m: int) -> np.ndarray:
    rule, rng = RULES[name], np.random.default_rng(1)
    if rule.role is Role.GROUPING:
        counts = rule.function(len(updates), rng)
    else:
        counts = rule.function(inner_products(updates), m, rng)
    return counts @ updates / counts.sum(axis=1, keepdims=True)


# --- oracles: loops over pairs and coordinates --------------------------------------------------


def oracle_krum_choice(updates: list[np.ndarray], m: int) -> int:
    scores = []
    for i, one in enumerate(updates):
        distances = sorted(float(((one - other) ** 2).sum()) for j, other in enumerate(updates) if j != i)
        scores.append(sum(distances[: max(1, len(updates) - m - 2)]))
    return next(i for i, score in enumerate(scores) if score <= min(scores) * (1 + 1e-9))


def oracle_multi_krum(updates: np.ndarray, m: int) -> np.ndarray:
    remaining, selected = list(updates), []
    while len(remaining) > 2 * m + 2:
        selected.append(remaining.pop(oracle_krum_choice(remaining, m)))
    return sum(selected) / len(selected)


def oracle_nnm(updates: np.ndarray, m: int) -> np.ndarray:
    mixed = []
    for one in updates:
        by_distance = sorted(updates, key=lambda other: float(((one - other) ** 2).sum()))
        mixed.append(sum(by_distance[: len(updates) - m]) / (len(updates) - m))
    return np.array(mixed)


ORACLES = {
    "mean": lambda u, m: sum(u) / len(u),
    "trimmed-mean": lambda u, m: stats.trim_mean(u, m / len(u) + 1e-9, axis=0),
    "median": lambda u, m: np.array([sorted(column)[len(u) // 2] for column in u.T]),
    "krum": lambda u, m: u[oracle_krum_choice(list(u), m)],
    "multi-krum": oracle_multi_krum,
}


@given(st.integers(0, 2**32), st.sampled_from([7, 9, 13]), st.integers(0, 2), st.sampled_from([1, 5, 40]))
def test_rules_equal_their_oracles(seed: int, n: int, m: int, d: int) -> None:
    updates = some_updates(seed, n, d)
    for name, oracle in ORACLES.items():
        np.testing.assert_allclose(aggregate(name, updates, m), oracle(updates, m), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(mixed("nnm", updates, m), oracle_nnm(updates, m), rtol=1e-9, atol=1e-12)


def test_the_median_of_an_even_number_lies_in_the_middle() -> None:
    updates = some_updates(3, 8, 30)
    np.testing.assert_allclose(aggregate("median", updates, 1), np.median(updates, axis=0))


@pytest.mark.parametrize("seed", range(5))
def test_the_geometric_median_minimizes_the_sum_of_distances(seed: int) -> None:
    updates = some_updates(seed, 9, 3)

    def cost(point: np.ndarray) -> float:
        return float(np.linalg.norm(updates - point, axis=1).sum())

    found = optimize.minimize(
        cost, updates.mean(axis=0), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}
    )
    ours = aggregate("geometric-median", updates, 2)
    assert cost(ours) <= cost(found.x) + 1e-9
    np.testing.assert_allclose(ours, found.x, atol=1e-4)


def test_the_geometric_median_of_a_majority_in_one_point_is_that_point() -> None:
    updates = np.array([[1.0, 2.0]] * 5 + [[9.0, 9.0], [-3.0, 0.0]])
    np.testing.assert_allclose(aggregate("geometric-median", updates, 2), [1, 2], atol=1e-5)


def test_large_updates_are_split_into_blocks_without_a_trace() -> None:
    updates = some_updates(1, 7, 40_000, np.float32)
    whole = np.sort(updates, axis=0)[2:-2].mean(axis=0)
    np.testing.assert_allclose(aggregate("trimmed-mean", updates, 2), whole, rtol=1e-5, atol=1e-6)
    pairs = [
        ((updates[i] - updates[j]).astype(np.float64) ** 2).sum()
        for i, j in itertools.product(range(7), range(7))
    ]
    np.testing.assert_allclose(squared_distances(updates).reshape(-1), pairs, rtol=1e-5, atol=1e-6)


CHAINS = [*AGGREGATORS, "nnm+trimmed-mean", "nnm+median", "bucketing+median", "bucketing+nnm+krum"]


def mixtures_tie(updates: np.ndarray, m: int) -> bool:
    """Whether the consensus of a screened mean must choose between different, equally central mixtures.

    Then it takes the first, so the order matters. It is rare.
    """
    lengths = np.linalg.norm(updates, axis=1)
    rows = list(mixed("nnm", updates * np.minimum(1, np.median(lengths) / lengths)[:, None], m))
    while len(rows) > 2 * m + 2:
        distances = [[float(((a - b) ** 2).sum()) for b in rows] for a in rows]
        sums = [sum(sorted(each)[1 : max(1, len(rows) - m - 2) + 1]) for each in distances]
        best = [i for i, each in enumerate(sums) if each <= min(sums) * (1 + 1e-8)]
        if any(distances[best[0]][other] > 1e-12 for other in best):
            return True
        rows.pop(best[0])
    return False


@pytest.mark.parametrize("name", [name for name in CHAINS if "bucketing" not in name])  # it draws its pairs
@given(seed=st.integers(0, 2**32))
def test_the_order_of_updates_does_not_matter(name: str, seed: int) -> None:
    updates = some_updates(seed, 11, 20)
    assume(name != "screened-mean" or not mixtures_tie(updates, 2))
    order = np.random.default_rng(seed).permutation(11)
    np.testing.assert_allclose(
        aggregate(name, updates[order], 2), aggregate(name, updates, 2), rtol=1e-7, atol=1e-9
    )


LAYOUTS = {
    "rows": np.ascontiguousarray,
    "columns": np.asfortranarray,
    "transposed": lambda updates: np.ascontiguousarray(updates.T).T,
    "strided": lambda updates: np.repeat(updates, 2, axis=1)[:, ::2],
    "one column": lambda updates: np.ascontiguousarray(updates[:, :1]),
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_rule_changes_its_input_however_it_lies_in_memory(name: str, layout: str, dtype: type) -> None:
    updates = LAYOUTS[layout](some_updates(3, 12, 20, dtype))
    before = updates.copy()
    plain = aggregate(name, np.ascontiguousarray(updates), 1)
    updates.flags.writeable = False
    np.testing.assert_allclose(aggregate(name, updates, 1), plain, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(updates, before)


@pytest.mark.parametrize("name", [name for name in CHAINS if name != "measured-mean"])
def test_a_slice_needs_no_more_than_the_inner_products(name: str) -> None:
    """What a chain makes of any slice of the coordinates is that slice of what it makes of them all."""
    updates = some_updates(9, 12, 50)
    whole = aggregate(name, updates, 1)
    step = Aggregator(name).step(len(updates), inner_products(updates), 1, np.random.default_rng(0))
    assert Aggregator(name).sliceable
    for part in (slice(0, 7), slice(7, 49), slice(49, 50)):
        np.testing.assert_allclose(step(updates[:, part]), whole[part], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in CHAINS if name not in ("screened-mean", "measured-mean")])
def test_a_shifted_and_scaled_world_gives_a_shifted_and_scaled_result(name: str) -> None:
    updates = some_updates(4, 12, 15)
    expected = 3 * aggregate(name, updates, 1) + 5
    np.testing.assert_allclose(aggregate(name, 3 * updates + 5, 1), expected, rtol=1e-6)


BREAKDOWN = {
    "mean": 1,
    "trimmed-mean": 4,
    "median": 6,
    "krum": 6,
    "multi-krum": 5,
    "geometric-median": 6,
    "centered-clipping": 6,
    "nnm+trimmed-mean": 4,
    "screened-mean": 6,
}
"""How many of 11 equal far-away updates it takes to carry a rule along that was told to expect 3."""


@pytest.mark.parametrize(("name", "breaks_at"), BREAKDOWN.items())
def test_a_rule_breaks_exactly_where_theory_says(name: str, breaks_at: int) -> None:
    expected = 3 if name not in ("mean",) else 0

    def moved(malicious: int, how_far: float) -> float:
        updates = some_updates(5, 11, 8)
        updates[:malicious] = how_far
        return float(np.abs(aggregate(name, updates, expected)).max())

    assert moved(breaks_at - 1, 1e9) < 100
    assert moved(breaks_at, 1e9) > 1e6


@pytest.mark.parametrize(
    ("name", "n", "m", "condition"),
    [
        ("trimmed-mean", 4, 2, "n > 2 m"),
        ("median", 2, 1, "n > 2 m"),
        ("krum", 8, 3, r"n > 2 m \+ 2"),
        ("multi-krum", 8, 3, r"n > 2 m \+ 2"),
        ("geometric-median", 4, 2, "n > 2 m"),
        ("centered-clipping", 4, 2, "n > 2 m"),
        ("nnm+mean", 4, 2, "n > 2 m"),
    ],
)
def test_too_few_updates_are_refused_with_the_condition(name: str, n: int, m: int, condition: str) -> None:
    with pytest.raises(ConfigError, match=f"needs {condition}, got n = {n} updates, m = {m}"):
        aggregate(name, some_updates(0, n, 3), m)


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("n", [3, 4, 9, 25])
def test_a_chain_knows_how_many_malicious_updates_it_can_bear(name: str, n: int) -> None:
    most = Aggregator(name).max_malicious(n)
    updates = some_updates(0, n, 3)
    if most >= 0:
        aggregate(name, updates, most)
    if most < n:
        with pytest.raises(ConfigError, match="needs n > 2 m"):
            aggregate(name, updates, most + 1)


@pytest.mark.parametrize("name", [name for name in CHAINS if name != "mean" and "bucketing" not in name])
@pytest.mark.parametrize("huge", [1e10, 1e20, 3e38])
@pytest.mark.parametrize("rows", [(0, 1), (1, 0), (10, 4)])
def test_huge_but_finite_updates_do_not_drown_the_others(
    name: str, huge: float, rows: tuple[int, int]
) -> None:
    """Two colluders: one takes all digits from the distances, the other would gain from it."""
    updates = some_updates(8, 11, 300, np.float32) / 100
    updates[rows[0]] = huge
    updates[rows[1]] = 5
    assert np.abs(aggregate(name, updates, 2)).max() < 1


def test_multi_krum_leaves_out_the_outliers() -> None:
    updates = some_updates(6, 25, 10)
    updates[[3, 8, 20]] += 50
    selected = multi_krum_selection(squared_distances(updates), 3)
    assert not {3, 8, 20} & set(selected.tolist())
    assert selected.size == 25 - 2 * 3 - 2


def oracle_screened_mean(updates: np.ndarray, m: int) -> np.ndarray:
    median_length = np.median([np.linalg.norm(one) for one in updates])

    def cut(one: np.ndarray, lengths: float) -> np.ndarray:
        return one * min(1.0, lengths * median_length / np.linalg.norm(one))

    short = np.array([cut(one, 1) for one in updates])
    nearest = [np.argsort([((one - other) ** 2).sum() for other in short])[: len(short) - m] for one in short]
    rows = np.array([short[chosen].mean(axis=0) for chosen in nearest])
    left, central = list(range(len(rows))), []
    while len(left) > 2 * m + 2:
        central.append(left.pop(oracle_krum_choice([rows[i] for i in left], m)))
    shares = np.array([np.mean([i in nearest[row] for row in central]) for i in range(len(updates))])
    shares /= len(short) - m
    inside, outside = [], []
    for i, one in enumerate(updates):
        others = sum(shares[j] * short[j] for j in range(len(updates)) if j != i)
        if one @ others > -0.2 * np.linalg.norm(one) * np.linalg.norm(others):
            (inside if shares[i] else outside).append(cut(one, 2))
    pull = np.linalg.norm(sum(outside))
    independent = np.sqrt(sum(one @ one for one in outside))
    less = min(1.0, independent / pull) if outside else 1.0
    return sum([*inside, *(less * one for one in outside)]) / (len(inside) + len(outside))


@given(st.integers(0, 2**32), st.sampled_from([7, 9, 14]), st.integers(0, 2), st.sampled_from([5, 40]))
def test_the_screened_mean_equals_its_oracle(seed: int, n: int, m: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    updates = (rng.normal(size=(n, d)) + 0.5) * rng.lognormal(size=(n, 1))
    np.testing.assert_allclose(
        aggregate("screened-mean", updates, m), oracle_screened_mean(updates, m), rtol=1e-7, atol=1e-9
    )


@given(st.integers(0, 2**32), st.integers(1, 9), st.sampled_from([1, 5, 40]))
def test_clip_limits_each_coordinate_to_three_deviations_of_the_median_update(
    seed: int, n: int, d: int
) -> None:
    updates = some_updates(seed, n, d)
    updates[:, 0] *= 100
    before = updates.copy()
    limit = 3 * np.median([np.linalg.norm(one) for one in updates]) / np.sqrt(d)
    clipped = [[min(max(value, -limit), limit) for value in one] for one in updates.tolist()]
    np.testing.assert_allclose(aggregate("clip+mean", updates, 0), np.mean(clipped, axis=0), rtol=1e-12)
    assert (updates == before).all()


def test_clip_comes_first() -> None:
    with pytest.raises(ConfigError, match="'clip' must come first, got 'nnm\\+clip\\+mean'"):
        Aggregator("nnm+clip+mean")


def test_the_screened_mean_is_near_the_mean_where_nobody_stands_out() -> None:
    updates = some_updates(2, 20, 400) + 0.5
    mean, screened = updates.mean(axis=0), aggregate("screened-mean", updates, 8)
    assert np.corrcoef(mean, screened)[0, 1] > 0.9
    assert np.linalg.norm(screened) > 0.7 * np.linalg.norm(mean)


def test_those_outside_the_consensus_pull_no_harder_together_than_if_they_were_independent() -> None:
    """Colluders in a direction of their own, which opposes nobody."""
    updates = some_updates(2, 20, 4000) + 0.5
    updates[:6] = 0
    updates[:6, 0] = 1000
    products = inner_products(updates)
    weights = RULES["screened-mean"].function(products, 8)
    pull = 1000 * weights[:6].sum()
    alone = 2 * np.median(np.sqrt(np.diag(products))) / 20  # cut to twice the median length
    assert 0 < pull < np.sqrt(20) * alone < 6 * alone


def test_the_screened_mean_of_one_or_two_is_their_mean() -> None:
    updates = np.array([[1.0, 2.0], [-3.0, 0.0]])
    assert aggregate("screened-mean", updates, 0).tolist() == [-1, 1]
    assert aggregate("screened-mean", updates[:1], 0).tolist() == [1, 2]


@pytest.mark.parametrize("m", [0, 4, 8])
def test_the_screened_mean_leaves_out_who_opposes_the_others(m: int) -> None:
    updates = some_updates(2, 20, 400) + 0.5
    updates[:4] = -5 * updates[4:].mean(axis=0)
    with_them = aggregate("screened-mean", updates, m)
    weights = RULES["screened-mean"].function(inner_products(updates), m)
    assert (weights[:4] == 0).all()
    assert (weights[4:] > 0).all()
    assert with_them @ updates[4:].mean(axis=0) > 0


def test_bucketing_averages_pairs_and_keeps_the_mean() -> None:
    updates = some_updates(7, 10, 4)
    pairs = mixed("bucketing", updates, 2)
    assert pairs.shape == (5, 4)
    np.testing.assert_allclose(pairs.mean(axis=0), updates.mean(axis=0))


@pytest.mark.parametrize("name", ["means", "nnm", "nnm+", "mean+nnm", "xyz+mean", ""])
def test_a_chain_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"unknown (pre-)?aggregator"):
        Aggregator(name)


def test_every_rule_is_listed_with_its_source() -> None:
    assert all(rule.summary and rule.source for rule in RULES.values())


def test_a_users_own_rule_is_one_decorated_function() -> None:
    @aggregator("first-test", "a test")
    def first(updates: np.ndarray, _malicious: int) -> np.ndarray:
        """The first update."""
        return updates[0]

    try:
        updates = some_updates(0, 3, 4)
        assert aggregate("first-test", updates, 0).tolist() == updates[0].tolist()
        assert not Aggregator("first-test").sliceable
        assert RULES["first-test"].summary == "The first update."
    finally:
        del RULES["first-test"]


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Forget the rules that a test registers."""
    before = dict(RULES)
    yield
    RULES.clear()
    RULES.update(before)


@pytest.mark.usefixtures("forgotten")
def test_a_name_is_registered_once_and_with_a_docstring() -> None:
    def another(updates: np.ndarray, _malicious: int) -> np.ndarray:
        """Another mean."""
        return updates.mean(axis=0)

    with pytest.raises(ConfigError, match="an aggregator named 'mean' already exists; choose another name"):
        aggregator("mean", "a test")(another)
    aggregator("another-test", "a test")(another)
    aggregator("another-test", "a test")(another)  # a notebook's cell is run again

    def wordless(updates: np.ndarray, _malicious: int) -> np.ndarray:
        return updates[0]

    with pytest.raises(ConfigError, match="wordless needs a docstring"):
        aggregator("wordless-test", "a test")(wordless)


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize(
    ("result", "complaint"),
    [
        (lambda updates: updates, r"returned float64 of shape \(5, 8\), expected 8 floats"),
        (lambda updates: updates[0].astype(int), "returned int64"),
        (lambda updates: [1.0] * 8, "returned list"),
        (lambda updates: updates[0] * np.nan, "returned NaN"),
    ],
)
def test_a_broken_rule_is_named(result: Callable[[np.ndarray], object], complaint: str) -> None:
    @aggregator("broken-test", "a test")
    def broken(updates: np.ndarray, _malicious: int) -> object:
        """Something that is no aggregate."""
        return result(updates)

    with pytest.raises(ConfigError, match=rf"the aggregator 'broken-test' \(.*broken\) {complaint}"):
        aggregate("broken-test", some_updates(0, 5, 8), 0)


def test_parameters_of_a_rule_are_checked_and_used() -> None:
    updates = some_updates(0, 12, 30)
    updates[:3] *= 50
    plain = aggregate("centered-clipping", updates, 3)
    tight = Aggregator.of({"name": "centered-clipping", "radius": 0.1, "steps": 1})(
        updates, 3, np.random.default_rng(0)
    )
    assert not np.allclose(plain, tight)
    assert Aggregator.of({"name": "centered-clipping", "steps": 3}) == Aggregator("centered-clipping")
    for parameters, complaint in (
        ({"radius": -1.0}, "radius = -1.0: must be more than 0"),
        ({"radii": 1.0}, "has no parameter 'radii'; did you mean 'radius'"),
        ({"steps": 1.5}, "steps = 1.5"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            Aggregator("centered-clipping", parameters)
    with pytest.raises(ConfigError, match="the aggregator 'median' has no parameter 'radius'; it takes none"):
        Aggregator("median", {"radius": 1.0})
