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
from torch import Tensor, nn

from fedrank.errors import ModelError
from fedrank.nn.init import WEIGHT_INITIALISERS, initial_scores, initial_weights
from fedrank.rank import Layer, Layout, Ranking, place, rank, top_count, top_mask


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
        if not 0 < self.keep < 1:
            raise ModelError(f"keep is {self.keep}: the share of edges to keep lies between 0 and 1")
        if not 0 <= self.seed < 2**32:
            raise ModelError(f"seed is {self.seed}: a seed has 32 bits, 0 to {2**32 - 1}")
        if self.weights_from not in WEIGHT_INITIALISERS:
            known = ", ".join(WEIGHT_INITIALISERS)
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

    def initial_ranking(self) -> Ranking:
        """Return the ranking of the initial scores (Algorithm 2, line 4)."""
        return self.rank(self.initial_scores)

    def place(self, ranking: Ranking) -> NDArray[np.float32]:
        """Return the initial scores, reordered so that they follow `ranking` (Algorithm 2, line 10)."""
        return place(self.sorted_scores, by=ranking, layout=self.layout)

    def rank(self, scores: NDArray[np.float32]) -> Ranking:
        """Return the ranking of trained scores (Algorithm 2, line 12)."""
        return rank(np.abs(scores) if self.scores.rank_by_magnitude else scores, self.layout)

    def mask(self, ranking: Ranking) -> NDArray[np.bool_]:
        """Return the edges of the subnetwork that `ranking` stands for."""
        if self.scores is Scores.AUTHORS:
            magnitudes = np.abs(self.place(ranking))
            return top_mask(rank(magnitudes, self.layout), self.layout, self.keep)
        return top_mask(ranking, self.layout, self.keep)

    def masked(self, device: torch.device) -> MaskedNetwork:
        """Return the network that edge-popup trains in on this device; its buffers are reused."""
        if device not in self._masked:
            self._masked[device] = MaskedNetwork(self, device)
        return self._masked[device]

    @cached_property
    def _masked(self) -> dict[torch.device, MaskedNetwork]:
        return {}

    def subnetwork(self, ranking: Ranking) -> nn.Module:
        """Return the model people use: an ordinary module with the top edges of `ranking`."""
        module = copy.deepcopy(self.skeleton)
        masked = torch.from_numpy(np.where(self.mask(ranking), self.weights, np.float32(0)))
        parameters = dict(module.named_parameters())
        for layer in self.layout:
            parameters[layer.name].data = masked[layer.edges].view(layer.shape).clone()
        return module.requires_grad_(False).eval()


class MaskedNetwork:
    """A supernetwork's module whose weights are rewritten for every step of edge-popup.

    The weights of all layers lie in one flat tensor that the module's parameters look into, so a
    mask is applied in place and the module itself stays an ordinary one.
    """

    def __init__(self, network: Supernetwork, device: torch.device) -> None:
        self.layout = network.layout
        self.keep = network.keep
        self.by_magnitude = network.scores.mask_by_magnitude
        self.module = copy.deepcopy(network.skeleton).to(device).train()
        self.weights = torch.from_numpy(network.weights).to(device)
        self.masked = torch.empty_like(self.weights)
        self.initial_buffers = {name: value.clone() for name, value in self.module.named_buffers()}
        named = dict(self.module.named_parameters())
        self.parameters = [named[layer.name] for layer in self.layout]
        for layer, parameter in zip(self.layout, self.parameters, strict=True):
            parameter.data = self.masked[layer.edges].view(layer.shape)
            parameter.requires_grad_(True)

    def reset(self) -> None:
        """Forget what a model's own buffers may have kept of an earlier client."""
        for name, value in self.initial_buffers.items():
            owner, _, leaf = name.rpartition(".")
            setattr(self.module.get_submodule(owner), leaf, value.clone())

    def forward(self, scores: Tensor, inputs: Tensor) -> Tensor:
        """Run the subnetwork of the top k% scores (EP forward of Algorithm 1)."""
        importance = scores.abs() if self.by_magnitude else scores
        for layer in self.layout:
            mark_top(importance[layer.edges], self.top_count(layer), out=self.masked[layer.edges])
        self.masked.mul_(self.weights)
        logits: Tensor = self.module(inputs)
        return logits

    def backward(self, loss: Tensor, scores: Tensor) -> None:
        """Set the scores' gradient: the straight-through estimate dL/ds = dL/d(masked weight) * weight."""
        for parameter in self.parameters:
            parameter.grad = None
        loss.backward()  # type: ignore[no-untyped-call]
        gradient = scores.grad
        assert gradient is not None
        for layer, parameter in zip(self.layout, self.parameters, strict=True):
            if parameter.grad is None:
                raise ModelError(f"layer {layer.name!r} takes no part in the model's output: remove it")
            torch.mul(parameter.grad.reshape(-1), self.weights[layer.edges], out=gradient[layer.edges])
        if self.by_magnitude:
            gradient.mul_(scores.sign())

    def top_count(self, layer: Layer) -> int:
        return top_count(layer.size, self.keep)


def mark_top(importance: Tensor, count: int, out: Tensor) -> None:
    """Write 1 for the `count` most important edges and 0 for the others; ties favour high numbers.

    Selects instead of sorting. The stable order puts equal edges in the order of their numbers, so
    of the edges that tie at the border the first ones fall.
    """
    zeros = importance.numel() - count
    if zeros == 0:
        out.fill_(1)
        return
    border, ties_below = _border(importance, zeros)
    torch.ge(importance, border, out=out)
    if ties_below:
        ties = torch.nonzero(importance == border).flatten()
        out[ties[:ties_below]] = 0


def _border(values: Tensor, n: int) -> tuple[float, int]:
    """Return the n-th smallest value, counting from 0, and how many before it equal it."""
    if values.device.type == "cpu":
        parted = np.partition(values.numpy(), n)
        return float(parted[n]), int(np.count_nonzero(parted[:n] == parted[n]))
    border = torch.kthvalue(values, n + 1).values
    return float(border), n - int((values < border).sum())
