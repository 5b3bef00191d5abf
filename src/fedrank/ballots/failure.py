"""How likely a vote fails: the paper's upper bound, and the exact probability that it bounds.

In the simplified vote each of n clients says whether a good edge belongs in the subnetwork. A benign client
says yes with probability p; a share alpha of the clients is malicious and says the opposite of what it found.
The vote fails if at most half of the clients are in favor.
"""

from __future__ import annotations

import math

import numpy as np

from fedrank.errors import ConfigError


def failure_bound(n: int, p: float, alpha: float) -> float:
    """Return the published bound, 1/2 sqrt(n p (1-p) / (n (p + alpha (1 - 2p) - 1/2))^2), at most 1.

    It says nothing where more clients than not are expected to vote against the edge.

    >>> round(failure_bound(25, 0.8, 0.2), 3)
    0.222
    """
    _check(n, p, alpha)
    lead = n * (p + alpha * (1 - 2 * p) - 0.5)
    if lead <= 0:
        return 1.0
    return min(1.0, 0.5 * math.sqrt(n * p * (1 - p)) / lead)


def failure_probability(n: int, p: float, alpha: float) -> float:
    """Return the exact probability that at most half of the clients are in favor of a good edge.

    The bound holds for whole clients: see `whole_share`.

    >>> round(failure_probability(25, 0.8, 0.2), 4)
    0.0152
    """
    _check(n, p, alpha)
    malicious = round(whole_share(n, alpha) * n)
    at_most = np.cumsum(_binomial(n - malicious, p))  # benign clients in favor
    left = n // 2 - np.arange(malicious + 1)  # of benign ones, when so many malicious clients are in favor
    fails = np.where(left >= 0, at_most[np.clip(left, 0, n - malicious)], 0.0)
    return min(1.0, float(_binomial(malicious, 1 - p) @ fails))


def whole_share(n: int, alpha: float) -> float:
    """Return the least share of n clients that is one of whole clients and not less than alpha.

    >>> whole_share(25, 0.1)  # 3 of 25
    0.12
    """
    _check(n, 0, alpha)
    return math.ceil(alpha * n - 1e-9) / n


def _binomial(trials: int, p: float) -> np.ndarray:
    """Return the probabilities of 0, 1, ..., trials successes."""
    k = np.arange(trials + 1)
    if p in (0, 1):
        return np.asarray(k == (trials if p else 0), np.float64)
    log_factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, trials + 1)))])
    choices = log_factorials[trials] - log_factorials[k] - log_factorials[trials - k]
    return np.asarray(np.exp(choices + k * math.log(p) + (trials - k) * math.log1p(-p)))


def _check(n: int, p: float, alpha: float) -> None:
    if not isinstance(n, int) or n < 1 or not 0 <= p <= 1 or not 0 <= alpha <= 1:
        raise ConfigError(
            f"n must be an integer from 1, p and alpha between 0 and 1; got n={n}, p={p}, alpha={alpha}"
        )
