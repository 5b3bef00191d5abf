"""What a federated method is made of, so that engines and experiments can run any of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedrank.data import Samples
from fedrank.nn import Supernetwork
from fedrank.rank import Layout
from fedrank.rank.audit import Audit
from fedrank.rank.traffic import Traffic as Traffic


class State(Protocol):
    """What the server knows after `round` rounds."""

    @property
    def round(self) -> int: ...


class Collector(Protocol):
    """What has been gathered from some clients; collectors of different workers merge."""

    def add(self, sender: int, message: bytes) -> None: ...

    def merge(self, other: Any) -> None: ...


@dataclass(frozen=True)
class Learned:
    """What a client's training gave: its update, and the mean training loss."""

    update: NDArray[Any]
    loss: float


S = TypeVar("S", bound=State)


class Method(Protocol[S]):
    """A federated algorithm as pure functions. Nothing but bytes passes between server and clients.

    An engine only decides where `learn` and `write` run.
    """

    @property
    def seed(self) -> int: ...

    @property
    def layout(self) -> Layout: ...

    @property
    def network(self) -> Supernetwork: ...

    def init(self) -> S: ...

    def broadcast(self, state: S) -> bytes:
        """Return what the server sends to the clients of a round."""
        ...

    def reference(self, broadcast: bytes) -> NDArray[Any]:
        """Return the global ranking or weights that a broadcast tells of."""
        ...

    def learn(
        self, broadcast: bytes, samples: Samples, rng: np.random.Generator, device: torch.device
    ) -> Learned:
        """Train on a client's data."""
        ...

    def write(self, broadcast: bytes, update: NDArray[Any], sender: int) -> bytes:
        """Return what a client sends to the server."""
        ...

    def collector(self, broadcast: bytes, asked: Collection[int]) -> Collector:
        """Return what gathers the messages of a round from the clients that were asked."""
        ...

    def combined(
        self, reference: NDArray[Any], updates: list[NDArray[Any]], malicious: int, round_number: int
    ) -> NDArray[Any]:
        """Return what the server makes of some updates: all who know the algorithm can compute it."""
        ...

    def displacement(self, reference: NDArray[Any], update: NDArray[Any]) -> NDArray[np.float32]:
        """Return an update as a vector: how far it is from the global ranking, or a change of weights."""
        ...

    def displaced(self, reference: NDArray[Any], displacement: NDArray[np.float32]) -> NDArray[Any]:
        """Return the update that is closest to a vector."""
        ...

    def most_expected(self, clients: int) -> int:
        """Return how many malicious ones among some clients the rule can expect; -1: too few clients."""
        ...

    def aggregate(self, state: S, collected: Any, malicious: int = 0) -> S:
        """Return the next state; `malicious` is how many malicious clients a robust rule is to expect."""
        ...

    def audit(self, before: S, collected: Any, after: S) -> Audit | None:
        """Return what is to be said about the vote between two states, if there was one."""
        ...

    def model(self, state: S) -> nn.Module: ...

    def traffic(self) -> Traffic:
        """Return what a client transfers, counted as the paper counts it."""
        ...

    def pack(self, state: S) -> dict[str, NDArray[Any]]: ...

    def unpack(self, arrays: Mapping[str, NDArray[Any]]) -> S: ...
