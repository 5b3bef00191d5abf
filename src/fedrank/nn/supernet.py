"""The supernetwork: a network of frozen random weights in which clients rank the edges."""

from __future__ import annotations

import copy
import enum
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedrank.errors import ModelError
from fedrank.nn.init import WEIGHT_INITIALIZERS, initial_scores, initial_weights
from fedrank.rank import Layout, Ranking, assign_scores, rank, top_mask


class Scores(enum.StrEnum):
    """Which edges count as important: those of high score, or those of large magnitude."""

    SIGNED = "signed"
    """Mask and rank by the score itself: the paper's text."""
    MAGNITUDE = "magnitude"
    """Mask and rank by |score|."""
    AUTHORS = "authors"
    """Mask by |score| but rank by the score, as the authors' released program does."""

    @property
    def mask_by_magnitude(self) -> bool:
        return self is not Scores.SIGNED

    @property
    def rank_by_magnitude(self) -> bool:
        return self is Scores.MAGNITUDE


@dataclass(frozen=True, eq=False)
class Supernetwork:
    """A model whose weights follow from a seed and whose edges are to be ranked.

    Made by `fedrank.supernetwork`. `skeleton` is the user's module without the values of its
    weights. Copies of a supernetwork travel as skeleton and seed and rebuild the rest.
    """

    skeleton: nn.Module
    layout: Layout
    seed: int
    keep: float
    weights_from: str
    scores: Scores

    def __post_init__(self) -> None:
        if self.keep == 0:
            raise ModelError("keep is 0: without an edge every output is 0, and there is nothing to learn")
        if not 0 < self.keep <= 1:
            raise ModelError(f"keep is {self.keep}: the share of edges to keep is more than 0 and at most 1")
        if not 0 <= self.seed < 2**32:
            raise ModelError(f"seed is {self.seed}: a seed has 32 bits, 0 to {2**32 - 1}")
        if self.weights_from not in WEIGHT_INITIALIZERS:
            known = ", ".join(WEIGHT_INITIALIZERS)
            raise ModelError(f"weights are to come from {self.weights_from!r}; there are: {known}")

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def weights(self) -> NDArray[np.float32]:
        """The frozen weights of all layers (theta^w)."""
        return initial_weights(self.layout, self.seed, self.weights_from)

    @cached_property
    def initial_scores(self) -> NDArray[np.float32]:
        """The scores before any training (theta^s)."""
        scores = initial_scores(self.layout, self.seed)
        return np.abs(scores) if self.scores.rank_by_magnitude else scores

    @cached_property
    def sorted_scores(self) -> NDArray[np.float32]:
        """The initial scores of each layer, from low to high."""
        ordered = self.initial_scores.copy()
        for layer in self.layout:
            ordered[layer.edges].sort()
        return ordered

    @cached_property
    def initial_ranking(self) -> Ranking:
        """The ranking of the initial scores (Algorithm 2, line 4)."""
        return self.rank(self.initial_scores)

    def assign_scores(self, ranking: Ranking) -> NDArray[np.float32]:
        """Return the initial scores, reordered so that they follow `ranking` (Algorithm 2, line 10)."""
        return assign_scores(self.sorted_scores, by=ranking, layout=self.layout)

    def rank(self, scores: NDArray[np.float32]) -> Ranking:
        """Return the ranking of trained scores (Algorithm 2, line 12)."""
        return rank(np.abs(scores) if self.scores.rank_by_magnitude else scores, self.layout)

    def mask(self, ranking: Ranking) -> NDArray[np.bool_]:
        """Return the edges of the subnetwork that `ranking` stands for."""
        if self.scores is Scores.AUTHORS:
            magnitudes = np.abs(self.assign_scores(ranking))
            return top_mask(rank(magnitudes, self.layout), self.layout, self.keep)
        return top_mask(ranking, self.layout, self.keep)

    def subnetwork(self, ranking: Ranking) -> nn.Module:
        """Return the model people use: an ordinary module with the top edges of `ranking`."""
        return self.with_weights(np.where(self.mask(ranking), self.weights, np.float32(0)))

    def with_weights(self, weights: NDArray[np.float32]) -> nn.Module:
        """Return the model with other weights: an ordinary module, in evaluation mode."""
        module = copy.deepcopy(self.skeleton)
        flat = torch.from_numpy(weights)
        parameters = dict(module.named_parameters())
        for layer in self.layout:
            parameters[layer.name].data = flat[layer.edges].view(layer.shape).clone()
        return module.requires_grad_(False).eval()
