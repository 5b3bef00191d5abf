"""Budgets of time: how long a sweep may work before it saves and stops."""

from __future__ import annotations

import re
import time

from fedrank.errors import ConfigError

_FORM = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)


def budget_seconds(text: str) -> float:
    """Return the seconds of a budget such as 2h, 90m, 45s or 1h30m.

    >>> budget_seconds("2h"), budget_seconds("1h30m")
    (7200.0, 5400.0)
    """
    match = _FORM.fullmatch(text)
    if not text or not match:
        raise ConfigError(
            f"--budget {text}: expected hours, minutes or seconds, such as 2h, 90m, 45s or 1h30m"
        )
    hours, minutes, seconds = (float(number or 0) for number in match.groups())
    if not (total := 3600 * hours + 60 * minutes + seconds):
        raise ConfigError(f"--budget {text}: must be more than 0")
    return total


def is_over(until: float | None, seconds: float = 0.0) -> bool:
    """Return whether work of so many seconds would end after a point in time, as `time.time()` gives it.

    The clock on the wall counts, because all processes of a sweep share it, and a suspended laptop's budget
    goes on.
    """
    return until is not None and time.time() + seconds >= until
