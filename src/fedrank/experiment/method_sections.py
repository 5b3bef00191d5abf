"""The sections on the method, the formats of its messages, and the attack."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator

from fedrank.aggregators import ASSUMPTIONS, RULES, Aggregator, AssumedMalicious, is_assumption
from fedrank.attacks import ATTACKS, attack_named
from fedrank.ballots import BallotFormat
from fedrank.experiment.former_names import renewed_attack, renewed_method
from fedrank.experiment.sections import Section, checked
from fedrank.parameters import did_you_mean, parameters_of

BORDA = "borda"


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
