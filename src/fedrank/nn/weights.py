"""Ordinary training: SGD on the weights themselves, for the baselines."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from fedrank.nn.base import Network, tensors_of
from fedrank.nn.memory_format import lay_out_for_speed
from fedrank.nn.precision import Precision
from fedrank.nn.training import LocalTraining, Samples, client_loss, cosine

NORMALIZATION = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


@dataclass(frozen=True)
class TrainedWeights:
    """The weights after training, and the mean loss over all steps."""

    weights: NDArray[np.float32]
    loss: float


class WeightNetwork:
    """A network's module whose trained tensors are views into one flat tensor, in layout order.

    With bfloat16, the module computes with a copy of 16 bits, which follows the flat tensor after every
    step. Normalization layers keep 32 bits, as their statistics need them.
    """

    def __init__(
        self, network: Network, device: torch.device, precision: Precision = Precision.FLOAT32
    ) -> None:
        self.device = device
        self.dtype = precision.dtype
        self.holds = b""
        self.module = copy.deepcopy(network.skeleton).to(device, self.dtype).train()
        for part in self.module.modules():
            if isinstance(part, NORMALIZATION):
                part.float()
        self.flat = torch.empty(network.layout.size, device=device)
        self.rounded = (
            self.flat if self.dtype == torch.float32 else torch.empty_like(self.flat, dtype=self.dtype)
        )
        self.batch_norms = [part for part in self.module.modules() if isinstance(part, _BatchNorm)]
        tensors, in_layout = tensors_of(self.module), {layer.name for layer in network.layout}
        for layer in network.layout:
            source = self.flat if tensors[layer.name].dtype == torch.float32 else self.rounded
            tensors[layer.name].data = source[layer.edges].view(layer.shape)
        named = dict(self.module.named_parameters())
        trained = [layer for layer in network.layout if layer.name in named]
        self.parameters = [named[layer.name].requires_grad_(True) for layer in trained]
        self.trained = [
            parameter if parameter.dtype == torch.float32 else self.flat[layer.edges].view(layer.shape)
            for layer, parameter in zip(trained, self.parameters, strict=True)
        ]
        """What the optimizer changes: the parameters, or the floats that they were rounded from."""
        self.initial_buffers = {
            name: value.clone() for name, value in self.module.named_buffers() if name not in in_layout
        }
        lay_out_for_speed(self.module)

    def begin(self, weights: NDArray[np.float32], holds: bytes = b"") -> None:
        """Start a client: set the weights it received, and reset the model's buffers.

        `holds` says which weights these are: whoever wants the same ones need not set them again.
        """
        self.holds = holds
        self.flat.copy_(torch.from_numpy(weights))
        self._round()
        for name, value in self.initial_buffers.items():
            owner, _, leaf = name.rpartition(".")
            setattr(self.module.get_submodule(owner), leaf, value.clone())

    def forward(self, inputs: Tensor) -> Tensor:
        """Run the network. A single sample has no batch statistics: it is normalized by the running ones."""
        for norm in self.batch_norms:
            norm.train(self.module.training and len(inputs) > 1)
        logits: Tensor = self.module(inputs.to(self.dtype))
        return logits.float()

    def step(self, loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
        """Take one step down the gradient of the loss."""
        for parameter in self.parameters:
            parameter.grad = None
        loss.backward()  # type: ignore[no-untyped-call]
        for trained, parameter in zip(self.trained, self.parameters, strict=True):
            trained.grad = None if parameter.grad is None else parameter.grad.float()
        optimizer.step()
        self._round()

    def _round(self) -> None:
        if self.rounded is not self.flat:
            self.rounded.copy_(self.flat)


def train_weights(
    network: WeightNetwork,
    initial: NDArray[np.float32],
    samples: Samples,
    rng: np.random.Generator,
    local: LocalTraining,
) -> TrainedWeights:
    """Train `initial` weights on `samples`: the same loop as edge-popup, without scores and masks.

    Poisoned weights may diverge; then the result is not finite.
    """
    network.begin(initial)
    optimizer = torch.optim.SGD(
        network.trained,
        lr=local.learning_rate,
        momentum=local.momentum,
        weight_decay=local.weight_decay,
        fused=network.device.type == "cpu" or None,
    )
    loss_of = client_loss(samples.labels, balanced=local.balanced)
    losses = torch.zeros((), device=network.device)
    steps = 0
    with torch.random.fork_rng():
        torch.manual_seed(int(rng.integers(2**63)))
        for epoch in range(local.epochs):
            optimizer.param_groups[0]["lr"] = cosine(local.learning_rate, epoch, local.epochs)
            for inputs, labels in samples.batches(local.batch_size, rng):
                logits = network.forward(torch.from_numpy(inputs).to(network.device))
                loss = loss_of(logits, torch.from_numpy(labels).to(network.device))
                network.step(loss, optimizer)
                losses += loss.detach()
                steps += 1
    return TrainedWeights(network.flat.to("cpu", copy=True).numpy(), float(losses) / steps)
