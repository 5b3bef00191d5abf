"""A supernetwork in training: the module, its mask, and the scores that decide on it."""

from __future__ import annotations

import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedrank.errors import ModelError
from fedrank.nn.border import Border
from fedrank.nn.kernels import descend
from fedrank.nn.supernetwork import Supernetwork
from fedrank.rank import top_count


class MaskedNetwork:
    """A supernetwork's module whose weights are rewritten for every step of edge-popup.

    The weights of all layers lie in one flat tensor that the module's parameters look into, so a
    mask is applied in place and the module itself stays an ordinary one. All buffers are made once
    and serve every client.
    """

    def __init__(self, network: Supernetwork, device: torch.device) -> None:
        self.layout = network.layout
        self.by_magnitude = network.scores.mask_by_magnitude
        self.device = device
        self.module = copy.deepcopy(network.skeleton).to(device).train()
        self.initial_buffers = {name: value.clone() for name, value in self.module.named_buffers()}
        self.weights = torch.tensor(network.weights, device=device)
        self.masked, self.scores, self.velocity = (torch.empty_like(self.weights) for _ in range(3))
        self.borders = [
            Border(layer.size - top_count(layer.size, network.keep), layer.size) for layer in self.layout
        ]
        named = dict(self.module.named_parameters())
        self.parameters = [named[layer.name] for layer in self.layout]
        for layer, parameter in zip(self.layout, self.parameters, strict=True):
            parameter.data = self.masked[layer.edges].view(layer.shape)
            parameter.requires_grad_(True)
        for part in self.module.modules():
            part.register_forward_hook(_gradient_channels_last)

    def begin(self, scores: NDArray[np.float32]) -> None:
        """Start a client: its scores, no velocity, and nothing in the model's own buffers of others."""
        self.scores.copy_(torch.from_numpy(scores))
        self.velocity.zero_()
        for name, value in self.initial_buffers.items():
            owner, _, leaf = name.rpartition(".")
            setattr(self.module.get_submodule(owner), leaf, value.clone())

    def forward(self, inputs: Tensor) -> Tensor:
        """Run the subnetwork of the top k% scores (EP forward of Algorithm 1)."""
        self.apply_mask()
        return self.run(inputs)

    def run(self, inputs: Tensor) -> Tensor:
        """Run the module with the mask that was applied last."""
        logits: Tensor = self.module(channels_last(inputs))
        return logits

    def apply_mask(self) -> None:
        """Write the weights of the top k% edges of every layer, and 0 for the others."""
        importance = self.scores.abs() if self.by_magnitude else self.scores
        for layer, border in zip(self.layout, self.borders, strict=True):
            edges = layer.edges
            border.mask(importance[edges], self.weights[edges], out=self.masked[edges])

    def backward(self, loss: Tensor) -> None:
        """Find the gradient of the loss by the masked weights."""
        for parameter in self.parameters:
            parameter.grad = None
        loss.backward()  # type: ignore[no-untyped-call]

    def descend(self, rate: float, momentum: float, decay: float) -> None:
        """Take a step of SGD on the scores.

        Their gradient is the straight-through estimate dL/ds = dL/d(masked weight) * weight; where
        |score| decides on the mask it passes through the absolute value too.
        """
        for layer, parameter in zip(self.layout, self.parameters, strict=True):
            if parameter.grad is None:
                raise ModelError(f"layer {layer.name!r} takes no part in the model's output: remove it")
            gradient = parameter.grad.reshape(-1)
            scores, velocity = self.scores[layer.edges], self.velocity[layer.edges]
            weights = self.weights[layer.edges]
            if self.by_magnitude:
                gradient.mul_(scores.sign())
            if self.device.type == "cpu":
                arrays = (scores.numpy(), velocity.numpy(), gradient.numpy(), weights.numpy())
                descend(*arrays, np.float32(rate), np.float32(momentum), np.float32(decay))
            else:
                velocity.mul_(momentum).addcmul_(gradient, weights).add_(scores, alpha=decay)
                scores.add_(velocity, alpha=-rate)


def _gradient_channels_last(_module: nn.Module, _inputs: object, output: object) -> None:
    """Lay the gradient of images out as the images are, so that no layer has to turn it around."""
    if isinstance(output, Tensor) and output.dim() == 4 and output.requires_grad:
        output.register_hook(channels_last)  # type: ignore[no-untyped-call]


def channels_last(inputs: Tensor) -> Tensor:
    """Lay images out with their channels last, which convolutions on CPUs are fastest with."""
    return inputs.to(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs
