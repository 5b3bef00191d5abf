"""How images lie in memory, which decides how fast a CPU convolves them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

MANY_WEIGHTS = 2**18


def lay_out_for_speed(module: nn.Module) -> None:
    """Let every layer of a module get its images, and their gradients, as it is fastest with them."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d | nn.MaxPool2d):
            part.register_forward_pre_hook(_lay_out_images)
        part.register_forward_hook(_lay_out_gradient)


def channels_last(inputs: Tensor) -> Tensor:
    """Lay images out with their channels last, which convolutions on CPUs are fastest with."""
    return inputs.to(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs


def _lay_out_images(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Put channels last, except for convolutions with many weights.

    Those would have to turn their weights around for every pass, which costs more than it saves.
    """
    images, *others = inputs
    if images.dim() == 4 and isinstance(module, nn.Conv2d) and module.weight.numel() > MANY_WEIGHTS:
        return (images.contiguous(), *others)
    return (channels_last(images), *others)


def _lay_out_gradient(_module: nn.Module, _inputs: object, output: object) -> None:
    """Lay the gradient of images out as the images are, so that no layer has to turn it around."""
    if isinstance(output, Tensor) and output.dim() == 4 and output.requires_grad:
        last = output.is_contiguous(memory_format=torch.channels_last)
        layout = torch.channels_last if last else torch.contiguous_format
        output.register_hook(lambda gradient: gradient.contiguous(memory_format=layout))  # type: ignore[no-untyped-call]
