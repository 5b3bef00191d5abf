"""Numbers as people read them."""

from __future__ import annotations

import math

NO_CLIENTS_TESTED = "unknown: no client has test samples of its own"


def plural(count: int | str, noun: str) -> str:
    """Return a number of things.

    >>> plural(1, "round"), plural(30, "round"), plural("10, 30", "round")
    ('1 round', '30 rounds', '10, 30 rounds')
    """
    return f"{count} {noun}" if str(count) == "1" else f"{count} {noun}s"


def duration(seconds: float) -> str:
    """Return a time.

    >>> duration(45), duration(200), duration(5400), duration(7200), duration(100_000)
    ('45 s', '3 min', '1 h 30 min', '2 h', '28 h')
    """
    if seconds < 59.5:
        return f"{max(1, round(seconds))} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    if not hours:
        return f"{minutes} min"
    if hours >= 10:
        return f"{round(seconds / 3600)} h"
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def loss_text(loss: float) -> str:
    """Return a loss as text; one that is no number belongs to a model that has diverged.

    >>> loss_text(0.1234), loss_text(float("nan")), loss_text(3e38)
    ('0.123', 'diverged', '3.00e+38')
    """
    if not math.isfinite(loss):
        return "diverged"
    return f"{loss:.3f}" if loss < 1e6 else f"{loss:.2e}"
