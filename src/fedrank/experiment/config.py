"""An experiment's configuration: TOML files, presets and flags, validated before anything runs."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import tomli_w
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import to_json

from fedrank.aggregators import ASSUMPTIONS, RULES, Aggregator, AssumedMalicious, is_assumption
from fedrank.attacks import ATTACKS, Target, attack_named
from fedrank.ballots import BallotFormat
from fedrank.errors import ConfigError
from fedrank.experiment.former_names import former_attack, former_method, renewed_attack, renewed_method
from fedrank.experiment.sections import (
    DataSection,
    LocalSection,
    NetworkSection,
    Section,
    checked,
    with_own_defaults,
)
from fedrank.importing import imported_module
from fedrank.parameters import demand_of, did_you_mean, parameters_of

BORDA = "borda"
NAMED = ("data", "network")
"""Tables that may be given as a string, which is their name."""


class MethodSection(Section):
    """The federated algorithm."""

    name: Literal["frl", "fedavg", "signsgd", "topk"] = "frl"
    vote: str | dict[str, Any] = "measured-mean"
    aggregator: str | dict[str, Any] = "mean"
    share: float = Field(default=0.1, gt=0, le=1)
    server_rate: float = Field(default=0.003, gt=0)
    assumed_malicious: AssumedMalicious = 0.4
    memory: int = Field(default=1024, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _has_present_names(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        renewed = renewed_method(values)
        # In the paper, robust rules for weights know the actual number; a vote never does.
        renewed.setdefault("assumed_malicious", 0.4 if renewed.get("name", "frl") == "frl" else "actual")
        return renewed

    @field_validator("aggregator", "vote")
    @classmethod
    def _is_a_rule(cls, value: str | dict[str, Any], info: ValidationInfo) -> str | dict[str, Any]:
        """Validate a rule; drop parameters that equal their defaults."""
        if value == BORDA:
            return BORDA
        known = [*(name for name, rule in RULES.items() if not rule.is_preaggregator), BORDA]
        named = value if isinstance(value, str) else str(value.get("name"))
        if _trusts(info) and not {*named.split("+")} <= RULES.keys():
            return value
        if isinstance(value, str) and "+" not in value and value not in known:
            raise ValueError(f"unknown rule{did_you_mean(value, known)}")
        rule = checked(lambda: Aggregator.of(value))
        return {"name": rule.name, **rule.parameters} if rule.parameters else rule.name

    @field_validator("assumed_malicious", mode="before")
    @classmethod
    def _is_a_share_or_a_number(cls, value: Any) -> Any:
        if not is_assumption(value):
            raise ValueError(f"must be {ASSUMPTIONS}")
        return value

    @model_validator(mode="after")
    def _uses_its_rule(self) -> Self:
        if self.aggregator != "mean" and self.name not in ("fedavg", "topk"):
            raise ValueError(f"{self.name} takes no aggregator")
        if self.aggregator == BORDA:
            raise ValueError("'borda' counts rankings and cannot aggregate weights; use 'mean'")
        if self.name == "frl" and self.assumed_malicious == "actual":
            raise ValueError("assumed_malicious = 'actual' is for methods that train weights; give a share")
        return self


class WireSection(Section):
    """The formats of ballots and broadcasts; see `fedrank.ballots.BallotFormat`."""

    ballots: str = "exact packed"
    broadcasts: str = "exact packed"

    @field_validator("ballots", "broadcasts")
    @classmethod
    def _is_a_kind(cls, words: str) -> str:
        return checked(lambda: str(BallotFormat.parse(words)))

    @model_validator(mode="after")
    def _clients_need_the_whole_ranking(self) -> Self:
        if self.broadcasts.startswith("top"):
            raise ValueError(f"broadcasts is {self.broadcasts!r}, but clients need the whole ranking")
        return self


class AttackSection(Section):
    """The attack of malicious clients. Further keys are parameters of the attack."""

    model_config = ConfigDict(extra="allow")

    name: str = "none"
    share: float = Field(default=0.0, ge=0, lt=1)
    redraw: bool = True
    lies: Literal["push", "stall"] = "push"

    @field_validator("name")
    @classmethod
    def _is_known(cls, name: str, info: ValidationInfo) -> str:
        return name if name == "none" or _trusts(info) else checked(lambda: attack_named(name).name)

    @model_validator(mode="after")
    def _both_or_neither(self) -> Self:
        if self.name != "none" and self.share == 0:
            raise ValueError(f"attack.name = {self.name!r} needs attack.share greater than 0")
        if self.name == "none" and self.share > 0:
            raise ValueError(f"attack.share = {self.share} needs attack.name; 'fedrank attacks' lists them")
        return self

    @model_validator(mode="before")
    @classmethod
    def _has_present_names(cls, values: Any) -> Any:
        return renewed_attack(values) if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _takes_its_parameters(self) -> Self:
        """Reject unknown parameters; drop parameters that equal their defaults."""
        if self.name not in {"none", *ATTACKS}:
            return self
        given = self.parameters
        defaults = {} if self.name == "none" else _defaults(self.name)
        if unknown := sorted(given.keys() - defaults.keys()):
            known = [*type(self).model_fields, *defaults]
            raise ValueError(f"unknown key 'attack.{unknown[0]}'{did_you_mean(unknown[0], known)}")
        if given:
            checked(lambda: attack_named(self.name).having(**given))
        for name, default in defaults.items():
            if given.get(name) == default:
                del given[name]
        return self

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the attack that are not its defaults."""
        return self.model_extra or {}


def _defaults(attack: str) -> dict[str, Any]:
    fields = parameters_of(attack_named(attack).function).model_fields
    return {name: field.default for name, field in fields.items()}


def _trusts(info: ValidationInfo) -> bool:
    """Return whether names may be unknown, because the modules that register them have not been imported."""
    return bool(info.context)


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
