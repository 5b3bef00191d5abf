"""The precision of local training."""

from __future__ import annotations

import enum

import torch


class Precision(enum.StrEnum):
    """The type of weights, activations and their gradients while a client trains.

    What is trained (scores, or weights of the baselines) always has 32 bits.

    >>> Precision("bfloat16").dtype
    torch.bfloat16
    """

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.value)
        return dtype
