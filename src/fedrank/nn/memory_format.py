"""The memory format of images, which determines how fast a CPU convolves them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

MANY_WEIGHTS = 2**18


def lay_out_for_speed(module: nn.Module) -> None:
    """Give every layer of a module its images and gradients in the format that is fastest for it."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d | nn.MaxPool2d):
            part.register_forward_pre_hook(_lay_out_images)
        part.register_forward_hook(_lay_out_gradient)


def channels_last(inputs: Tensor) -> Tensor:
    """Convert images to channels-last, the fastest format for convolutions on CPUs."""
    return inputs.to(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs


def _lay_out_images(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Convert to channels-last, except for convolutions with many weights.

    Those would have to reorder their weights in every pass, which costs more than it saves.
    """
    images, *others = inputs
    if images.dim() == 4 and isinstance(module, nn.Conv2d) and module.weight.numel() > MANY_WEIGHTS:
        return (images.contiguous(), *others)
    return (channels_last(images), *others)


def _lay_out_gradient(_module: nn.Module, _inputs: object, output: object) -> None:
    """Give gradients the same format as their images, so that no layer has to convert them."""
    if isinstance(output, Tensor) and output.dim() == 4 and output.requires_grad:
        last = output.is_contiguous(memory_format=torch.channels_last)
        layout = torch.channels_last if last else torch.contiguous_format
        output.register_hook(lambda gradient: gradient.contiguous(memory_format=layout))  # type: ignore[no-untyped-call]
