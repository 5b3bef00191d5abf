"""An experiment's configuration: TOML files, presets and flags, validated before anything runs."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Self

import tomli_w
from pydantic import (
    BaseModel,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import to_json

from fedrank.attacks import ATTACKS, Target
from fedrank.errors import ConfigError
from fedrank.experiment.former_names import former_attack, former_method
from fedrank.experiment.method_sections import AttackSection, MethodSection, WireSection
from fedrank.experiment.sections import (
    DataSection,
    LocalSection,
    NetworkSection,
    Section,
    with_own_defaults,
)
from fedrank.importing import imported_module
from fedrank.parameters import demand_of, did_you_mean

NAMED = ("data", "network")
"""Tables that may be given as a string, which is their name."""


class Experiment(Section):
    """All settings that determine the result of a run."""

    FILE: ClassVar[str] = "config.toml"

    name: str = Field(pattern=r"^[\w.-]+$")
    seed: int = Field(ge=0, lt=2**32)
    rounds: int = Field(ge=1)
    clients_per_round: int = Field(ge=1)
    evaluate_every: int = Field(default=1, ge=1)
    data: DataSection
    network: NetworkSection
    local: LocalSection
    method: MethodSection = MethodSection()
    wire: WireSection = WireSection()
    attack: AttackSection = AttackSection()
    imports: tuple[str, ...] = Field(default=(), strict=False)
    """Modules that register attacks and rules of one's own."""

    @model_validator(mode="before")
    @classmethod
    def _completes_own_networks(cls, values: Any) -> Any:
        return with_own_defaults(values) if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _enough_clients(self) -> Self:
        if self.data.clients is not None and self.clients_per_round > self.data.clients:
            raise ValueError(
                f"clients_per_round is {self.clients_per_round}, but data.clients is {self.data.clients}"
            )
        return self

    @model_validator(mode="after")
    def _attack_fits(self) -> Self:
        if self.attack.name in ATTACKS:
            target = ATTACKS[self.attack.name].target
            sent = Target.RANKINGS if self.method.name == "frl" else Target.WEIGHTS
            if target not in (sent, Target.EITHER):
                raise ValueError(
                    f"the attack {self.attack.name!r} targets {target}, but {self.method.name} sends {sent}"
                )
        return self

    def flat(self) -> dict[str, Any]:
        """Return all settings by their full names, such as local.epochs."""
        return super().flat() | {"imports": ", ".join(self.imports)}

    def fingerprint(self) -> str:
        """Return a digest of the settings that determine the result of a round."""
        free = {"name": True, "rounds": True, "evaluate_every": True, "imports": True}
        values = self.model_dump(exclude=free)
        del values["method"]["memory"]
        if self.method.name != "frl":  # the vote does not apply; this was its default when digests were made
            values["method"]["vote"] = "screened-mean"
        if self.attack.lies == "push":  # older versions had no such setting
            del values["attack"]["lies"]
        if self.local.precision == "float32":  # older versions had no such setting
            del values["local"]["precision"]
        if not self.local.balanced:
            del values["local"]["balanced"]
        if not self.data.test_shards:  # older versions had no such setting
            del values["data"]["test_shards"]
        if not self.network.fix:
            del values["network"]["fix"]
        if self.data.preprocess is None:
            del values["data"]["preprocess"]
        values["method"] = former_method(values["method"])
        values["attack"] = former_attack(values["attack"])
        return hashlib.sha256(to_json(values)).hexdigest()

    def to_toml(self) -> str:
        """Return the whole configuration as TOML."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))

    def import_modules(self) -> None:
        """Import the modules with parts of the user's own, which runs their code."""
        for name in self.imports:
            imported_module(name)


def preset_names() -> list[str]:
    """Return the names of the built-in presets."""
    folder = resources.files("fedrank.experiment") / "presets"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir())


def preset_text(name: str) -> str:
    """Return the text of a built-in preset."""
    if name not in preset_names():
        raise ConfigError(f"unknown preset {name!r}{did_you_mean(name, preset_names())}")
    return (resources.files("fedrank.experiment") / "presets" / f"{name}.toml").read_text("utf-8")


def load_preset(name: str, settings: Sequence[str] = (), imports: Iterable[str] = ()) -> Experiment:
    """Return a built-in preset, overridden by `settings` (key=value)."""
    return parse(preset_text(name), f"preset {name}", settings, imports)


def load_file(
    path: Path, settings: Sequence[str] = (), imports: Iterable[str] = (), *, run_code: bool = True
) -> Experiment:
    """Return the configuration in a TOML file, overridden by `settings` (key=value)."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        hint = did_you_mean(path.name, preset_names())
        raise ConfigError(f"{path}: no such file. To use a preset, pass --preset{hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from error
    return parse(text, str(path), settings, imports, run_code=run_code)


def parse(
    text: str,
    origin: str,
    settings: Sequence[str] = (),
    imports: Iterable[str] = (),
    *,
    run_code: bool = True,
) -> Experiment:
    """Validate a configuration's TOML text.

    Parameters
    ----------
    text, settings : the TOML text, overridden by key=value.
    origin : names the text in error messages.
    imports : modules with attacks and rules of the user's own, beside those that the text names.
    run_code : import these modules, which runs their code. Otherwise names that only they know are accepted.
    """
    try:
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{origin}: invalid TOML ({error})") from None
    for key in NAMED:
        if isinstance(values.get(key), str):
            values[key] = {"name": values[key]}
    locations: dict[str, str] = {}
    for setting in settings:
        locations[_override(values, setting)] = f"--set {setting}"
    modules = _modules(values, imports)
    if run_code:
        for name in modules:
            imported_module(name)
    try:
        return Experiment.model_validate(values, context=modules and not run_code)
    except ValidationError as error:
        problems = _independent(error.errors())
        raise ConfigError(
            "\n".join(_explain(problem, origin, text, locations) for problem in problems)
        ) from None


def _independent(problems: Sequence[Any]) -> list[Any]:
    """Return the problems without those that others cause: a network of one's own brings defaults along."""
    if not any(problem["loc"][:2] == ("network", "name") for problem in problems):
        return list(problems)
    return [each for each in problems if not (each["type"] == "missing" and each["loc"][0] == "local")]


def _modules(values: dict[str, Any], more: Iterable[str]) -> list[str]:
    """Return the modules to import, which are now among the values; validation rejects what is no list."""
    modules = values.get("imports", [])
    if not (isinstance(modules, list) and all(isinstance(name, str) for name in modules)):
        return []
    values["imports"] = modules = list(dict.fromkeys((*modules, *more)))
    return modules


def _override(values: dict[str, Any], setting: str) -> str:
    """Set a key=value in nested tables; return the key."""
    key, equals, literal = setting.partition("=")
    key = key.strip()
    if not equals or not re.fullmatch(r"\w+(\.\w+)*", key) or "\n" in literal:
        raise ConfigError(f"--set {setting}: expected key=value, such as local.epochs=5")
    try:
        value = tomllib.loads(f"value = {literal}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        value = literal.strip()  # a bare word is a string
    if key in NAMED and isinstance(value, str):
        values[key] = {}
        key += ".name"
    *tables, last = key.split(".")
    for table in tables:
        values = values.setdefault(table, {})
        if not isinstance(values, dict):
            raise ConfigError(f"--set {setting}: {table!r} is a value, not a table of values")
    values[last] = value
    return key


def _explain(problem: Any, origin: str, text: str, locations: dict[str, str]) -> str:
    key = ".".join(str(part) for part in problem["loc"])
    location = locations.get(key) or _location(key, origin, text)
    if location == origin and key.removesuffix(".name") in NAMED:
        location = _location(key.removesuffix(".name"), origin, text)
    if problem["type"] == "extra_forbidden":
        *tables, last = problem["loc"]
        known = _known_keys(tables)
        return f"{location}: unknown key {key!r}{did_you_mean(str(last), known)}"
    if problem["type"] == "missing":
        table = key.rpartition(".")[0]
        return f"{_location(table, origin, text)}: {key!r} is missing"
    message = demand_of(problem)
    if problem["type"] == "model_type":
        message = f"expected a table of settings, such as [{key}]"
    if not key:
        return f"{location}: {message}"
    if isinstance(problem["input"], dict):
        return f"{location}: {message}" if message.startswith(f"{key}.") else f"{location}: {key}: {message}"
    return f"{location}: {key} = {json.dumps(problem['input'], default=str)}: {message}"


def _known_keys(tables: Sequence[int | str]) -> list[str]:
    section: type[BaseModel] = Experiment
    for table in tables:
        annotation = section.model_fields[str(table)].annotation
        assert isinstance(annotation, type)
        section = annotation
    return list(section.model_fields)


def _location(key: str, origin: str, text: str) -> str:
    """Return the origin and, if the key occurs in the text, its line."""
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[([^\]]+)\]", line):
            table = f"{header[1].strip()}."
            name = header[1].strip()
        elif assignment := re.match(r"\s*([\w.-]+)\s*=", line):
            name = table + assignment[1]
        else:
            continue
        if name == key:
            return f"{origin}, line {number}"
    return origin
