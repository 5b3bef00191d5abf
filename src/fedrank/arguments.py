"""Checks of arguments that users give in Python, each with one sentence for what is wrong."""

from __future__ import annotations

import math
import operator
from dataclasses import MISSING, fields, is_dataclass
from numbers import Real
from typing import Any

from fedrank.errors import ConfigError, FedrankError

LONGEST = 80
"""A longer value is named by its type."""


def whole_number(name: str, value: Any, least: int = 0, error: type[FedrankError] = ConfigError) -> int:
    """Return a whole number that a user gave.

    >>> whole_number("rounds", 1.5, least=1)
    Traceback (most recent call last):
    fedrank.errors.ConfigError: rounds must be a whole number, got 1.5
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise error(f"{name} must be a whole number, got {shown(value)}") from None
    if number < least:
        raise error(f"{name} must be at least {least}, got {number}")
    return number


def is_number(value: Any) -> bool:
    """Return whether something is a real number."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_number(
    name: str,
    value: Any,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    error: type[FedrankError] = ConfigError,
) -> None:
    """Raise an error unless a user gave a finite number within these bounds.

    >>> check_number("momentum", 2, least=0, below=1)
    Traceback (most recent call last):
    fedrank.errors.ConfigError: momentum must be at least 0 and less than 1, got 2
    """
    if not is_number(value):
        raise error(f"{name} must be a number, got {shown(value)}")
    bounds = (
        ("more than", above, operator.gt),
        ("at least", least, operator.ge),
        ("at most", most, operator.le),
        ("less than", below, operator.lt),
    )
    given = [(word, bound, holds) for word, bound, holds in bounds if bound is not None]
    if not math.isfinite(value) or not all(holds(value, bound) for _, bound, holds in given):
        demand = " and ".join(f"{word} {bound:g}" for word, bound, _ in given)
        raise error(f"{name} must be {demand or 'finite'}, got {value}")


def check_flag(name: str, value: Any, error: type[FedrankError] = ConfigError) -> None:
    """Raise an error unless a user gave True or False.

    >>> check_flag("balanced", "no")
    Traceback (most recent call last):
    fedrank.errors.ConfigError: balanced must be True or False, got 'no'
    """
    if not isinstance(value, bool):
        raise error(f"{name} must be True or False, got {shown(value)}")


def check_kind(
    name: str, value: Any, kind: Any, wanted: str, error: type[FedrankError] = ConfigError
) -> None:
    """Raise an error unless a user gave something of the wanted kind.

    >>> check_kind("adversary", "mirror", dict, "an Adversary")
    Traceback (most recent call last):
    fedrank.errors.ConfigError: adversary must be an Adversary, got 'mirror'
    """
    if not isinstance(value, kind):
        raise error(f"{name} must be {wanted}, got {shown(value)}")


def changed_settings(settings: Any, *omitted: str) -> list[str]:
    """Return `name=value` for the fields of a data class that differ from their defaults.

    >>> from fedrank.nn import LocalTraining
    >>> changed_settings(LocalTraining(epochs=2))
    ['epochs=2']
    """
    found = []
    for field in fields(settings):
        value = getattr(settings, field.name)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if field.name not in omitted and not (value is default or value == default):
            inner = (
                f"{type(value).__name__}({', '.join(changed_settings(value))})" if is_dataclass(value) else ""
            )
            found.append(f"{field.name}={inner or shown(value)}")
    return found


def shown(value: Any) -> str:
    """Return a value as error messages show it: in one short line.

    >>> shown("mirror"), shown(list(range(100)))
    ("'mirror'", 'a list')
    """
    text = repr(value)
    if len(text) <= LONGEST and "\n" not in text and " object at 0x" not in text:
        return text
    return kind_of(value)


def kind_of(value: Any) -> str:
    """Return a value's type with its article.

    >>> kind_of([1, 2])
    'a list'
    """
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"
