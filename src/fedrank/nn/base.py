"""What all networks have in common: a module, and a layout of its tensors in one flat array."""

from __future__ import annotations

import copy
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedrank.arguments import shown
from fedrank.errors import ModelError
from fedrank.rank import Layout


class Network(Protocol):
    """A module whose tensors are written from one flat array: a `Supernetwork` or a `PlainNetwork`."""

    @property
    def skeleton(self) -> nn.Module: ...

    @property
    def layout(self) -> Layout: ...

    @property
    def seed(self) -> int: ...

    @property
    def keep(self) -> float:
        """The share of the weights that the model uses."""
        ...

    @property
    def weights(self) -> NDArray[np.float32]:
        """The initial weights."""
        ...

    def with_weights(self, weights: NDArray[np.float32]) -> nn.Module:
        """Return the model with these weights as an ordinary module, in evaluation mode."""
        ...


def check_module(model: object) -> None:
    """Raise ModelError for anything but a module, such as a class of which no object was made."""
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise ModelError(
            f"expected a model, got the class {model.__name__}: pass an object, such as {model.__name__}()"
        )
    if not isinstance(model, nn.Module):
        raise ModelError(f"expected a torch module, got {shown(model)}")


def check_seed(seed: int) -> None:
    """Raise ModelError for a seed that does not have 32 bits."""
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise ModelError(f"seed must be a whole number from 0 to {2**32 - 1} (32 bits), got {seed}")


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers of a module by name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def assembled(skeleton: nn.Module, layout: Layout, weights: NDArray[np.float32]) -> nn.Module:
    """Return a copy of a module with these weights, in evaluation mode."""
    module = copy.deepcopy(skeleton)
    flat, tensors = torch.from_numpy(weights), tensors_of(module)
    for layer in layout:
        tensors[layer.name].data = flat[layer.edges].view(layer.shape).clone()
    return module.requires_grad_(False).eval()
