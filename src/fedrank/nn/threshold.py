"""Masks a layer: finds the threshold between its top edges and the others without sorting."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrank.nn import kernels
from fedrank.nn.kernels import Bits

Floats = NDArray[np.float32]

SMALL_LAYER = 4096
BAND_SHARE = 1 / 2000


class Threshold:
    """The threshold of one layer, remembered from step to step.

    One training step moves it past a few hundred of a million edges. So a single pass masks by the last
    threshold and collects the edges in a narrow band around it; only those are examined and corrected. If
    the threshold has left the band, all edges are searched. The mask is exact in either case: among equal
    edges, the first are masked.
    """

    def __init__(self, zeros: int, size: int, *, by_magnitude: bool = False) -> None:
        self.zeros = zeros
        self.sign = np.float32(-1 if by_magnitude else 1)
        self.margin = max(64, int(size * BAND_SHARE)) if size >= SMALL_LAYER else size
        self.room = min(8 * self.margin, size)
        self.band = np.empty(self.room + kernels.BLOCK, np.int64)
        everywhere = np.float32(np.inf)
        self.reach = (everywhere, everywhere)
        self.band_ends = self.start = (-everywhere, np.float32(0), everywhere)

    def mask(self, scores: Tensor, weights: Tensor, out: Tensor) -> None:
        """Write the weights of all but the `zeros` least important edges, at the start of a client.

        All clients start with the same scores in some order, so the threshold is that of the previous one.
        """
        self.band_ends = self.start
        arrays = (scores.numpy(), _array(weights), _array(out))
        self._correct(self._mask(*arrays), *arrays)
        self.start = self.band_ends

    def descend(
        self,
        scores: Tensor,
        velocity: Tensor,
        gradient: Tensor,
        weights: Tensor,
        out: Tensor,
        sgd: tuple[float, float, float],
    ) -> None:
        """Take one SGD step with this rate, momentum and decay, and mask by the new scores."""
        values, fixed, masked = scores.numpy(), _array(weights), _array(out)
        rate, momentum, decay = (np.float32(factor) for factor in sgd)
        found = kernels.descend(
            values,
            velocity.numpy(),
            _array(gradient),
            fixed,
            self.sign,
            (rate, momentum, decay),
            self.band_ends,
            masked,
            self.band,
        )
        self._correct(found, values, fixed, masked)

    def _mask(self, scores: Floats, weights: Floats | Bits, out: Floats | Bits) -> tuple[int, int]:
        return kernels.mask(scores, weights, self.sign, self.band_ends, out, self.band)

    def _correct(
        self, found: tuple[int, int], scores: Floats, weights: Floats | Bits, out: Floats | Bits
    ) -> None:
        """Correct the mask inside the band, given how many edges lie below and inside it."""
        if not self._holds_border(found):
            self._look_everywhere(scores)
            found = self._mask(scores, weights, out)
            if not self._holds_border(found):  # too many equal edges for any band
                out[:] = weights
                out[np.argsort(self._importance(scores), kind="stable")[: self.zeros]] = 0
                return
        below, inside = found
        edges, place = self.band[:inside], self.zeros - below
        importance = self._importance(scores[edges])
        border = np.partition(importance, place)[place]
        stays = importance >= border
        equal_but_falling = place - (inside - np.count_nonzero(stays))
        if equal_but_falling:
            stays[np.flatnonzero(importance == border)[:equal_but_falling]] = False
        out[edges] = np.where(stays, weights[edges], out.dtype.type(0))
        self._move(border)

    def _holds_border(self, found: tuple[int, int]) -> bool:
        below, inside = found
        return 0 <= self.zeros - below < inside <= self.room

    def _look_everywhere(self, scores: Floats) -> None:
        first, last = max(0, self.zeros - self.margin), min(scores.size - 1, self.zeros + self.margin)
        parted = np.partition(self._importance(scores), (first, self.zeros, last))
        border = parted[self.zeros]
        self.reach = (border - parted[first], parted[last] - border)
        self._move(border)

    def _move(self, border: np.float32) -> None:
        with np.errstate(invalid="ignore"):  # infinite scores are reported after training
            self.band_ends = (border - self.reach[0], border, border + self.reach[1])

    def _importance(self, scores: Floats) -> Floats:
        return np.abs(scores) if self.sign < 0 else scores


def _array(tensor: Tensor) -> Floats | Bits:
    """Return a tensor's memory as an array; NumPy knows bfloat16 only as bits."""
    array: Floats | Bits = (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array


class DeviceThreshold:
    """The same with torch operations, for devices that the compiled kernels do not support."""

    def __init__(self, zeros: int, _size: int, *, by_magnitude: bool = False) -> None:
        self.zeros = zeros
        self.by_magnitude = by_magnitude

    def mask(self, scores: Tensor, weights: Tensor, out: Tensor) -> None:
        """Write the weights of all but the `zeros` least important edges; of equal edges, mask the first."""
        importance = scores.abs() if self.by_magnitude else scores
        border = torch.kthvalue(importance, self.zeros + 1).values
        torch.mul(weights, importance >= border, out=out)
        equal_but_falling = self.zeros - int((importance < border).sum())
        if equal_but_falling:
            out[torch.nonzero(importance == border).flatten()[:equal_but_falling]] = 0

    def descend(
        self,
        scores: Tensor,
        velocity: Tensor,
        gradient: Tensor,
        weights: Tensor,
        out: Tensor,
        sgd: tuple[float, float, float],
    ) -> None:
        """Take one SGD step with this rate, momentum and decay, and mask by the new scores."""
        rate, momentum, decay = sgd
        slope = gradient.float() * weights.float()
        if self.by_magnitude:
            slope *= scores.sign()
        velocity.mul_(momentum).add_(slope.add_(scores, alpha=decay))
        scores.add_(velocity, alpha=-rate)
        self.mask(scores, weights, out)
