"""The sections on data, network and local training; one's own data and networks are named by path."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from fedrank.data import Preprocess
from fedrank.errors import FedrankError
from fedrank.parameters import did_you_mean

T = TypeVar("T")

DATA = ("digits", "mnist", "cifar10", "femnist")
NETWORKS = ("lenet-digits", "lenet", "lenet-62", "conv2", "conv4", "conv6", "conv8")
PREPROCESS = ("standardize", "none")
ARCHIVE = ".npz"
OWN_NETWORK = {"keep": 0.8}
"""The defaults of `fedrank.supernetwork`, for a network of one's own."""
OWN_TRAINING = {
    True: {"epochs": 5, "learning_rate": 0.4, "batch_size": 8, "balanced": True},
    False: {"epochs": 2, "learning_rate": 0.05, "batch_size": 8, "balanced": False},
}
"""The defaults of `LocalTraining` for a network of one's own, whose edges are ranked (True) or trained."""


def checked(check: Callable[[], T]) -> T:
    """Turn an error of fedrank into the ValueError that pydantic expects."""
    try:
        return check()
    except FedrankError as error:
        raise ValueError(str(error)) from error


class Section(BaseModel):
    """A part of a configuration; rejects unknown keys and wrong types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    def flat(self) -> dict[str, Any]:
        """Return all settings by their full names, such as local.epochs."""
        found: dict[str, Any] = {}
        for key, value in self.model_dump().items():
            if isinstance(value, dict):
                found |= {f"{key}.{inner}": setting for inner, setting in value.items()}
            else:
                found[key] = value
        return found


class DataSection(Section):
    """The data set, and its partition among the clients."""

    name: str
    partition: Literal["dirichlet", "shards", "iid", "writer"] | None = None
    """None only for data of one's own that is divided among clients already."""
    clients: int | None = Field(default=None, ge=1)
    beta: float = Field(default=1.0, gt=0)
    shards_per_client: int = Field(default=2, ge=1)
    test_shards: bool = False
    test_share: float = Field(default=0.2, ge=0, lt=1)
    preprocess: Literal["standardize", "none"] | dict[str, Any] | None = None
    """Of data of one's own. None standardizes, unless a federation says itself what to do."""

    @model_validator(mode="before")
    @classmethod
    def _is_partitioned(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        divided = is_own(values.get("name"), ARCHIVE) and "clients" not in values
        return values if divided else {"partition": "dirichlet"} | values

    @field_validator("name")
    @classmethod
    def _is_known(cls, name: str) -> str:
        return (
            name
            if name.endswith(ARCHIVE)
            else _known(name, "data set", DATA, "mine.npz or mypackage.data:clients")
        )

    @field_validator("preprocess", mode="before")
    @classmethod
    def _is_a_word_or_a_table(cls, preprocess: Any) -> Any:
        if not (preprocess is None or isinstance(preprocess, dict) or preprocess in PREPROCESS):
            hint = did_you_mean(str(preprocess), PREPROCESS)
            raise ValueError(f"must be 'standardize', 'none' or a table of values{hint}")
        return preprocess

    @field_validator("preprocess")
    @classmethod
    def _is_complete(cls, preprocess: Any) -> Any:
        """Validate values of one's own; name all of them."""
        if not isinstance(preprocess, dict):
            return preprocess
        values = preprocess_of(preprocess)
        return {"scale": values.scale, "mean": list(values.mean), "std": list(values.std)}

    @model_validator(mode="after")
    def _clients_are_known(self) -> Self:
        if self.clients is None and self.partition not in ("writer", None):
            raise ValueError(f"partition {self.partition!r} needs the number of clients")
        if self.partition == "writer" and self.name != "femnist":
            raise ValueError(f"{self.name} has no writers; only femnist supports partition 'writer'")
        tested = self.own or self.name in ("mnist", "cifar10")
        if self.test_shards and not (self.partition == "shards" and tested):
            raise ValueError(
                "test_shards needs partition 'shards' and an official test set (mnist or cifar10)"
            )
        return self

    @model_validator(mode="after")
    def _fits_shipped_data(self) -> Self:
        if self.own:
            return self
        if self.test_share == 0:
            raise ValueError("test_share must be more than 0")
        if self.preprocess is not None:
            raise ValueError(f"{self.name} has its own preprocessing; leave out data.preprocess")
        return self

    @property
    def own(self) -> bool:
        """Whether it is data of the user's own."""
        return is_own(self.name, ARCHIVE)


class NetworkSection(Section):
    """The network: a supernetwork, or for methods that train weights a module of one's own as it is."""

    name: str
    keep: float = Field(default=0.5, ge=0, le=1)
    weights: Literal["signed-kaiming-constant", "kaiming-normal", "glorot-normal", "kaiming-uniform"] = (
        "signed-kaiming-constant"
    )
    scores: Literal["signed", "magnitude", "authors"] = "signed"
    fix: bool = False

    @field_validator("name")
    @classmethod
    def _is_known(cls, name: str) -> str:
        return _known(name, "network", NETWORKS, "mypackage.models:Net")

    @field_validator("keep")
    @classmethod
    def _keeps_an_edge(cls, keep: float) -> float:
        if keep == 0:
            raise ValueError("must be more than 0: without edges, every output is 0")
        return keep

    @property
    def own(self) -> bool:
        """Whether it is a model of the user's own."""
        return is_own(self.name)


class LocalSection(Section):
    """How a client trains."""

    epochs: int = Field(ge=1)
    learning_rate: float = Field(gt=0)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=1e-4, ge=0)
    batch_size: int = Field(ge=1)
    rate_decay: float = Field(default=0.999, gt=0, le=1)
    precision: Literal["float32", "bfloat16"] = "float32"
    balanced: bool = False


def with_own_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration whose network, if it is one's own, has the defaults that Python has."""
    network, method, local = (values.get(key) or {} for key in ("network", "method", "local"))
    if not (isinstance(network, dict) and is_own(network.get("name")) and isinstance(local, dict)):
        return values
    ranks = not isinstance(method, dict) or method.get("name", "frl") == "frl"
    return values | {"network": OWN_NETWORK | network, "local": OWN_TRAINING[ranks] | local}


def is_own(name: Any, suffix: str = ":") -> bool:
    """Return whether a name is an import path, or a file with this suffix."""
    return isinstance(name, str) and (":" in name or name.endswith(suffix))


def preprocess_of(values: dict[str, Any]) -> Preprocess:
    """Return the preprocessing with these values.

    >>> preprocess_of({"mean": [0.3, 0.5], "std": [0.2, 0.1]}).mean
    (0.3, 0.5)
    """
    known = ("scale", "mean", "std")
    for key in values:
        if key not in known:
            raise ValueError(f"unknown key {key!r}{did_you_mean(key, known)}")
    return checked(lambda: Preprocess(**values))


def _known(name: str, what: str, shipped: Iterable[str], own: str) -> str:
    """Return a name if it is shipped or an import path."""
    if ":" not in name:
        if name not in shipped:
            hint = did_you_mean(name, shipped)
            end = "" if hint.endswith("?") else "."
            raise ValueError(f"unknown {what}{hint}{end} For your own {what.split()[0]}, use {own}")
        return name
    module, _, attribute = name.partition(":")
    if module.endswith(".py") or "/" in module:
        plain = module.removesuffix(".py").strip("./").replace("/", ".")
        raise ValueError(f"name the module, not its file: '{plain}:{attribute}'")
    if not re.fullmatch(r"[^\W\d][\w.]*:[^\W\d][\w.]*", name):
        raise ValueError(f"expected an import path, such as {own.rpartition(' ')[2]}")
    return name
