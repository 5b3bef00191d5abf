"""The description of a run with a model and data of one's own: what a configuration is to other runs.

It names the model by its import path and its layers, and the data by a digest. So a run can be read without
the code that made it, and a changed model or data is noticed.
"""

from __future__ import annotations

import enum
import hashlib
import math
from dataclasses import MISSING, asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import tomli_w
from pydantic import ConfigDict, Field
from pydantic_core import to_json
from torch import nn

from fedrank.aggregators import Aggregator
from fedrank.data import Federation
from fedrank.data.digest import data_digest
from fedrank.errors import ConfigError, ModelError, RunError
from fedrank.experiment.adversary import Adversary
from fedrank.experiment.records import read_toml
from fedrank.experiment.rounds import Schedule
from fedrank.experiment.sections import Section
from fedrank.importing import import_path, imported
from fedrank.methods import METHODS, Method
from fedrank.nn import LocalTraining, Network, Scores, Supernetwork, supernetwork
from fedrank.nn.rebuild import MissingModel, model_from, structure_digest
from fedrank.rank import Layout

FREE = ("name", "rounds", "evaluate_every", "network.source", "method.memory")
"""What may differ between two descriptions of the same run."""
BEFORE: dict[str, Any] = {"balanced": False, "precision": "float32"}
"""Settings of local training that earlier versions did not have, and what they did."""
SPOKEN = {
    "data.digest": "the data",
    "data.preprocess": "the preprocessing of the data",
    "network.layers": "the model's layers",
    "network.structure": "the model",
    "attack.clients": "the malicious clients",
}
DIFFER = {
    "layers": "layers differ",
    "structure": "modules differ",
    "seed": "seed differs",
    "keep": "share of edges to keep differs",
    "weights": "weights differ",
    "scores": "scores differ",
}
"""What makes a network another one, in the order in which it is noticed."""
FUNCTION = "function"
"""The key under which a function of one's own is named."""


class OwnData(Section):
    """Data of one's own: its size and its digest."""

    name: Literal["own"] = "own"
    clients: int
    samples: int
    classes: int
    digest: str
    preprocess: dict[str, Any]


class OwnNetwork(Section):
    """A supernetwork of a model of one's own."""

    source: str
    """The import path of the model's class."""
    structure: str
    seed: int
    keep: float
    weights: str
    scores: str
    layers: dict[str, list[int]]


class OwnMethod(Section):
    """A method and its settings, without the network and local training."""

    model_config = ConfigDict(extra="allow")

    name: str


class OwnAttack(Section):
    """An attack, perhaps of one's own, and the malicious clients."""

    name: str = "none"
    share: float = 0.0
    clients: list[int] = Field(default_factory=list)
    redraw: bool = True
    lies: str = "push"
    parameters: dict[str, Any] = Field(default_factory=dict)


class Description(Section):
    """All that is known of a run of `fedrank.train` without its code and data."""

    FILE: ClassVar[str] = "description.toml"

    name: str
    rounds: int
    clients_per_round: int
    evaluate_every: int
    data: OwnData
    network: OwnNetwork
    local: dict[str, Any]
    method: OwnMethod
    attack: OwnAttack

    @classmethod
    def of(
        cls,
        name: str,
        method: Method[Any],
        federation: Federation,
        schedule: Schedule,
        adversary: Adversary | None,
    ) -> Self:
        """Describe a run by its parts, before the adversary has poisoned any data."""
        return cls(
            name=name,
            rounds=schedule.rounds,
            clients_per_round=schedule.clients_per_round,
            evaluate_every=schedule.evaluate_every,
            data=describe_data(federation),
            network=_network(method.network),
            local=_plain_fields(getattr(method, "local", None)),
            method=OwnMethod(
                name=_method_name(method), **_plain_fields(method, without=("network", "local"))
            ),
            attack=_attack(adversary, len(federation.clients)),
        )

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a description."""
        return read_toml(cls, path)

    def to_toml(self) -> str:
        """Return the description as TOML."""
        return tomli_w.dumps(self.model_dump())

    def flat(self) -> dict[str, Any]:
        """Return all settings that people may want to read, by their full names, such as local.epochs."""
        shown = super().flat()
        layers: dict[str, list[int]] = shown.pop("network.layers")
        del shown["network.structure"], shown["attack.clients"]
        return shown | {"network.edges": sum(map(math.prod, layers.values()))}

    def _binding(self) -> dict[str, Any]:
        as_before = [(f"local.{key}", value) for key, value in BEFORE.items()]
        return {
            key: value
            for key, value in super().flat().items()
            if key not in FREE and (key, value) not in as_before
        }

    def fingerprint(self) -> str:
        """Return a digest of all that determines the result of a round."""
        return hashlib.sha256(to_json(self._binding())).hexdigest()

    def changes(self, now: Description) -> list[str]:
        """Say how another description differs from this one in what determines the result of a round."""
        mine, other = self._binding(), now._binding()
        different = [key for key in {**mine, **other} if mine.get(key) != other.get(key)]
        found = []
        if self.method.name != now.method.name:  # then its settings and local training are others, too
            found = [f"the method was {_spoken(self.method.name)} and is now {_spoken(now.method.name)}"]
            different = [key for key in different if not key.startswith(("method.", "local."))]
        return found + [
            f"{SPOKEN[key]} changed"
            if key in SPOKEN
            else f"{key} was {mine.get(key)!r} and is now {other.get(key)!r}"
            for key in different
        ]

    def rebuild(self, net: nn.Module | Supernetwork | None = None) -> Method[Any]:
        """Return the method, with the network of the given model or of the class that the run names.

        Without either, the network knows its edges but cannot compute.
        """
        kind = METHODS.get(self.method.name) or imported(self.method.name)
        known = _method_fields(kind, self.method.name)
        settings = {key: _revived(value) for key, value in (self.method.model_extra or {}).items()}
        if isinstance(settings.get("run"), str):
            settings["run"] = bytes.fromhex(settings["run"])
        if self.local:
            settings["local"] = LocalTraining(**BEFORE | self.local)
        if unknown := sorted(settings.keys() - known):
            raise RunError(f"{self.method.name} has no setting {unknown[0]!r} in this version")
        method: Method[Any] = kind(network=self.supernetwork(net), **settings)
        return method

    def supernetwork(self, net: nn.Module | Supernetwork | None = None) -> Supernetwork:
        """Return the supernetwork, if it has the digests that the run knows."""
        section = self.network
        if net is None:
            try:
                return self.supernetwork(_rebuilt(section.source))
            except ModelError as error:
                return self._bare(
                    f"the model could not be rebuilt: {error}. Pass it as fedrank.load(..., net=model)"
                )
        if isinstance(net, nn.Module):
            # a model that needs no fix is not changed by it
            settings = {"keep": section.keep, "weights": section.weights, "scores": section.scores}
            net = supernetwork(net, seed=section.seed, **settings, fix=True)  # type: ignore[arg-type]
        found = _network(net)
        if wrong := [key for key in DIFFER if getattr(found, key) != getattr(section, key)]:
            raise ModelError(f"{found.source} is not the model of this run: its {DIFFER[wrong[0]]}")
        return net

    def _bare(self, reason: str) -> Supernetwork:
        section = self.network
        shapes = [(name, tuple(shape)) for name, shape in section.layers.items()]
        missing, scores = MissingModel(dict(shapes), reason), Scores(section.scores)
        return Supernetwork(missing, Layout.of(shapes), section.seed, section.keep, section.weights, scores)


def _rebuilt(source: str) -> nn.Module:
    """Return a model of a class; containers such as nn.Sequential are empty without arguments."""
    model = model_from(source)
    if next(model.parameters(), None) is None:
        raise ModelError(f"its class, {type(model).__name__}, needs arguments")
    return model


def describe_data(federation: Federation) -> OwnData:
    """Describe the data of all clients."""
    dataset = federation.dataset
    return OwnData(
        clients=len(federation.clients),
        samples=len(dataset.labels),
        classes=dataset.classes,
        digest=data_digest(federation),
        preprocess=_plain_fields(dataset.preprocess),
    )


def _network(network: Network) -> OwnNetwork:
    if not isinstance(network, Supernetwork):
        raise RunError(
            "only runs of a supernetwork can be kept: the weights of a plain module do not follow from a "
            "seed. Pass fedrank.supernetwork(...), or train without out and keep the state_dict of "
            "run.subnetwork()"
        )
    return OwnNetwork(
        source=import_path(type(network.skeleton)),
        structure=structure_digest(network.skeleton),
        seed=int(network.seed),
        keep=network.keep,
        weights=network.weights_from,
        scores=str(network.scores),
        layers={layer.name: list(layer.shape) for layer in network.layout},
    )


def _method_fields(kind: Any, name: str) -> set[str]:
    if not (isinstance(kind, type) and is_dataclass(kind) and hasattr(kind, "unpack")):
        raise RunError(f"{name} is not a method")
    return {field.name for field in fields(kind)}


def _method_name(method: Method[Any]) -> str:
    names = {kind: name for name, kind in METHODS.items()}
    return names.get(type(method)) or import_path(type(method))


def _spoken(name: str) -> str:
    """Return the name that a method has in Python."""
    return METHODS[name].__name__ if name in METHODS else name


def _attack(adversary: Adversary | None, everyone: int) -> OwnAttack:
    if adversary is None:
        return OwnAttack()
    attack = adversary.attack
    return OwnAttack(
        name=attack.name,
        share=len(adversary.clients) / everyone,
        clients=sorted(adversary.clients),
        redraw=adversary.redraw,
        lies=adversary.lies,
        parameters={name: _plain(value, name) for name, value in attack.parameters.items()},
    )


def _plain_fields(thing: Any, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the fields of a data class as values that TOML knows. A default of None needs no mention."""
    if thing is None:
        return {}
    values = {field: getattr(thing, field.name) for field in fields(thing) if field.name not in without}
    return {
        field.name: _plain(value, field.name)
        for field, value in values.items()
        if not (value is None and field.default in (None, MISSING))
    }


def _plain(value: Any, name: str) -> Any:
    match value:
        case Aggregator():
            own = {FUNCTION: import_path(value.own.function)} if value.own else {}
            table = {"name": value.name, **value.parameters, **own}
            return table if len(table) > 1 else value.name
        case np.ndarray() | np.generic():
            return value.tolist()
        case bytes():
            return value.hex()
        case enum.Enum():
            return value.value
        case bool() | int() | float() | str():
            return value
        case dict():
            return {str(key): _plain(inner, name) for key, inner in value.items()}
        case list() | tuple():
            return [_plain(inner, name) for inner in value]
    if hasattr(value, "__qualname__"):
        return {FUNCTION: import_path(value)}
    if is_dataclass(value):
        return {key: _plain(inner, name) for key, inner in asdict(value).items()}  # type: ignore[arg-type]
    raise RunError(f"{name} is {value!r}: only numbers, strings and functions can be kept with a run")


def _revived(value: Any) -> Any:
    """Return a setting as a method takes it. A function that is not at hand says so when it is called."""
    if not (isinstance(value, dict) and FUNCTION in value):
        return value
    try:
        return imported(value[FUNCTION])
    except ConfigError as error:
        reason = str(error)

    def missing(*_: Any) -> Any:
        raise RunError(reason)

    return missing
