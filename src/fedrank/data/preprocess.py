"""Converts stored samples to network inputs, batch by batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrank.data.arrays import Indices, Inputs, as_inputs, portions
from fedrank.errors import DataError

CROP_PADDING = 4
SHOWN_VALUES = 16
"""A longer list of means is shown as a range."""


@dataclass(frozen=True, repr=False)
class Preprocess:
    """Divides by `scale`, then subtracts each channel's mean and divides by its standard deviation.

    Several means belong to the channels (axis 1) of images and signals, or to the columns of a table. A
    single mean or deviation stands for all of them.
    `crop_and_flip` shifts training images by up to four pixels and flips half of them.
    """

    scale: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    crop_and_flip: bool = False

    def __post_init__(self) -> None:
        mean, std = _numbers("mean", self.mean), _numbers("std", self.std)
        if not np.isfinite(self.scale) or self.scale <= 0 or min(std) <= 0:
            raise DataError("Preprocess: scale and std must be positive")
        if len(mean) != len(std) and 1 not in (len(mean), len(std)):
            raise DataError(f"Preprocess: got {len(mean)} means but {len(std)} standard deviations")
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "std", std)

    @classmethod
    def default_for(cls, inputs: Inputs) -> Preprocess:
        """Return what is done without standardizing: uint8 is scaled to 0..1, the rest left unchanged."""
        return cls(scale=255.0) if inputs.dtype == np.uint8 else cls()

    @classmethod
    def fitted(cls, inputs: Any, samples: Indices | None = None) -> Preprocess:
        """Return the preprocessing that gives these inputs, or some samples, mean 0 and deviation 1.

        That is for each channel (axis 1) of inputs with four or more dimensions, for each column of a table,
        and for all numbers together otherwise. What is constant to the precision of 32-bit floats is only
        centered.

        >>> Preprocess.fitted([[1.0, 5.0], [3.0, 5.0]])
        Preprocess(scale=1.0, mean=(2.0, 5.0), std=(1.0, 1.0), crop_and_flip=False)
        """
        inputs = as_inputs(inputs)
        plain = cls.default_for(inputs)
        count = len(inputs) if samples is None else len(samples)
        if count == 0 or inputs.size == 0:
            return plain
        apart = inputs.ndim == 2 or inputs.ndim >= 4
        axes = tuple(axis for axis in range(inputs.ndim) if axis != 1 or not apart)
        numbers = count * inputs[0].size // (inputs.shape[1] if apart else 1)

        def mean_of(square_from: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
            total: Any = 0.0
            for portion in portions(inputs, samples):
                values = portion if square_from is None else np.square(np.subtract(portion, square_from))
                total = total + values.sum(axis=axes, dtype=np.float64, keepdims=True)
            return np.asarray(total / numbers)

        center = mean_of()
        # float32, so that the last bits of these sums, which may differ between machines, do not count
        mean = (center / plain.scale).astype(np.float32).ravel()
        std = (np.sqrt(mean_of(center)) / plain.scale).astype(np.float32).ravel()
        float32 = np.finfo(np.float32)
        constant = std <= np.maximum(np.abs(mean) * float32.eps, float32.tiny)
        std[constant] = 1
        return cls(plain.scale, tuple(mean.tolist()), tuple(std.tolist()))

    def check_fits(self, inputs: Inputs) -> None:
        """Raise DataError if there are means for other channels than those of the inputs."""
        count = max(len(self.mean), len(self.std))
        if count > 1 and (inputs.ndim < 2 or inputs.shape[1] != count):
            raise DataError(
                f"preprocess has the means of {count} channels or columns, "
                f"but a sample has shape {inputs.shape[1:]}"
            )
        if self.crop_and_flip and inputs.ndim != 4:
            raise DataError(f"crop_and_flip needs images (channels, height, width), got {inputs.shape[1:]}")

    def channel_shape(self, dimensions: int) -> tuple[int, ...]:
        """Return the shape of means and deviations beside inputs of so many dimensions."""
        several = max(len(self.mean), len(self.std)) > 1
        return (-1,) + (1,) * (dimensions - 2) if several else (1,) * dimensions

    def __call__(self, inputs: Inputs) -> NDArray[np.float32]:
        """Return a batch as network input."""
        channels = self.channel_shape(inputs.ndim)
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

    def __repr__(self) -> str:
        mean, std = _shown(self.mean), _shown(self.std)
        return f"Preprocess(scale={self.scale}, mean={mean}, std={std}, crop_and_flip={self.crop_and_flip})"


def _numbers(name: str, values: float | Iterable[float]) -> tuple[float, ...]:
    try:
        numbers = tuple(np.atleast_1d(np.asarray(values, np.float64)).tolist())
    except (TypeError, ValueError):
        numbers = ()
    if not numbers or not np.isfinite(numbers).all():
        raise DataError(f"Preprocess: {name} must be finite numbers, one for each channel, got {values!r}")
    return numbers


def _shown(values: tuple[float, ...]) -> str:
    if len(values) <= SHOWN_VALUES:
        return str(values)
    return f"<{len(values)} from {min(values):.3g} to {max(values):.3g}>"
