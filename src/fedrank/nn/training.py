"""Edge-popup: trains the scores of a supernetwork on one client's data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedrank.arguments import check_flag, check_number, whole_number
from fedrank.errors import ConfigError, TrainingError
from fedrank.nn.masked import MaskedNetwork
from fedrank.nn.precision import Precision
from fedrank.parameters import did_you_mean

Batch = tuple[NDArray[np.float32], NDArray[np.int64]]


class Samples(Protocol):
    """Labeled data that yields random batches."""

    @property
    def labels(self) -> NDArray[np.int64]: ...

    def batches(self, batch_size: int, rng: np.random.Generator) -> Iterator[Batch]: ...


@dataclass(frozen=True)
class LocalTraining:
    """How a client trains: SGD with cosine decay of the learning rate over the local epochs.

    Parameters
    ----------
    balanced : correct the loss for how often each label occurs at the client (Menon et al., 2021), so that
        it learns to tell classes apart instead of which ones it has. The paper does not.
    """

    epochs: int = 5
    learning_rate: float = 0.4
    momentum: float = 0.9
    weight_decay: float = 1e-4
    batch_size: int = 8
    balanced: bool = True
    precision: Precision = Precision.FLOAT32
    """bfloat16 is about twice as fast on processors that have instructions for it, and slower on others."""

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "precision", Precision(self.precision))
        except ValueError:
            hint = did_you_mean(str(self.precision), map(str, Precision))
            raise ConfigError(f"unknown precision {self.precision!r}{hint}") from None
        for name in ("epochs", "batch_size"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name), least=1))
        check_number("learning_rate", self.learning_rate, above=0)
        check_number("momentum", self.momentum, least=0, below=1)
        check_number("weight_decay", self.weight_decay, least=0)
        check_flag("balanced", self.balanced)


@dataclass(frozen=True)
class Trained:
    """The scores after training, and the mean loss over all steps."""

    scores: NDArray[np.float32]
    loss: float


def edge_popup(
    network: MaskedNetwork,
    initial: NDArray[np.float32],
    samples: Samples,
    rng: np.random.Generator,
    local: LocalTraining,
) -> Trained:
    """Train `initial` scores on `samples` (Ramanujan et al., 2020; the paper's Algorithm 1)."""
    network.begin(initial)
    loss_of = client_loss(samples.labels, balanced=local.balanced)
    losses = torch.zeros((), device=network.device)
    steps = 0
    with torch.random.fork_rng():
        torch.manual_seed(int(rng.integers(2**63)))  # models may use dropout
        for epoch in range(local.epochs):
            rate = cosine(local.learning_rate, epoch, local.epochs)
            for inputs, labels in samples.batches(local.batch_size, rng):
                logits = network.forward(torch.from_numpy(inputs).to(network.device))
                loss = loss_of(logits, torch.from_numpy(labels).to(network.device))
                network.backward(loss)
                network.descend(rate, local.momentum, local.weight_decay)
                losses += loss.detach()
                steps += 1
    trained = network.scores.to("cpu", copy=True).numpy()
    if not np.isfinite(trained).all():
        raise TrainingError(
            "the scores are NaN or infinite: the learning rate "
            f"({local.learning_rate:g}) is too high for this model and data, or the inputs are not finite"
        )
    return Trained(trained, float(losses) / steps)


def client_loss(labels: NDArray[np.int64], *, balanced: bool) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the cross-entropy, perhaps of logits that have the logarithm of their label's share added.

    One more sample of every label keeps a client with a single label learning.
    """
    if not balanced:
        return cross_entropy

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        counts = np.bincount(labels, minlength=logits.shape[1]) + 1
        shares = torch.from_numpy((counts / counts.sum()).astype(np.float32)).to(logits.device)
        return cross_entropy(logits + shares.log(), targets)

    return loss


def cosine(learning_rate: float, epoch: int, epochs: int) -> float:
    """Return the rate of one epoch, which decays from `learning_rate` toward 0 along a half cosine."""
    return learning_rate * (1 + math.cos(math.pi * epoch / epochs)) / 2
