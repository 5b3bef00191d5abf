"""Finding the border between the edges of a mask and the others, by selection instead of sorting."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrank.nn.kernels import gather_band, write_masked

SMALL_LAYER = 4096
BAND_SHARE = 1 / 2000


class Border:
    """The border of one layer, remembered from step to step.

    A step of training moves it past a few hundred of a million edges. So only the edges in a narrow
    band around the last border are looked at closely; where the border has left the band, all are.
    The result is exact in either case.
    """

    def __init__(self, zeros: int, size: int) -> None:
        self.zeros = zeros
        self.size = size
        self.margin = int(size * BAND_SHARE)
        self.band = np.empty(8 * self.margin, np.float32)
        self.low = self.high = self.below_border = self.above_border = np.float32(np.nan)

    def mask(self, importance: Tensor, weights: Tensor, out: Tensor) -> None:
        """Write the weights of all but the `zeros` least important edges; of equal edges the first fall."""
        if importance.device.type == "cpu":
            values = importance.numpy()
            threshold, ties_below = self.find(values)
            write_masked(values, weights.numpy(), threshold, out.numpy())
            border = float(threshold)
        else:
            border, ties_below = _select_on_device(importance, self.zeros)
            torch.mul(weights, torch.ge(importance, border), out=out)
        if ties_below:
            out[torch.nonzero(importance == border).flatten()[:ties_below]] = 0

    def find(self, values: NDArray[np.float32]) -> tuple[np.float32, int]:
        """Return the least value that stays, and how many that equal it must fall nevertheless."""
        if self.size < SMALL_LAYER or self.zeros == 0:
            return _select(values, self.zeros)
        below, inside = gather_band(values, self.low, self.high, self.band)
        place = self.zeros - below
        if not 0 <= place < inside <= self.band.size:
            return self._find_anew(values)
        border, ties_below = _select(self.band[:inside], place)
        self.low, self.high = border - self.below_border, border + self.above_border
        return border, ties_below

    def _find_anew(self, values: NDArray[np.float32]) -> tuple[np.float32, int]:
        first, last = max(0, self.zeros - self.margin), min(self.size - 1, self.zeros + self.margin)
        parted = np.partition(values, (first, self.zeros, last))
        border = parted[self.zeros]
        self.low, self.high = parted[first], parted[last]
        self.below_border, self.above_border = border - self.low, self.high - border
        return border, int(np.count_nonzero(parted[: self.zeros] == border))


def _select(values: NDArray[np.float32], n: int) -> tuple[np.float32, int]:
    """Return the n-th smallest value, counting from 0, and how many before it equal it."""
    parted = np.partition(values, n)
    return parted[n], int(np.count_nonzero(parted[:n] == parted[n]))


def _select_on_device(values: Tensor, n: int) -> tuple[float, int]:
    border = torch.kthvalue(values, n + 1).values
    return float(border), n - int((values < border).sum())
