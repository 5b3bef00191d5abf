"""The measured mean: designs, effects and clipping, against plain formulas and a world that is linear."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import hypergeom, rankdata

from fedrank.aggregators import Aggregator
from fedrank.aggregators.measured import (
    clipped_sums,
    dishonest_majority,
    effects,
    kept_units,
    random_units,
    seen_trials,
    standard_error,
    trial_design,
)
from fedrank.errors import ConfigError


@given(st.integers(3, 31), st.integers(0, 2**32))
def test_any_two_units_meet_as_often_as_not(units: int, seed: int) -> None:
    design = trial_design(units, np.random.default_rng(seed))
    signs = np.where(design, 1, -1)
    assert design.any(axis=1).all()
    assert design[0].all()
    order = 1 << units.bit_length()
    lost = order - len(design)  # trials of nobody are left out
    assert (signs.T @ signs + lost == order * np.eye(units)).all()
    assert (design.sum(axis=0) == order / 2).all()


@given(st.integers(1, 200), st.integers(0, 2**32))
def test_every_update_is_in_one_unit(n: int, seed: int) -> None:
    members = random_units(n, np.random.default_rng(seed))
    assert (members.sum(axis=0) == 1).all()
    assert len(members) == min(n, 31)
    assert np.ptp(members.sum(axis=1)) <= 1


def places(losses: np.ndarray) -> np.ndarray:
    """Return the place of each loss among those that are known, row by row."""
    return np.where(np.isnan(losses), np.nan, rankdata(losses, axis=1, nan_policy="omit") - 1)


@given(st.integers(0, 2**32))
def test_in_a_linear_world_effects_order_the_units_as_they_harm(seed: int) -> None:
    rng = np.random.default_rng(seed)
    harm = np.concatenate([rng.normal(0, 0.1, 15), rng.uniform(3, 4, 4)])
    design = trial_design(harm.size, rng)
    losses = design @ harm / design.sum(axis=1)
    reports = np.full((40, len(design)), np.nan)
    for row in reports:
        seen = seen_trials(len(design), 0.5, rng)
        row[seen] = rng.lognormal(0, 2) * (losses[seen] + rng.normal(0, 0.02, seen.size)) + rng.normal()
    effect = effects(design, places(reports))
    assert effect[15:].min() > effect[:15].max()
    kept = kept_units(effect, 0.6)
    assert kept.sum() == 12
    assert not kept[15:].any()


@given(st.integers(0, 2**32))
def test_a_fifth_of_liars_does_not_save_harmful_units(seed: int) -> None:
    rng = np.random.default_rng(seed)
    harm = np.concatenate([np.full(16, -0.1), np.full(4, 1.0)])
    design = trial_design(20, rng)
    honest = design @ harm / design.sum(axis=1) + rng.normal(0, 0.05, (32, len(design)))
    liars = -1000.0 * (design[:, 16:].sum(axis=1) / design.sum(axis=1)) * np.ones((8, 1))
    kept = kept_units(effects(design, places(np.vstack([honest, liars]))), 0.6)
    assert not kept[16:].any()


@given(st.integers(3, 12), st.integers(0, 2**32))
def test_a_minority_moves_effects_within_what_the_others_find(honest: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    design = trial_design(9, rng)
    found = places(rng.normal(size=(honest, len(design))))
    lies = places(rng.normal(size=(honest - 1, len(design))))
    alone = np.array([effects(design, row[None]) for row in found])
    together = effects(design, np.vstack([found, lies]))
    assert (together >= alone.min(axis=0)).all()
    assert (together <= alone.max(axis=0)).all()


def test_a_trial_that_nobody_has_measured_is_left_out() -> None:
    design = trial_design(7, np.random.default_rng(0))
    reports = np.tile((design @ np.arange(7.0)) / design.sum(axis=1), (3, 1))
    reports[:, 2] = np.nan
    assert np.isfinite(effects(design, places(reports))).all()


def reading(updates: np.ndarray) -> Callable[[slice, np.ndarray], None]:
    def read(some: slice, rows: np.ndarray) -> None:
        rows[:] = updates[:, some]

    return read


@pytest.mark.parametrize("units", [9, 3])
def test_sums_have_the_same_bytes_whether_updates_are_kept_in_memory_or_read_again(
    units: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    updates = np.rint(rng.normal(0, 1e5, (9, 1000)))
    members = np.zeros((units, 9))
    members[np.arange(9) % units, np.arange(9)] = 1
    monkeypatch.setattr("fedrank.aggregators.measured.BLOCK_NUMBERS", 9 * 64)
    kept = clipped_sums(reading(updates), 1000, members, 3.0)
    monkeypatch.setattr("fedrank.aggregators.measured.CACHED_NUMBERS", 0)
    again = clipped_sums(reading(updates), 1000, members, 3.0)
    assert (kept.step, kept.farthest) == (again.step, again.farthest)
    assert kept.sums.tobytes() == again.sums.tobytes()


def test_the_standard_error_of_a_median_is_that_of_many_samples() -> None:
    rng = np.random.default_rng(0)
    samples = rng.normal(0, 1, (4000, 41))
    estimated = np.mean([standard_error(row) for row in samples])
    assert estimated == pytest.approx(np.median(samples, axis=1).std(), rel=0.05)


def test_a_fifth_of_liars_does_not_inflate_the_standard_error_by_half() -> None:
    honest = np.random.default_rng(0).normal(0, 1, 3200)
    lies = np.full(800, 1e6)
    assert standard_error(np.concatenate([honest, lies])) < 1.5 * np.sqrt(3200 / 4000) * standard_error(
        honest
    )


@given(st.integers(2, 40), st.integers(5, 300), st.integers(0, 2**32))
def test_updates_are_clipped_by_coordinate_and_then_by_length(n: int, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    updates = rng.standard_cauchy((n, size)) * rng.lognormal(0, 1, (n, 1))
    members = random_units(n, rng)
    lengths = np.sqrt((updates**2).sum(axis=1))
    limit = 3 * np.median(lengths) / np.sqrt(size)
    clipped = np.clip(updates, -limit, limit)
    remaining, median = np.sqrt((clipped**2).sum(axis=1)), np.median(lengths)
    shorter = np.minimum(1, median / remaining)
    stretch = np.minimum(remaining, 2 * median).sum() / np.minimum(remaining, median).sum()
    expected = stretch * (members @ (clipped * shorter[:, None]))
    sums = clipped_sums(reading(updates), size, members, 3.0)
    np.testing.assert_allclose(sums.sums * sums.step, expected, atol=2 * limit * n / 2**16)
    units = rng.random(len(members)) < 0.5
    units[0] = True
    mean = stretch * (members[units] @ (clipped * shorter[:, None])).sum(axis=0) / members[units].sum()
    np.testing.assert_allclose(sums.mean(units), mean, atol=2 * limit * n / 2**16)


def test_updates_that_do_not_move_are_no_trouble() -> None:
    sums = clipped_sums(reading(np.zeros((3, 4))), 4, np.eye(3), 3.0)
    assert sums.mean(np.array([True, False, True])).tolist() == [0, 0, 0, 0]


@given(st.integers(1, 60), st.data())
def test_the_chance_of_a_dishonest_majority_is_hypergeometric(clients: int, data: st.DataObject) -> None:
    malicious = data.draw(st.integers(0, clients))
    drawn = data.draw(st.integers(1, clients))
    expected = hypergeom.sf((drawn + 1) // 2 - 1, clients, malicious, drawn)
    assert dishonest_majority(clients, malicious, drawn) == pytest.approx(expected, abs=1e-12)


def test_a_measured_mean_takes_no_preaggregator_and_checks_its_parameters() -> None:
    with pytest.raises(ConfigError, match="takes no pre-aggregators"):
        Aggregator("nnm+measured-mean")
    with pytest.raises(ConfigError, match="keep = 0"):
        Aggregator("measured-mean", {"keep": 0.0})
