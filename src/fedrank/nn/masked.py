"""A supernetwork during training: the module, its mask, and the scores that determine the mask."""

from __future__ import annotations

import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrank.errors import ModelError
from fedrank.nn.memory_format import lay_out_for_speed
from fedrank.nn.precision import Precision
from fedrank.nn.supernet import Supernetwork
from fedrank.nn.threshold import DeviceThreshold, Threshold
from fedrank.rank import top_count


class MaskedNetwork:
    """A supernetwork's module whose weights are rewritten in every step of edge-popup.

    The module's parameters are views into one flat tensor, so masks are applied in place and the module
    itself needs no changes. All buffers are allocated once and reused for every client. With bfloat16, the
    weights, the activations and their gradients have 16 bits; scores and velocity keep 32.
    """

    def __init__(
        self, network: Supernetwork, device: torch.device, precision: Precision = Precision.FLOAT32
    ) -> None:
        self.layout = network.layout
        self.device = device
        self.dtype = precision.dtype
        self.module = copy.deepcopy(network.skeleton).to(device, self.dtype).train()
        self.initial_buffers = {name: value.clone() for name, value in self.module.named_buffers()}
        self.weights = torch.tensor(network.weights, device=device, dtype=self.dtype)
        self.masked = torch.empty_like(self.weights)
        self.scores, self.velocity = (torch.empty(self.layout.size, device=device) for _ in range(2))
        kind = Threshold if device.type == "cpu" else DeviceThreshold
        self.borders = [
            kind(
                layer.size - top_count(layer.size, network.keep),
                layer.size,
                by_magnitude=network.scores.mask_by_magnitude,
            )
            for layer in self.layout
        ]
        named = dict(self.module.named_parameters())
        self.parameters = [named[layer.name] for layer in self.layout]
        for layer, parameter in zip(self.layout, self.parameters, strict=True):
            parameter.data = self.masked[layer.edges].view(layer.shape)
            parameter.requires_grad_(True)
        lay_out_for_speed(self.module)

    def begin(self, scores: NDArray[np.float32]) -> None:
        """Start a client: set its scores and mask, and reset the velocity and the model's buffers."""
        self.scores.copy_(torch.from_numpy(scores))
        self.velocity.zero_()
        for layer, border in zip(self.layout, self.borders, strict=True):
            edges = layer.edges
            border.mask(self.scores[edges], self.weights[edges], out=self.masked[edges])
        for name, value in self.initial_buffers.items():
            owner, _, leaf = name.rpartition(".")
            setattr(self.module.get_submodule(owner), leaf, value.clone())

    def forward(self, inputs: Tensor) -> Tensor:
        """Run the subnetwork of the top k% of scores (EP forward of Algorithm 1)."""
        logits: Tensor = self.module(inputs.to(self.dtype))
        return logits.float()

    def backward(self, loss: Tensor) -> None:
        """Compute the gradient of the loss with respect to the masked weights."""
        for parameter in self.parameters:
            parameter.grad = None
        loss.backward()  # type: ignore[no-untyped-call]

    def descend(self, rate: float, momentum: float, decay: float) -> None:
        """Take one SGD step on the scores, and mask the weights by the new scores.

        The gradient is the straight-through estimate dL/ds = dL/d(masked weight) * weight. If |score|
        determines the mask, the gradient passes through the absolute value too.
        """
        for layer, border, parameter in zip(self.layout, self.borders, self.parameters, strict=True):
            if parameter.grad is None:
                raise ModelError(f"layer {layer.name!r} does not affect the model's output; remove it")
            edges = layer.edges
            border.descend(
                self.scores[edges],
                self.velocity[edges],
                parameter.grad.reshape(-1),
                self.weights[edges],
                out=self.masked[edges],
                sgd=(rate, momentum, decay),
            )
