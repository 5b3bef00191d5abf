"""What a supernetwork makes of one batch, layer by layer, before any training."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedrank.data import Samples
from fedrank.errors import ModelError
from fedrank.nn.init import fans
from fedrank.nn.supernet import Supernetwork
from fedrank.rank import Layer, top_count


@dataclass(frozen=True)
class LayerSignal:
    """A ranked layer, and what passes through it with the initial mask."""

    name: str
    kind: str
    shape: tuple[int, ...]
    groups: int
    edges: int
    kept: int
    fan_in: int
    outputs: float | None
    """By how much its outputs differ from sample to sample. None if the module is not called."""
    gradient: float
    """The spread of the gradient of its scores."""


def layer_signals(network: Supernetwork, samples: Samples) -> tuple[tuple[LayerSignal, ...], Tensor]:
    """Run a batch forward and backward through the initial subnetwork.

    Returns what every layer does, and the model's outputs.
    """
    module = network.subnetwork(network.initial_ranking).requires_grad_(True)
    names = [layer.name.rpartition(".")[0] for layer in network.layout]
    owners = [module.get_submodule(name) for name in names]
    seen: dict[nn.Module, float] = {}
    hooks = [owner.register_forward_hook(_watching(seen)) for owner in owners]
    try:
        logits = module(torch.from_numpy(samples.preprocess(samples.inputs)))
    except Exception as error:  # the user's own code can raise any exception
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ModelError(f"does not fit a batch of {len(samples)} samples ({what})") from error
    cross_entropy(logits, torch.from_numpy(samples.labels)).backward()  # type: ignore[no-untyped-call]
    for hook in hooks:
        hook.remove()
    parameters = dict(module.named_parameters())
    layers = tuple(
        _described(network, layer, owner, parameters[layer.name].grad, seen.get(owner))
        for layer, owner in zip(network.layout, owners, strict=True)
    )
    return layers, logits.detach()


def _watching(seen: dict[nn.Module, float]) -> Callable[..., None]:
    def watch(module: nn.Module, _inputs: object, output: Tensor) -> None:
        seen.setdefault(module, spread(output))

    return watch


def spread(values: Tensor) -> float:
    """Return by how much values differ from sample to sample: the root of their mean variance."""
    return math.sqrt(float(values.detach().double().var(dim=0, correction=0).mean()))


def _described(
    network: Supernetwork,
    layer: Layer,
    owner: nn.Module,
    gradient: Tensor | None,
    outputs: float | None,
) -> LayerSignal:
    weights = network.weights[layer.edges]
    of_scores: NDArray[np.float32] = np.zeros(1, np.float32)
    if gradient is not None:
        of_scores = gradient.numpy().reshape(-1) * weights
    return LayerSignal(
        name=layer.name,
        kind=type(owner).__name__,
        shape=layer.shape,
        groups=getattr(owner, "groups", 1),
        edges=layer.size,
        kept=top_count(layer.size, network.keep),
        fan_in=fans(layer.shape)[0],
        outputs=outputs,
        gradient=float(of_scores.std(dtype=np.float64)),
    )
