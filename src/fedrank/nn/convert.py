"""Converts a user's model into a supernetwork, or explains why it cannot be converted."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from fedrank.arguments import check_flag
from fedrank.errors import ModelError
from fedrank.nn.base import check_module
from fedrank.nn.supernet import Scores, Supernetwork
from fedrank.parameters import did_you_mean
from fedrank.rank import Layout

MASKABLE = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class Obstacle:
    """A part of a model that a ranking cannot express, and how to replace it."""

    where: str
    reason: str
    remedy: str
    repair: Callable[[], None] | None = None

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}; {self.remedy}"


def supernetwork(
    model: nn.Module,
    *,
    seed: int,
    keep: float = 0.8,
    weights: str = "signed-kaiming-constant",
    scores: str = "signed",
    fix: bool = False,
) -> Supernetwork:
    """Turn a model built of Linear and Conv layers into a supernetwork.

    The model itself is not changed. Raises ModelError with the reason for each part that a ranking cannot
    express (biases, learned normalization, embeddings, attention). With `fix=True`, drops biases and the
    learned parts of normalization layers, and replaces BatchNorm by GroupNorm.

    Parameters
    ----------
    model : any torch module; only its structure is used, not its weights.
    seed : 32-bit integer that determines the weights and the initial scores.
    keep : share k of each layer's edges in the subnetwork; the paper keeps 0.5.
    weights : signed-kaiming-constant, kaiming-normal, glorot-normal or kaiming-uniform.
    scores : signed, magnitude or authors; see `fedrank.nn.Scores`.
    fix : drop biases and replace normalization layers instead of raising an error.
    """
    check_module(model)
    check_flag("fix", fix, ModelError)
    skeleton = copy.deepcopy(model)
    obstacles = find_obstacles(skeleton)
    if fix:
        for obstacle in obstacles:
            if obstacle.repair is not None:
                obstacle.repair()
        obstacles = find_obstacles(skeleton)
    if obstacles:
        lines = "\n".join(f"  {obstacle}" for obstacle in obstacles)
        repairable = any(obstacle.repair for obstacle in obstacles)
        switch = "Pass fix=True (in a configuration, set network.fix = true)"
        hint = f"\n{switch} to drop biases and replace BatchNorm by GroupNorm." if repairable else ""
        raise ModelError(f"this model cannot be ranked edge by edge:\n{lines}{hint}")
    layout = Layout.of((name, tuple(weight.shape)) for name, weight in skeleton.named_parameters())
    for weight in skeleton.parameters():
        weight.data = torch.zeros(1).expand(weight.shape)  # frees the memory but keeps the shape
    return Supernetwork(skeleton, layout, seed, keep, weights, _scores(scores))


def _scores(name: str) -> Scores:
    try:
        return Scores(name)
    except ValueError:
        raise ModelError(f"unknown scores {name!r}{did_you_mean(name, map(str, Scores))}") from None


def find_obstacles(model: nn.Module) -> list[Obstacle]:
    """Return all parts of a model that a ranking of edges cannot express."""
    obstacles: list[Obstacle] = []
    explained: set[str] = set()
    for name, module in model.named_modules():
        if any(name == parent or name.startswith(f"{parent}.") for parent in explained):
            continue
        obstacle = _obstacle(model, name, module)
        if obstacle is not None:
            obstacles.append(obstacle)
            explained.add(name)
    return obstacles


def _obstacle(model: nn.Module, name: str, module: nn.Module) -> Obstacle | None:
    where = f"{name or 'the model'} ({type(module).__name__})"
    own = dict(module.named_parameters(recurse=False))
    if any(map(nn.parameter.is_lazy, own.values())):
        remedy = "run the model on one batch before you convert it, or use a layer with fixed sizes"
        return Obstacle(where, "its weights have no shape yet", remedy)
    if isinstance(module, nn.MultiheadAttention):
        remedy = "write the projections as Linear layers without bias and use scaled_dot_product_attention"
        return Obstacle(where, "its projections are packed into one parameter", remedy)
    if isinstance(module, nn.LayerNorm | nn.GroupNorm | nn.RMSNorm) and own:
        return Obstacle(
            where,
            "its scale and shift are trained weights, not edges",
            f"switch them off ({_affine_flag(module)}=False)",
            lambda: _remove_parameters(module),
        )
    if isinstance(module, _BatchNorm):
        groups = f"GroupNorm(1, {module.num_features}, affine=False)"
        return Obstacle(
            where,
            "its statistics are learned outside the ranking, or mix the samples of a batch",
            f"use {groups}, which normalizes one sample at a time",
            lambda: model.set_submodule(name, nn.GroupNorm(1, module.num_features, module.eps, affine=False)),
        )
    if isinstance(module, _NormBase) and (own or module.track_running_stats):
        return Obstacle(
            where,
            "its scale, shift and running statistics are learned outside the ranking",
            "use affine=False, track_running_stats=False",
            lambda: _make_stateless(module),
        )
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        remedy = "use one-hot inputs and a Linear layer without bias"
        return Obstacle(where, "an embedding's rows are looked up, not edges between neurons", remedy)
    if isinstance(module, MASKABLE):
        if own.get("bias") is not None:
            return Obstacle(
                where,
                "biases are not ranked and would stay random",
                "use bias=False",
                lambda: module.register_parameter("bias", None),
            )
        if set(own) != {"weight"}:
            names = ", ".join(own) or "none"
            return Obstacle(
                where,
                f"expected one parameter 'weight', got {names}",
                "remove weight normalization and other parametrizations",
            )
        return None
    if own:
        names = ", ".join(own)
        known = ", ".join(layer.__name__ for layer in MASKABLE)
        return Obstacle(
            where,
            f"its parameters ({names}) are not edges of a layer",
            f"build it from {known} without bias",
        )
    return None


def _affine_flag(module: nn.Module) -> str:
    return "affine" if isinstance(module, nn.GroupNorm) else "elementwise_affine"


def _remove_parameters(module: nn.Module) -> None:
    for name, _ in list(module.named_parameters(recurse=False)):
        module.register_parameter(name, None)


def _make_stateless(module: _NormBase) -> None:
    _remove_parameters(module)
    module.track_running_stats = False
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        module.register_buffer(name, None)
