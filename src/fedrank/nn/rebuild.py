"""How a model is named in what a run saves, and how it is built again from that. Nothing is unpickled."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from fedrank.errors import ConfigError, ModelError
from fedrank.importing import imported


class MissingModel(nn.Module):
    """Has the edges of a model whose code is not at hand, by their names, but cannot compute."""

    def __init__(self, layers: Mapping[str, Sequence[int]], reason: str) -> None:
        super().__init__()
        self.reason = reason
        for name, shape in layers.items():
            *path, last = name.split(".")
            module: nn.Module = self
            for part in path:
                if part not in module._modules:
                    module.add_module(part, nn.Module())
                module = module.get_submodule(part)
            module.register_parameter(last, nn.Parameter(torch.zeros(1).expand(tuple(shape))))

    def forward(self, inputs: Tensor) -> Tensor:  # noqa: ARG002
        """Say what is missing."""
        raise ModelError(self.reason)


def model_from(path: str) -> nn.Module:
    """Return a model of the class with an import path, made without arguments."""
    try:
        kind = imported(path)
    except ConfigError as error:
        raise ModelError(f"{path} cannot be imported: {error}") from error
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise ModelError(f"{path} is not a torch module")
    try:
        return kind()
    except Exception as error:  # a user's class can raise any exception
        raise ModelError(f"{path} cannot be made without arguments ({error})") from error


def structure_digest(model: nn.Module) -> str:
    """Return a digest of a model's modules and their settings, as far as torch prints them.

    >>> structure_digest(nn.ReLU()) == structure_digest(nn.Tanh())
    False
    """
    return hashlib.sha256(repr(model).encode()).hexdigest()[:32]
