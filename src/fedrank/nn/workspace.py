"""The networks that a worker uses for training."""

from __future__ import annotations

from functools import cached_property

import torch

from fedrank.nn.base import Network
from fedrank.nn.masked import MaskedNetwork
from fedrank.nn.supernet import Supernetwork
from fedrank.nn.weights import WeightNetwork


class Workspace:
    """A worker's networks on its device, created on first use and shared by all its clients."""

    def __init__(self, network: Network, device: str | torch.device = "cpu") -> None:
        self.network = network
        self.device = torch.device(device)

    @cached_property
    def masked(self) -> MaskedNetwork:
        """The network for training scores."""
        assert isinstance(self.network, Supernetwork)
        return MaskedNetwork(self.network, self.device)

    @cached_property
    def weights(self) -> WeightNetwork:
        """The network for training weights."""
        return WeightNetwork(self.network, self.device)

    @cached_property
    def testing(self) -> WeightNetwork:
        """The network for testing weights, in evaluation mode."""
        network = WeightNetwork(self.network, self.device)
        network.module.eval()
        return network
