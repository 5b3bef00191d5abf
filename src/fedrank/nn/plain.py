"""A plain network: any module whose weights are trained, for the baselines."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from fedrank.errors import ModelError
from fedrank.nn.base import assembled, check_seed
from fedrank.rank import Layout


@dataclass(frozen=True, eq=False, repr=False)
class PlainNetwork:
    """A module with all its parameters: biases and normalization too. Its own weights are the initial ones.

    The layout holds the parameters that require a gradient, then the running statistics of normalization
    layers: clients change both, and the server combines both. Everything else stays as it is in the module.
    """

    skeleton: nn.Module
    layout: Layout
    seed: int
    weights: NDArray[np.float32]
    keep: ClassVar[float] = 1.0

    @classmethod
    def of(cls, module: nn.Module, seed: int) -> PlainNetwork:
        """Return the network of a module, which is not changed; all its numbers become 32-bit floats.

        >>> PlainNetwork.of(nn.Linear(3, 2), seed=7).layout.size
        8
        """
        check_seed(seed)
        _check(module)
        skeleton = copy.deepcopy(module).float()
        trained = [(name, each) for name, each in skeleton.named_parameters() if each.requires_grad]
        tensors = [*trained, *running_statistics(skeleton)]
        layout = Layout.of((name, tuple(each.shape)) for name, each in tensors)
        flat = torch.cat([each.detach().cpu().reshape(-1) for _, each in tensors])
        return cls(skeleton, layout, seed, flat.numpy())

    def __repr__(self) -> str:
        facts = f"{self.layout.size:,} weights, seed={self.seed}"
        return f"<PlainNetwork: {type(self.skeleton).__name__}, {facts}>"

    def with_weights(self, weights: NDArray[np.float32]) -> nn.Module:
        """Return the model with these weights as an ordinary module, in evaluation mode."""
        return assembled(self.skeleton, self.layout, weights)


def running_statistics(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the running means and variances of a module's normalization layers by name."""
    for name, part in module.named_modules():
        if isinstance(part, _NormBase) and part.running_mean is not None and part.running_var is not None:
            yield f"{name}.running_mean".lstrip("."), part.running_mean
            yield f"{name}.running_var".lstrip("."), part.running_var


def _check(module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ModelError(f"{name!r} has no shape yet: run the model on one batch before you train it")
        if not parameter.is_floating_point():
            raise ModelError(f"{name!r} has type {parameter.dtype}, but only floating-point weights are sent")
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise ModelError("the model has no parameters to train")
