"""Grids: every combination of some settings, times seeds, as the runs of a sweep. Read from a TOML file."""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrank.errors import ConfigError
from fedrank.experiment.config import Experiment, preset_text
from fedrank.experiment.results import NUMBERS, STATE
from fedrank.experiment.sweep import SEED, Cell, load_base
from fedrank.parameters import did_you_mean

BASES = ("preset", "config")
KEYS = (*BASES, "seeds", "rows", "columns", "settings", "grid")
EXAMPLE = 'such as "local.epochs" = [1, 5]'
LABELED = 'such as {none = {}, "mirror 20%" = {"attack.name" = "mirror", "attack.share" = 0.2}}'


@dataclass(frozen=True)
class Choice:
    """A value of an axis: its label, the settings that it stands for, and perhaps another base."""

    label: str
    settings: Mapping[str, Any]
    base: str | None = None


@dataclass(frozen=True)
class Axis:
    """What a grid varies: a name and some choices."""

    name: str
    choices: tuple[Choice, ...]


@dataclass(frozen=True)
class Grid:
    """The runs of a grid, and which of their coordinates make the rows and columns of its table."""

    name: str
    cells: tuple[Cell, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> Grid:
        """Read a grid from a TOML file, and validate every combination."""
        try:
            values = tomllib.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            raise ConfigError(f"{path}: no such file") from None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be read ({error})") from error
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise ConfigError(f"{path}: invalid TOML ({error})") from None
        try:
            return _grid(path, values)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error.__cause__


def whole_seeds(seeds: Any, first: int = 0) -> tuple[int, ...]:
    """Return seeds: those of a list, or so many from the first one on.

    >>> whole_seeds(3, first=7), whole_seeds([3, 5])
    ((7, 8, 9), (3, 5))
    """
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        if seeds < 1:
            raise ConfigError(f"seeds must be at least 1, got {seeds}")
        return tuple(range(first, first + seeds))
    if not isinstance(seeds, list | tuple | range) or not seeds:
        raise ConfigError(f"seeds must be a number of seeds or a list of them, got {seeds!r}")
    for seed in seeds:
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**32:
            raise ConfigError(f"a seed must be a whole number from 0 to {2**32 - 1}, got {seed!r}")
    check_distinct("seeds has", seeds)
    return tuple(seeds)


def with_seeds(cells: Iterable[Cell], seeds: int) -> list[Cell]:
    """Return every run with several seeds: its own one and those after it."""
    return [_seeded(cell, seed) for cell in cells for seed in whole_seeds(seeds, cell.experiment.seed)]


def _seeded(cell: Cell, seed: int) -> Cell:
    return Cell({**cell.coordinates, SEED: str(seed)}, cell.preset, (*cell.settings, f"{SEED}={seed}"))


def check_distinct(owner: str, names: Sequence[Any]) -> None:
    """Raise ConfigError for something that is listed twice."""
    if twice := [name for number, name in enumerate(names) if name in names[:number]]:
        raise ConfigError(f"{owner} {twice[0]!r} twice")


def _grid(path: Path, values: dict[str, Any]) -> Grid:
    if unknown := sorted(values.keys() - set(KEYS)):
        raise ConfigError(f"unknown key {unknown[0]!r}{did_you_mean(unknown[0], KEYS)}")
    base = _base(values, path.parent)
    if base is None:
        raise ConfigError('the base is missing: expected preset = "digits", or config = "my.toml"')
    fixed = _flat(_table(values, "settings"))
    axes = tuple(_axes(_table(values, "grid"), path.parent))
    _check_axes(axes, fixed)
    seeds = whole_seeds(values.get("seeds", 1), load_base(base).seed)
    rows, columns = _layout(values, [axis.name for axis in axes])
    cells = tuple(
        _cell(base, fixed, axes, choices, seed)
        for choices in itertools.product(*(axis.choices for axis in axes))
        for seed in seeds
    )
    return Grid(path.stem, cells, rows, columns)


def _base(values: Mapping[str, Any], folder: Path) -> str | None:
    """Return the preset, or the path of the configuration, that a table names."""
    if not (given := [key for key in BASES if key in values]):
        return None
    if len(given) > 1:
        raise ConfigError("expected either preset or config, got both")
    name = values[given[0]]
    if not isinstance(name, str):
        raise ConfigError(f"{given[0]} must be a name, got {name!r}")
    if given[0] == "preset":
        preset_text(name)
        return name
    if not name.endswith(".toml"):
        raise ConfigError(f"config = {name!r}: expected the path of a TOML file")
    path = folder / name
    if not path.exists():
        raise ConfigError(f"config = {name!r}: no such file")
    return str(path)


def _table(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    table = values.get(key, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{key} must be a table, [{key}], got {table!r}")
    return table


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by their full names: those of a section may be written as a table of its name."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, dict) and "." not in key:
            found |= {f"{key}.{inner}": each for inner, each in value.items()}
        else:
            found[key] = value
    for key in found:
        if not re.fullmatch(r"\w+(\.\w+)*", key):
            raise ConfigError(f"{key!r} is not the name of a setting, such as local.epochs")
    return found


def _axes(table: Mapping[str, Any], folder: Path) -> Iterator[Axis]:
    for name, values in table.items():
        if isinstance(values, list):
            yield Axis(name, tuple(Choice(_label(value), _flat({name: value})) for value in values))
        elif isinstance(values, dict) and values and all(isinstance(each, list) for each in values.values()):
            # an unquoted key with a dot: TOML reads local.epochs as a table
            yield from _axes({f"{name}.{inner}": each for inner, each in values.items()}, folder)
        elif isinstance(values, dict) and (single := _single(name, values)):
            key, value = single
            raise ConfigError(
                f"[grid] {f'{name}.{key}'!r}: expected a list of values, such as [{_literal(value)}], "
                f"got {_literal(value)}"
            )
        elif isinstance(values, dict):
            yield Axis(name, tuple(_choice(name, label, each, folder) for label, each in values.items()))
        else:
            raise ConfigError(f"[grid] {name!r}: expected a list of values, {EXAMPLE}, got {values!r}")


def _single(section: str, values: Mapping[str, Any]) -> tuple[str, Any] | None:
    """Return the first setting of a configuration's section that has one value instead of a list."""
    if section not in Experiment.model_fields:
        return None
    return next(((key, value) for key, value in values.items() if not isinstance(value, dict | list)), None)


def _choice(axis: str, label: str, settings: Any, folder: Path) -> Choice:
    if not isinstance(settings, dict):
        raise ConfigError(
            f"[grid] {axis!r}: expected labels with their settings, {LABELED}, got {settings!r}"
        )
    try:
        base = _base(settings, folder)
    except ConfigError as error:
        raise ConfigError(f"[grid] {axis!r}, {label!r}: {error}") from error
    return Choice(label, _flat({key: value for key, value in settings.items() if key not in BASES}), base)


def _check_axes(axes: Sequence[Axis], fixed: Mapping[str, Any]) -> None:
    owners: dict[str, str] = {}
    check_distinct("[grid] has the axis", [axis.name for axis in axes])
    if SEED in fixed:
        raise ConfigError("[settings] has 'seed'; write seeds = [...] at the top")
    for axis in axes:
        if not axis.choices:
            raise ConfigError(f"[grid] {axis.name!r} has no values")
        check_distinct(f"[grid] {axis.name!r} has", [choice.label for choice in axis.choices])
        if axis.name in (*NUMBERS, STATE):
            raise ConfigError(f"[grid] {axis.name!r}: results have a column of that name; choose another")
        keys = dict.fromkeys(key for choice in axis.choices for key in choice.settings)
        if axis.name == SEED or SEED in keys:
            raise ConfigError(f"[grid] {axis.name!r} sets 'seed'; write seeds = [...] at the top")
        for key in [*keys, *(["the base"] if any(choice.base for choice in axis.choices) else [])]:
            if key in owners:
                raise ConfigError(f"[grid] {key!r} is set by two axes, {owners[key]!r} and {axis.name!r}")
            owners[key] = axis.name


def _layout(values: Mapping[str, Any], names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the axes that make rows and columns: by default the first one, and the others."""
    given = {key: values[key] for key in ("rows", "columns") if key in values}
    for key, axes in given.items():
        if not isinstance(axes, list):
            raise ConfigError(f"{key} must be a list of axes, got {axes!r}")
        for axis in axes:
            if axis not in names:
                raise ConfigError(f"{key}: unknown axis {axis!r}{did_you_mean(str(axis), names)}")
    if not given:
        return tuple(names[:1]), tuple(names[1:])
    named = [axis for axes in given.values() for axis in axes]
    check_distinct("rows and columns have the axis", named)
    rest = [name for name in names if name not in named]
    if len(given) == 2 and rest:
        raise ConfigError(f"the axis {rest[0]!r} is neither in rows nor in columns")
    return tuple(given.get("rows", rest)), tuple(given.get("columns", rest))


def _cell(
    base: str, fixed: Mapping[str, Any], axes: Sequence[Axis], choices: Sequence[Choice], seed: int
) -> Cell:
    """Return the run of one combination, which has been validated."""
    coordinates = {axis.name: choice.label for axis, choice in zip(axes, choices, strict=True)}
    settings = dict(fixed)
    for choice in choices:
        base = choice.base or base
        settings |= choice.settings
    words = tuple(f"{key}={_literal(value)}" for key, value in settings.items())
    cell = _seeded(Cell(coordinates, base, words), seed)
    try:
        cell.experiment.flat()  # an experiment is validated when it is made
    except ConfigError as error:
        message = str(error)
        for word in cell.settings:
            message = message.replace(f"--set {word}: ", "")
        place = ", ".join(
            f"{name} = {label}"
            for name, label in coordinates.items()
            if not message.startswith(f"{name} = ")  # the message says it already
        )
        raise ConfigError(f"{place}: {message}" if place else message) from error
    return cell


def _label(value: Any) -> str:
    """Return what a table calls a value.

    >>> _label("borda"), _label(0.2), _label({"name": "clip", "limit": 2.0})
    ('borda', '0.2', 'clip, limit=2.0')
    """
    if isinstance(value, dict):
        rest = [f"{key}={each}" for key, each in value.items() if key != "name"]
        return ", ".join([str(value["name"]), *rest] if "name" in value else rest)
    return value if isinstance(value, str) else _literal(value)


def _literal(value: Any) -> str:
    """Return a value as TOML, on one line.

    >>> _literal({"name": "trimmed-mean", "some": [1, 2.5, True]})
    '{"name" = "trimmed-mean", "some" = [1, 2.5, true]}'
    """
    match value:
        case dict():
            inner = (f"{_literal(str(key))} = {_literal(each)}" for key, each in value.items())
            return f"{{{', '.join(inner)}}}"
        case list():
            return f"[{', '.join(map(_literal, value))}]"
        case str():
            return json.dumps(value, ensure_ascii=False)
        case bool():
            return str(value).lower()
    return str(value)
