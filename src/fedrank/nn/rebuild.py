"""How a model is named in what a run saves, and how it is built again from that. Nothing is unpickled."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fedrank.errors import ModelError


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


def import_path(thing: Any) -> str:
    """Return where a class or a function is defined.

    >>> import_path(nn.Linear)
    'torch.nn.modules.linear:Linear'
    """
    return f"{thing.__module__}:{thing.__qualname__}"


def imported(path: str) -> Any:
    """Return the class or function with an import path; ModelError if there is none.

    >>> imported("torch.nn:Linear") is nn.Linear
    True
    """
    module, _, name = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # a user's module can raise any exception
        raise ModelError(f"{path} cannot be imported ({type(error).__name__}: {error})") from error
    return found


def model_from(path: str) -> nn.Module:
    """Return a model of the class with an import path, made without arguments."""
    kind = imported(path)
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
