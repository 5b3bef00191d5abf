"""Converts stored samples to network inputs, batch by batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Inputs = NDArray[np.generic]
CROP_PADDING = 4


@dataclass(frozen=True)
class Preprocess:
    """Divides by `scale`, then subtracts each channel's mean and divides by its standard deviation.

    `crop_and_flip` shifts training images by up to four pixels and flips half of them.
    """

    scale: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    crop_and_flip: bool = False

    @classmethod
    def default_for(cls, inputs: Inputs) -> Preprocess:
        """Return the default: uint8 is scaled to 0..1, anything else is left unchanged."""
        return cls(scale=255.0) if inputs.dtype == np.uint8 else cls()

    def __call__(self, inputs: Inputs) -> NDArray[np.float32]:
        """Return a batch as network input."""
        channels = (-1,) + (1,) * (inputs.ndim - 2) if len(self.mean) > 1 else (1,) * inputs.ndim
        factor = 1 / (self.scale * np.asarray(self.std))
        shift = np.asarray(self.mean) / np.asarray(self.std)
        normalized = inputs.astype(np.float32)
        normalized *= factor.astype(np.float32).reshape(channels)
        normalized -= shift.astype(np.float32).reshape(channels)
        return normalized

    def augment(self, images: Inputs, rng: np.random.Generator) -> Inputs:
        """Return training images, randomly cropped and flipped if `crop_and_flip` is set."""
        if not self.crop_and_flip:
            return images
        count, _, height, width = images.shape
        border = (CROP_PADDING, CROP_PADDING)
        padded = np.pad(images, ((0, 0), (0, 0), border, border))
        corners = rng.integers(0, 2 * CROP_PADDING + 1, size=(count, 2))
        mirrored = rng.integers(0, 2, size=(count,))
        augmented = np.empty_like(images)
        for i, (top, left) in enumerate(corners.tolist()):
            crop = padded[i, :, top : top + height, left : left + width]
            augmented[i] = crop[:, :, ::-1] if mirrored[i] else crop
        return augmented
