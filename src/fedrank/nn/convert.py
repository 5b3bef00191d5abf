"""Turning a user's model into a supernetwork, or saying why it cannot be one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from fedrank.errors import ModelError
from fedrank.nn.supernet import Scores, Supernetwork
from fedrank.rank import Layout

MASKABLE = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class Obstacle:
    """Something in a model that a ranking cannot express, and how to do without it."""

    where: str
    reason: str
    remedy: str
    mend: Callable[[], None] | None = None

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}; {self.remedy}"


def supernetwork(
    model: nn.Module,
    *,
    seed: int,
    keep: float = 0.5,
    weights: str = "signed-kaiming-constant",
    scores: str = "signed",
    fix: bool = False,
) -> Supernetwork:
    """Turn a model built of Linear and Conv layers into a supernetwork.

    The model itself is not changed. What a ranking cannot express (biases, learned normalization,
    embeddings, attention) is refused with the reason. `fix=True` mends what can be mended: it
    removes biases, switches the learned parts of normalization off, and puts GroupNorm in the
    place of BatchNorm.

    Parameters
    ----------
    model : an ordinary torch module; only its structure is used, never its weights.
    seed : 32 bits from which weights and initial scores follow.
    keep : the share k of each layer's edges that forms the subnetwork.
    weights : signed-kaiming-constant, kaiming-normal, glorot-normal or kaiming-uniform.
    scores : signed, magnitude or authors, see `fedrank.nn.Scores`.
    fix : mend what can be mended instead of refusing it.
    """
    skeleton = copy.deepcopy(model)
    obstacles = find_obstacles(skeleton)
    if fix:
        for obstacle in obstacles:
            if obstacle.mend is not None:
                obstacle.mend()
        obstacles = find_obstacles(skeleton)
    if obstacles:
        lines = "\n".join(f"  {obstacle}" for obstacle in obstacles)
        mendable = any(obstacle.mend for obstacle in obstacles)
        hint = "\nfix=True mends biases and normalization layers." if mendable else ""
        raise ModelError(f"this model cannot be ranked edge by edge:\n{lines}{hint}")
    layout = Layout.of((name, tuple(weight.shape)) for name, weight in skeleton.named_parameters())
    for weight in skeleton.parameters():
        weight.data = torch.zeros(1).expand(weight.shape)  # keeps the shape, not the values
    return Supernetwork(skeleton, layout, seed, keep, weights, _scores(scores))


def _scores(name: str) -> Scores:
    try:
        return Scores(name)
    except ValueError:
        known = ", ".join(Scores)
        raise ModelError(f"scores is {name!r}; there are: {known}") from None


def find_obstacles(model: nn.Module) -> list[Obstacle]:
    """Return everything in a model that a ranking of edges cannot express."""
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
    if isinstance(module, nn.MultiheadAttention):
        remedy = "write the projections as Linear layers without bias and use scaled_dot_product_attention"
        return Obstacle(where, "its projections are packed in one parameter", remedy)
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
            f"use {groups}, which looks at one sample at a time",
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
                f"it holds the parameters {names} where one 'weight' is expected",
                "remove weight normalization and other parametrizations",
            )
        return None
    if own:
        names = ", ".join(own)
        known = ", ".join(layer.__name__ for layer in MASKABLE)
        return Obstacle(
            where,
            f"its parameters ({names}) are not edges of a layer",
            f"build it of {known} without bias",
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
