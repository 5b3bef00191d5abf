"""A method of one's own: FedAvg with momentum on the server (FedAvgM; Hsu et al., 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import nn

import fedrank
from fedrank.methods import FedAvg
from fedrank.methods.weights import UpdateStore, WeightState


@dataclass(frozen=True)
class MomentumState(WeightState):
    velocity: NDArray[np.float32]


@dataclass(frozen=True)
class FedAvgM(FedAvg):
    """Everything but the server's step is FedAvg's."""

    momentum: float = 0.5

    def init(self) -> MomentumState:
        weights = self.network.weights.copy()
        return MomentumState(0, weights, np.zeros_like(weights))

    def aggregate(self, state: MomentumState, collected: UpdateStore) -> MomentumState:
        mean = self.combine(collected.in_order(), state.round)
        velocity = np.float32(self.momentum) * state.velocity + mean
        return MomentumState(state.round + 1, state.weights + velocity, velocity)

    def pack(self, state: MomentumState) -> dict[str, NDArray[Any]]:
        return super().pack(state) | {"velocity": state.velocity}

    def unpack(self, arrays: Mapping[str, NDArray[Any]]) -> MomentumState:
        state = super().unpack(arrays)
        return MomentumState(state.round, state.weights, arrays["velocity"])


if __name__ == "__main__":
    digits = load_digits()
    clients = fedrank.split(digits.images / 16, digits.target, clients=40, by=fedrank.Dirichlet(1.0), seed=7)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 64, bias=False), nn.ReLU(), nn.Linear(64, 10, bias=False)
    )
    method = FedAvgM(fedrank.supernetwork(model, seed=7), fedrank.LocalTraining(learning_rate=0.02))
    run = fedrank.train(method, clients, rounds=10, clients_per_round=10)
    print(f"accuracy {run.evaluation.test_accuracy:.1%}")
