"""What a federated method is made of, so that engines and experiments can run any of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedrank.data import Samples


class State(Protocol):
    """What the server knows after `round` rounds."""

    @property
    def round(self) -> int: ...


class Collector(Protocol):
    """What has been gathered from some clients; collectors of different workers merge."""

    def add(self, message: Any) -> None: ...

    def merge(self, other: Any) -> None: ...


@dataclass(frozen=True)
class Update:
    """What a client's training gave: the message to the server, and its mean training loss."""

    message: Any
    loss: float


@dataclass(frozen=True)
class Traffic:
    """What one client transfers in one round, counted as the paper counts it."""

    upload_bytes: float
    download_bytes: float


S = TypeVar("S", bound=State)


class Method(Protocol[S]):
    """A federated algorithm as pure functions. An engine only decides where `client_update` runs."""

    @property
    def seed(self) -> int: ...

    def init(self) -> S: ...

    def client_update(
        self, state: S, samples: Samples, rng: np.random.Generator, device: torch.device
    ) -> Update: ...

    def collector(self) -> Collector: ...

    def aggregate(self, state: S, collected: Any) -> S: ...

    def model(self, state: S) -> nn.Module: ...

    def traffic(self) -> Traffic: ...

    def pack(self, state: S) -> dict[str, NDArray[Any]]: ...

    def unpack(self, arrays: Mapping[str, NDArray[Any]]) -> S: ...
