"""The laboratory: malicious clients' pooled data, on which they measure what a model does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from fedrank.data import Samples
from fedrank.nn import Supernetwork, Workspace, channels_last

MOST_SAMPLES = 400
BATCH = 200


@dataclass(frozen=True, eq=False)
class Laboratory:
    """Some clients' training data, and a network to try models on.

    Parameters
    ----------
    network : the supernetwork whose masks are tried.
    clients : the training data of each client.
    workspace : the networks to compute with.
    label : the class whose loss counts; -1 for all.
    """

    network: Supernetwork
    clients: Sequence[Samples]
    workspace: Workspace
    label: int = -1
    pooled: Samples = field(init=False)

    def __post_init__(self) -> None:
        each = max(1, MOST_SAMPLES // max(1, len(self.clients)))
        first = self.clients[0]
        inputs = np.concatenate([client.inputs[:each] for client in self.clients])[:MOST_SAMPLES]
        labels = np.concatenate([client.labels[:each] for client in self.clients])[:MOST_SAMPLES]
        if self.label >= 0 and (labels == self.label).any():
            inputs, labels = inputs[labels == self.label], labels[labels == self.label]
        object.__setattr__(self, "pooled", Samples(inputs, labels, first.preprocess))

    def aimed_at(self, label: int) -> Laboratory:
        """Return the laboratory that cares for one class; -1 for all."""
        return replace(self, label=label)

    def loss(self, mask: NDArray[np.bool_]) -> float:
        """Return the mean loss of a subnetwork."""
        with torch.inference_mode():
            return sum(float(loss) for loss in self._losses(mask)) / len(self.pooled)

    def gradient(self, mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Return by how much the loss grows with each edge: dL/dw times the edge's weight."""
        parameters = self.workspace.testing.parameters
        for parameter in parameters:
            parameter.grad = None
        for loss in self._losses(mask):
            loss.backward()  # type: ignore[no-untyped-call]
        flat = torch.cat([_gradient(parameter).reshape(-1) for parameter in parameters])
        for parameter in parameters:
            parameter.grad = None
        return np.asarray(flat.cpu().numpy() * self.network.weights / len(self.pooled), np.float32)

    def _losses(self, mask: NDArray[np.bool_]) -> list[torch.Tensor]:
        """Return the sums of the losses of all batches."""
        network = self.workspace.testing
        with torch.no_grad():
            network.begin(np.where(mask, self.network.weights, np.float32(0)))
        losses = []
        for part in self.pooled.parts(BATCH):
            inputs = channels_last(torch.from_numpy(part.preprocess(part.inputs)).to(network.device))
            labels = torch.from_numpy(part.labels).to(network.device)
            losses.append(cross_entropy(network.forward(inputs), labels, reduction="sum"))
        return losses


def _gradient(parameter: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
