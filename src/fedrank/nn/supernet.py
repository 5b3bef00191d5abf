"""The supernetwork: a network with frozen random weights whose edges the clients rank."""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedrank.arguments import check_number
from fedrank.errors import ModelError
from fedrank.nn.base import assembled, check_seed
from fedrank.nn.init import WEIGHT_INITIALIZERS, initial_scores, initial_weights
from fedrank.parameters import did_you_mean
from fedrank.rank import Layout, Ranking, assign_scores, rank, top_mask


class Scores(enum.StrEnum):
    """How the importance of an edge follows from its score."""

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


@dataclass(frozen=True, eq=False, repr=False)
class Supernetwork:
    """A model whose weights are derived from a seed and whose edges are ranked.

    Create it with `fedrank.supernetwork`. `skeleton` is the user's module without the values of its
    weights. Pickles contain only the skeleton and the seed, and rebuild the rest.
    """

    skeleton: nn.Module
    layout: Layout
    seed: int
    keep: float
    weights_from: str
    scores: Scores

    def __post_init__(self) -> None:
        if self.keep == 0:
            raise ModelError("keep must be more than 0: without edges, every output is 0")
        check_number("keep", self.keep, above=0, most=1, error=ModelError)
        check_seed(self.seed)
        if self.weights_from not in WEIGHT_INITIALIZERS:
            hint = did_you_mean(self.weights_from, WEIGHT_INITIALIZERS)
            raise ModelError(f"unknown weights {self.weights_from!r}{hint}")

    def __repr__(self) -> str:
        layers = "1 layer" if len(self.layout) == 1 else f"{len(self.layout)} layers"
        facts = f"{layers}, {self.layout.size:,} edges, keep={self.keep:g}, seed={self.seed}"
        return f"<Supernetwork: {type(self.skeleton).__name__}, {facts}>"

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

    @cached_property
    def initial_mask(self) -> NDArray[np.bool_]:
        """The mask of the initial ranking."""
        return self.mask(self.initial_ranking)

    def assign_scores(self, ranking: Ranking) -> NDArray[np.float32]:
        """Return the initial scores, reordered so that they follow `ranking` (Algorithm 2, line 10)."""
        return assign_scores(self.sorted_scores, by=ranking, layout=self.layout)

    def rank(self, scores: NDArray[np.float32]) -> Ranking:
        """Return the ranking of trained scores (Algorithm 2, line 12)."""
        return rank(np.abs(scores) if self.scores.rank_by_magnitude else scores, self.layout)

    def mask(self, ranking: Ranking) -> NDArray[np.bool_]:
        """Return the mask of the subnetwork that `ranking` defines."""
        if self.scores is Scores.AUTHORS:
            magnitudes = np.abs(self.assign_scores(ranking))
            return top_mask(rank(magnitudes, self.layout), self.layout, self.keep)
        return top_mask(ranking, self.layout, self.keep)

    def subnetwork(self, ranking: Ranking) -> nn.Module:
        """Return the subnetwork of `ranking` as an ordinary module."""
        return self.with_weights(np.where(self.mask(ranking), self.weights, np.float32(0)))

    def with_weights(self, weights: NDArray[np.float32]) -> nn.Module:
        """Return the model with these weights as an ordinary module, in evaluation mode."""
        return assembled(self.skeleton, self.layout, weights)


def check_supernetwork(network: object) -> None:
    """Raise ModelError for a model that has not been made a supernetwork."""
    if not isinstance(network, Supernetwork):
        raise ModelError(
            f"expected a supernetwork, got {type(network).__name__}: pass fedrank.supernetwork(model, seed=7)"
        )
