"""How likely a vote fails: the published bound and the exact probability."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fedrank.ballots.failure import failure_bound, failure_probability, whole_share
from fedrank.cli import app
from fedrank.errors import ConfigError


def test_a_large_vote_needs_no_large_memory() -> None:
    assert failure_probability(100_000, 1.0, 0.1) == 0.0
    assert failure_probability(100_000, 1.0, 0.5) == 1.0
    assert CliRunner().invoke(app, ["bound", "-n", "100000"]).exit_code == 0


def test_shares_that_are_the_same_clients_are_told_once() -> None:
    told = CliRunner().invoke(app, ["bound", "-n", "1"]).stdout
    assert told.count("1 (100%)") == 1


@given(st.integers(1, 40), st.floats(0, 1), st.sampled_from([0.0, 0.1, 0.25, 0.5]))
def test_the_exact_failure_probability_is_that_of_a_sum_of_votes(n: int, p: float, alpha: float) -> None:
    malicious = next(count for count in range(n + 1) if count / n >= alpha)
    favor = [1.0]  # the probability of 0 votes in favor, then voter after voter
    for voter in range(n):
        q = 1 - p if voter < malicious else p
        favor = [
            (favor[k] * (1 - q) if k < len(favor) else 0) + (favor[k - 1] * q if k else 0)
            for k in range(len(favor) + 1)
        ]
    exact = sum(share for k, share in enumerate(favor) if k <= n / 2)
    assert failure_probability(n, p, alpha) == pytest.approx(exact, abs=1e-9)


@given(st.integers(1, 200), st.floats(0.5, 1), st.floats(0, 0.5))
def test_the_published_bound_is_one(n: int, p: float, share: float) -> None:
    alpha = whole_share(n, share)
    assert share - 1e-6 <= alpha < share + 1 / n
    assert failure_probability(n, p, alpha) <= failure_bound(n, p, alpha) + 1e-9


def test_the_bound_is_the_published_formula() -> None:
    n, p, alpha = 25, 0.8, 0.2
    published = 0.5 * ((n * p * (1 - p)) / (n * (p + alpha * (1 - 2 * p) - 0.5)) ** 2) ** 0.5
    assert failure_bound(n, p, alpha) == pytest.approx(published)
    assert failure_bound(25, 0.5, 0.1) == 1.0
    with pytest.raises(ConfigError, match="n must be an integer from 1"):
        failure_bound(0, 0.5, 0.1)
    with pytest.raises(ConfigError, match="n must be an integer from 1"):
        failure_probability(2.5, 0.5, 0.1)  # type: ignore[arg-type]


def test_the_bound_is_printed_and_drawn_for_any_number_of_clients(tmp_path: Path) -> None:
    reply = CliRunner().invoke(app, ["bound", "-n", "10", "--plot", str(tmp_path / "bound.svg")])
    assert reply.exit_code == 0, reply.output
    exact = sum(math.comb(10, k) * 0.9**k * 0.1 ** (10 - k) for k in range(6))
    assert f"{exact:.3f}" in next(line for line in reply.output.splitlines() if "0 (0%)" in line)
    assert "10 clients" in (tmp_path / "bound.svg").read_text()
