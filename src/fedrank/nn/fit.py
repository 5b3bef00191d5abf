"""Whether a model fits the data: it is run on a few samples, and a layer that fails is named."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedrank.data import Federation
from fedrank.errors import ModelError

BATCHES = (5, 1)
"""So few that channels and samples are not confused, and a single one, as a client's last batch may be."""
AXES = {
    nn.Conv1d: ("length",),
    nn.Conv2d: ("height", "width"),
    nn.Conv3d: ("depth", "height", "width"),
}


@dataclass
class _Trail:
    """The layer that was called last, and what it got."""

    name: str = ""
    layer: nn.Module | None = None
    shape: tuple[int, ...] = ()

    def follow(self, model: nn.Module) -> None:
        for name, module in model.named_modules():
            if not list(module.children()):
                module.register_forward_pre_hook(self._arriving(name))

    def _arriving(self, name: str) -> Callable[[nn.Module, Any], None]:
        def arrive(module: nn.Module, inputs: Any) -> None:
            if inputs and isinstance(inputs[0], Tensor):
                self.name, self.layer, self.shape = name, module, tuple(inputs[0].shape)

        return arrive


def check_fit(model: nn.Module, federation: Federation) -> None:
    """Raise ModelError if a model does not accept the samples or has too few outputs."""
    dataset, trail = federation.dataset, _Trail()
    model = copy.deepcopy(model).eval()
    trail.follow(model)
    for size in BATCHES:
        inputs = torch.from_numpy(dataset.preprocess(dataset.inputs[np.arange(size) % len(dataset)]))
        try:
            with torch.inference_mode():
                outputs = model(inputs)
        except Exception as error:  # the user's own code can raise any exception
            where = f"samples of shape {dataset.inputs.shape[1:]}"
            if size != BATCHES[0]:
                where += f" in a batch of {size}"
            raise ModelError(f"does not fit {where} ({_reason(error, trail, size)})") from error
        _check_outputs(outputs, size, dataset.classes)


def _check_outputs(outputs: Any, size: int, classes: int) -> None:
    if not isinstance(outputs, Tensor):
        raise ModelError(
            f"returns a {type(outputs).__name__}, but must return one tensor of logits: "
            "a row for each sample, a column for each class"
        )
    if outputs.ndim == 0 or len(outputs) != size:
        raise ModelError(
            f"outputs shape {tuple(outputs.shape)} for a batch of {size}, but must output a row per sample"
        )
    if outputs.ndim != 2 or outputs.shape[1] < classes:
        got = f"{outputs.shape[1]} values" if outputs.ndim == 2 else f"shape {tuple(outputs.shape[1:])}"
        raise ModelError(f"outputs {got} per sample, but the labels have {classes} classes")


def _reason(error: Exception, trail: _Trail, size: int) -> str:
    """Return what is wrong with the inputs of the layer that was called last, or else what was raised."""
    layer, shape = trail.layer, trail.shape[1:]
    if not shape or trail.shape[0] != size:
        misfit = ""  # it did not get the samples one by one
    elif isinstance(layer, nn.Linear) and shape[-1] != layer.in_features:
        misfit = _linear_misfit(layer, shape)
    elif isinstance(layer, tuple(AXES)):
        misfit = _convolution_misfit(layer, shape)
    else:
        misfit = ""
    if not misfit:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return f"{trail.name or 'the model'} ({type(layer).__name__}) {misfit}"


def _linear_misfit(layer: nn.Linear, shape: tuple[int, ...]) -> str:
    if len(shape) > 1 and math.prod(shape) == layer.in_features:
        return f"needs {layer.in_features} features, but gets shape {shape}: put nn.Flatten() before it"
    got = f"{shape[0]}" if len(shape) == 1 else f"shape {shape}"
    return f"needs {layer.in_features} features, but gets {got}: change its in_features"


def _convolution_misfit(layer: Any, shape: tuple[int, ...]) -> str:
    axes = next(axes for kind, axes in AXES.items() if isinstance(layer, kind))
    if len(shape) == len(axes):
        needed = f"({', '.join(('channels', *axes))})"
        samples = "images" if len(axes) > 1 else "signals"
        return f"needs {needed}, but gets shape {shape}: pass {samples}[:, None]"
    if len(shape) != len(axes) + 1 or shape[0] == layer.in_channels:
        return ""
    needed = f"needs {layer.in_channels} channels, but gets shape {shape}"
    if shape[-1] == layer.in_channels:
        return f"{needed}: put the channels first, with np.moveaxis(images, -1, 1)"
    return f"{needed}: change its in_channels"
