"""The networks that a worker trains in."""

from __future__ import annotations

from functools import cached_property

import torch

from fedrank.nn.masked import MaskedNetwork
from fedrank.nn.supernet import Supernetwork
from fedrank.nn.weights import WeightNetwork


class Workspace:
    """A worker's networks on its device, made when first used; their buffers serve all its clients."""

    def __init__(self, network: Supernetwork, device: str | torch.device = "cpu") -> None:
        self.network = network
        self.device = torch.device(device)

    @cached_property
    def masked(self) -> MaskedNetwork:
        """The network in which scores are trained."""
        return MaskedNetwork(self.network, self.device)

    @cached_property
    def weights(self) -> WeightNetwork:
        """The network in which weights are trained."""
        return WeightNetwork(self.network, self.device)
