"""What a federated method is made of, so that engines and experiments can run any of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedrank.aggregators import ASSUMPTIONS, is_assumption
from fedrank.arguments import changed_settings, check_kind, check_number, shown
from fedrank.data import Federation, Samples
from fedrank.errors import ConfigError, ModelError
from fedrank.nn import LocalTraining, Network, Workspace


class State(Protocol):
    """What the server knows after `round` rounds."""

    @property
    def round(self) -> int: ...


class Collector(Protocol):
    """What has been gathered from some clients; collectors of different workers merge."""

    def add(self, sender: int, message: bytes) -> None: ...

    def merge(self, other: Any) -> None: ...


@dataclass(frozen=True)
class ClientUpdate:
    """The result of a client's training: its update, and the mean training loss."""

    update: NDArray[Any]
    loss: float


S = TypeVar("S", bound=State)


class Method(Protocol[S]):
    """A federated algorithm as pure functions. Nothing but bytes passes between server and clients.

    It holds settings, never working memory: a worker keeps the decoded broadcast and the networks in use.
    """

    @property
    def network(self) -> Network: ...

    def init(self) -> S:
        """Return the state before the first round."""
        ...

    def broadcast(self, state: S) -> bytes:
        """Return what the server sends to the clients of a round."""
        ...

    def receive(self, broadcast: bytes) -> Any:
        """Decode a broadcast, once for all clients that a worker trains in a round."""
        ...

    def client_update(
        self, received: Any, samples: Samples, rng: np.random.Generator, workspace: Workspace
    ) -> ClientUpdate:
        """Train on a client's data."""
        ...

    def encode(self, received: Any, update: NDArray[Any], sender: int) -> bytes:
        """Return what a client sends to the server."""
        ...

    def collector(self, received: Any, asked: Collection[int]) -> Collector:
        """Return what gathers the messages of a round from the clients that were asked."""
        ...

    def aggregate(self, state: S, collected: Any) -> S:
        """Return the next state; TooFewUpdatesError if too few messages were collected."""
        ...

    def model(self, state: S) -> nn.Module:
        """Return the trained model."""
        ...

    def pack(self, state: S) -> dict[str, NDArray[Any]]:
        """Return the state as arrays for a checkpoint."""
        ...

    def unpack(self, arrays: Mapping[str, NDArray[Any]]) -> S:
        """Return the state that `pack` turned into arrays."""
        ...


def knowing(method: Method[S], malicious: int) -> Method[S]:
    """Return the method as it is in a round with so many malicious clients.

    Only a simulation knows their actual number, which the paper lets robust rules assume.
    """
    if getattr(method, "assumed_malicious", None) != "actual":
        return method
    return replace(method, assumed_malicious=malicious)  # type: ignore[type-var]


def check_settings(local: LocalTraining, rate_decay: float, run: bytes) -> None:
    """Refuse settings of a method that make no sense."""
    check_kind("local", local, LocalTraining, "a LocalTraining, such as fedrank.LocalTraining(epochs=2)")
    check_number("rate_decay", rate_decay, above=0, most=1)
    check_kind("run", run, bytes, "16 bytes that tell runs apart")
    if len(run) != 16:
        raise ConfigError(f"run must be 16 bytes that tell runs apart, got {len(run)}")


def check_assumed_malicious(value: Any) -> None:
    """Refuse anything that does not say how many malicious clients to assume."""
    if not is_assumption(value):
        raise ConfigError(f"assumed_malicious must be {ASSUMPTIONS}, got {shown(value)}")


def method_repr(method: Method[Any]) -> str:
    """Return a method with its network and the settings that are not its defaults."""
    settings = [repr(method.network), *changed_settings(method, "network", "run")]
    return f"{type(method).__name__}({', '.join(settings)})"


def check_method(method: Any, owner: str = "method") -> None:
    """Raise ModelError for anything but a method, such as a network without one."""
    if isinstance(method, type) or not (hasattr(method, "client_update") and hasattr(method, "network")):
        raise ModelError(f"{owner} must be a method, such as fedrank.FRL(network), got {shown(method)}")


def weighing(method: Method[S], federation: Federation) -> Method[S]:
    """Return the method as it is for these clients: one that is `weighted` gets their numbers of samples.

    Only a simulation knows them; a client would have to be believed.
    """
    if getattr(method, "weighted", False) is not True:
        return method
    samples = {int(client): federation.clients[client].train.size for client in federation.voters}
    return replace(method, weighted=samples)  # type: ignore[type-var]


def check_clients(method: Method[Any], clients: int) -> None:
    """Refuse rounds of fewer clients than the method's rule can work with."""
    rule = getattr(method, "rule", None)
    if rule is not None and rule.max_malicious(clients) < 0:
        raise ConfigError(f"{clients} clients per round are too few for {rule.name!r}")
