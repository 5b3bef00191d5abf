"""Parameters of rules and attacks: the keyword-only arguments of their functions, checked before use."""

from __future__ import annotations

import contextlib
import difflib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from fedrank.errors import ConfigError, FedrankError

DEMANDS = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "string_type": "must be a string",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be a table",
}
"""What pydantic's types of errors demand of a value."""
MOST_LISTED = 40
"""An error names no more alternatives than this."""


def parameters_of(function: Callable[..., Any]) -> type[BaseModel]:
    """Return a model of a function's keyword-only arguments: names, types, bounds, defaults, descriptions."""
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY:
            if parameter.default is parameter.empty:
                raise ConfigError(f"the parameter {name!r} of {function.__qualname__} needs a default")
            fields[name] = (hints.get(name, Any), parameter.default)
    strict = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    return create_model(function.__name__, __config__=strict, **fields)


def checked(function: Callable[..., Any], given: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """Return those of the given parameters that are not the defaults; raise ConfigError for a wrong one.

    >>> def push(view, *, scale: float = 2.0): ...
    >>> checked(push, {"scale": 3.0}, "the attack 'push'")
    {'scale': 3.0}
    >>> checked(push, {"scall": 3.0}, "the attack 'push'")
    Traceback (most recent call last):
    fedrank.errors.ConfigError: the attack 'push' has no parameter 'scall'; did you mean 'scale'?
    """
    model = parameters_of(function)
    try:
        values = model.model_validate(dict(given)).model_dump()
    except ValidationError as error:
        problem = error.errors()[0]
        name = str(problem["loc"][0])
        if problem["type"] == "extra_forbidden":
            known = list(model.model_fields)
            hint = did_you_mean(name, known) if known else "; it takes none"
            raise ConfigError(f"{owner} has no parameter {name!r}{hint}") from None
        raise ConfigError(f"{owner}: {name} = {problem['input']!r}: {demand_of(problem)}") from None
    return {name: value for name, value in values.items() if value != model.model_fields[name].default}


def demand_of(problem: Any) -> str:
    """Return what one problem of a ValidationError demands, in the words of all other errors."""
    demand = DEMANDS.get(problem["type"], "").format(**problem.get("ctx", {}))
    message: str = demand or problem["msg"].removeprefix("Value error, ")
    if message.startswith("Input should be "):
        message = message.replace("Input should be", "must be", 1)
    return message[0].lower() + message[1:]


def described(function: Callable[..., Any]) -> str:
    """Return a function's parameters with defaults and meanings, as text for people."""
    fields = parameters_of(function).model_fields.items()
    return "".join(f" {name} = {field.default!r}: {field.description}." for name, field in fields)


def summary_of(function: Callable[..., Any]) -> str:
    """Return the first line of a function's docstring, which it must have."""
    text = inspect.getdoc(function)
    if not text:
        raise ConfigError(f"{function.__name__} needs a docstring: its first line is shown in lists")
    return text.splitlines()[0]


def same_function(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Return whether one is the other, perhaps defined again, as in a notebook.

    >>> same_function(len, len), same_function(len, max)
    (True, False)
    """
    return (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)


@contextlib.contextmanager
def named_failure(owner: str) -> Iterator[None]:
    """Name whose function it was that raised an exception.

    >>> with named_failure("the attack 'push'"):
    ...     [][0]
    Traceback (most recent call last):
    fedrank.errors.ConfigError: the attack 'push' failed: IndexError: list index out of range
    """
    try:
        yield
    except FedrankError:
        raise
    except Exception as error:
        raise ConfigError(f"{owner} failed: {type(error).__name__}: {error}") from error


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint to append to an error about an unknown word.

    >>> did_you_mean("bord", ["borda", "mean"])
    "; did you mean 'borda'?"
    """
    names = list(known)
    if close := difflib.get_close_matches(word, names, n=1):
        return f"; did you mean {close[0]!r}?"
    more = f" and {len(names) - MOST_LISTED:,} more" if len(names) > MOST_LISTED else ""
    return f"; known: {', '.join(names[:MOST_LISTED])}{more}"
