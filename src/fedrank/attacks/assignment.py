"""A permutation that serves an end: Gumbel-Sinkhorn with Adam, and Hungarian rounding (Mena et al., 2018)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch.nn.functional import softmax

ADAM_STEPS = 5
SINKHORN_STEPS = 10
TEMPERATURE = 0.5


def assign(
    margins: NDArray[np.float64], places: NDArray[np.intp], malicious: int, seed: int
) -> NDArray[np.intp]:
    """Return which place each edge takes, so that as many as possible change sides.

    Parameters
    ----------
    margins : how far each edge's sum of honest reputations is above the border, or (negative) below it.
    places : the positions that the edges share out among themselves.
    malicious : how many ballots will be sent.
    """
    if margins.size == 0:
        return np.zeros(0, np.intp)
    rng = np.random.default_rng(seed)
    scale = max(float(np.abs(margins).max()), 1.0)
    before = torch.tensor(margins / scale, dtype=torch.float32)
    moves = torch.tensor(malicious * (places - places.mean()) / scale, dtype=torch.float32)
    wanted = -torch.sign(before)
    logits = torch.zeros(before.numel(), before.numel(), requires_grad=True)
    adam = torch.optim.Adam([logits], lr=1.0)
    for _ in range(ADAM_STEPS):
        waits = torch.from_numpy(rng.standard_exponential(logits.shape, np.float32))
        noise = -waits.clamp_min(1e-20).log()
        permutation = _sinkhorn((logits + noise) / TEMPERATURE)
        after = before + permutation @ moves
        # How many edges have the side that is wanted, softly counted.
        loss = -torch.sigmoid(10 * wanted * after).sum()
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
    with torch.no_grad():
        permutation = _sinkhorn(logits / TEMPERATURE)
    return np.asarray(linear_sum_assignment(permutation.numpy(), maximize=True)[1], np.intp)


def _sinkhorn(logits: torch.Tensor) -> torch.Tensor:
    """Return a matrix whose rows and (nearly) columns sum to 1.

    Gradients pass the rows' normalization alone; the columns' is a constant, which costs little and is fast.
    """
    with torch.no_grad():
        kernel = torch.exp(logits - logits.amax(dim=1, keepdim=True))
        columns = torch.ones(logits.shape[1])
        for _ in range(SINKHORN_STEPS):
            rows = 1 / (kernel @ columns)
            columns = 1 / (rows @ kernel).clamp_min(1e-30)
    return softmax(logits + columns.log(), dim=1)
