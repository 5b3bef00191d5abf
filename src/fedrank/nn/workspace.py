"""The networks that a worker uses for training."""

from __future__ import annotations

from functools import cached_property

import torch

from fedrank.nn.base import Network
from fedrank.nn.masked import MaskedNetwork
from fedrank.nn.precision import Precision
from fedrank.nn.supernet import Supernetwork
from fedrank.nn.weights import WeightNetwork


class Workspace:
    """A worker's networks on its device, created on first use and shared by all its clients."""

    def __init__(self, network: Network, device: str | torch.device = "cpu") -> None:
        self.network = network
        self.device = torch.device(device)
        self._masked: dict[Precision, MaskedNetwork] = {}
        self._weights: dict[Precision, WeightNetwork] = {}

    def masked(self, precision: Precision = Precision.FLOAT32) -> MaskedNetwork:
        """Return the network for training scores."""
        assert isinstance(self.network, Supernetwork)
        if precision not in self._masked:
            self._masked[precision] = MaskedNetwork(self.network, self.device, precision)
        return self._masked[precision]

    def weights(self, precision: Precision = Precision.FLOAT32) -> WeightNetwork:
        """Return the network for training weights."""
        if precision not in self._weights:
            self._weights[precision] = WeightNetwork(self.network, self.device, precision)
        return self._weights[precision]

    @cached_property
    def testing(self) -> WeightNetwork:
        """The network for testing weights, in evaluation mode."""
        network = WeightNetwork(self.network, self.device)
        network.module.eval()
        return network
