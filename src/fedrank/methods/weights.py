"""What FedAvg, SignSGD and TopK have in common: the server has weights, the clients send changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import InitVar, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedrank.aggregators import Aggregator
from fedrank.aggregators.measured import Read
from fedrank.data import Samples
from fedrank.errors import BallotError, ConfigError, RunError
from fedrank.methods.base import ClientUpdate, check_settings, method_repr
from fedrank.methods.message import Content, Envelope, round_of
from fedrank.nn import LocalTraining, PlainNetwork, Supernetwork, Workspace
from fedrank.nn.base import check_module
from fedrank.nn.weights import train_weights
from fedrank.randomness import Purpose, entropy_of, keyed_generator
from fedrank.rank import Layer

Floats = NDArray[np.float32]
WEIGHT_TRAINING = LocalTraining(epochs=2, learning_rate=0.05, balanced=False)
"""How clients train weights by default, as published: scores stand a rate of 0.4, weights do not."""


@dataclass(frozen=True)
class WeightState:
    """The global weights after `round` rounds."""

    round: int
    weights: Floats


class UpdateStore:
    """The updates of a round, one vector for each client. They are all kept: robust rules need them all."""

    def __init__(self, method: WeightMethod, round_number: int, asked: Collection[int]) -> None:
        self.method = method
        self.round = round_number
        self.asked = asked
        self.by_client: dict[int, Floats] = {}
        self.entropy = 0
        """Follows from all updates: draws that no client may foresee are keyed by it."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"method": None}  # who merges it has one

    def add(self, sender: int, message: bytes) -> None:
        """Take an update. One that is not finite, or not asked for, raises BallotError."""
        if sender not in self.asked:
            raise BallotError(f"client {sender} was not asked in this round")
        if sender in self.by_client:
            raise BallotError(f"client {sender} has sent an update in this round already")
        update = self.method.decode(message, sender, self.round)
        if not np.isfinite(update).all():
            raise BallotError("the update is not finite")
        self.by_client[sender] = update
        self.entropy += entropy_of(sender, message)

    def merge(self, other: UpdateStore) -> None:
        """Add the updates that another worker has gathered."""
        if twice := self.by_client.keys() & other.by_client.keys():
            raise BallotError(f"client {min(twice)} has sent an update to both of two workers")
        self.by_client |= other.by_client
        self.entropy += other.entropy

    @property
    def voters(self) -> Collection[int]:
        """Who has sent an update."""
        return self.by_client.keys()

    def displacements(self, layer: Layer) -> Read:
        """Return what writes the changes of some neighboring weights of a layer by all clients."""
        updates = [update[layer.edges] for update in self.in_order()]

        def read(some: slice, rows: NDArray[np.float64]) -> None:
            for row, update in zip(rows, updates, strict=True):
                row[:] = update[some]

        return read

    def in_order(self) -> list[Floats]:
        """Return the updates in the order of the clients' numbers: sums of floats depend on it."""
        return [self.by_client[client] for client in sorted(self.by_client)]


@dataclass(frozen=True, repr=False)
class WeightMethod:
    """The part that does not differ. There is no mask.

    Parameters
    ----------
    network : a supernetwork, whose frozen weights are the initial ones, or any module, with its own weights.
    local : how a client trains; the learning rate is that of the first round.
    rate_decay : what the learning rate is multiplied by after every round.
    run : 16 bytes that tell runs apart.
    seed : for a module: determines the clients of each round and the order of their samples.
    """

    network: Any  # a Network; a module that is given becomes one
    local: LocalTraining = WEIGHT_TRAINING
    rate_decay: float = 0.999
    run: bytes = bytes(16)
    seed: InitVar[int | None] = field(default=None, kw_only=True)

    def __post_init__(self, seed: int | None) -> None:
        check_settings(self.local, self.rate_decay, self.run)
        if isinstance(self.network, nn.Module):
            if seed is None:
                raise ConfigError(f"a module needs a seed: {type(self).__name__}(module, seed=7)")
            object.__setattr__(self, "network", PlainNetwork.of(self.network, seed))
        elif not isinstance(self.network, Supernetwork | PlainNetwork):
            check_module(self.network)
        elif seed is not None:
            raise ConfigError(f"the network has the seed {self.network.seed} already; give no other")

    def __repr__(self) -> str:
        return method_repr(self)  # type: ignore[arg-type]

    def init(self) -> WeightState:
        """Return the weights that follow from the seed."""
        return WeightState(0, self.network.weights.copy())

    def broadcast(self, state: WeightState) -> bytes:
        """Send the global weights."""
        return self._envelope(Content.WEIGHTS, state.round).close(state.weights.astype("<f4").tobytes(), 0)

    def receive(self, broadcast: bytes) -> WeightState:
        """Read the global weights."""
        number = round_of(broadcast)
        payload = self._envelope(Content.WEIGHTS, number).open(broadcast, 0, 4 * self.network.layout.size)
        return WeightState(number, np.frombuffer(payload, "<f4").astype(np.float32))

    def client_update(
        self, received: WeightState, samples: Samples, rng: np.random.Generator, workspace: Workspace
    ) -> ClientUpdate:
        """Train the weights on a client's data; the update is how they have changed."""
        rate = self.local.learning_rate * self.rate_decay**received.round
        local = replace(self.local, learning_rate=rate)
        network = workspace.weights(local.precision)
        trained = train_weights(network, received.weights, samples, rng, local)
        return ClientUpdate(trained.weights - received.weights, trained.loss)

    def collector(self, received: WeightState, asked: Collection[int]) -> UpdateStore:
        """Return what gathers the updates of a round."""
        return UpdateStore(self, received.round, asked)

    def decode(self, message: bytes, sender: int, round_number: int) -> Floats:
        """Return the update that a message tells of."""
        raise NotImplementedError

    def model(self, state: WeightState) -> nn.Module:
        """Return the network with the global weights."""
        model: nn.Module = self.network.with_weights(state.weights)
        return model

    def pack(self, state: WeightState) -> dict[str, NDArray[Any]]:
        """Return the state as arrays for a checkpoint."""
        return {"round": np.array(state.round), "weights": state.weights}

    def unpack(self, arrays: Mapping[str, NDArray[Any]]) -> WeightState:
        """Return the state that `pack` turned into arrays."""
        try:
            state = WeightState(int(arrays["round"]), arrays["weights"])
        except (KeyError, TypeError) as error:
            raise RunError(f"the checkpoint does not hold weights ({error})") from error
        if state.weights.shape != (self.network.layout.size,) or state.weights.dtype != np.float32:
            raise RunError("the checkpoint does not hold weights of this network")
        return state

    def _envelope(self, content: Content, round_number: int) -> Envelope:
        return Envelope(content, self.run, round_number, self.network.layout.digest)


def aggregated(
    rule: Aggregator, updates: list[Floats], malicious: int, seed: int, round_number: int
) -> Floats:
    """Return what an aggregator makes of some updates of a round."""
    rng = keyed_generator(seed, Purpose.AGGREGATION, round_number)
    return np.asarray(rule(np.stack(updates), malicious, rng), np.float32)


def moved(state: WeightState, step: Floats) -> WeightState:
    """Return the next state. A step to infinity is not taken: its weights could not even be sent."""
    with np.errstate(over="ignore"):
        weights = state.weights + step
    return WeightState(state.round + 1, weights if np.isfinite(weights).all() else state.weights)
