"""What this machine can do for a run: how many workers are worth their start-up, and its devices."""

from __future__ import annotations

from typing import Any

import torch

from fedrank.arguments import shown
from fedrank.data import Federation
from fedrank.engine.local import default_workers
from fedrank.errors import ConfigError
from fedrank.methods import Method
from fedrank.nn import LocalTraining

DEVICES = ("cpu", "cuda")
WORTH_WORKERS = 10.0
"""Seconds of training in one process from which workers pay: they need about 5 seconds to start."""
SECONDS_PER_STEP, SECONDS_PER_EDGE, SECONDS_PER_PRODUCT = 8e-4, 15e-9, 6e-10
"""What a step of SGD costs by itself, for every edge, and for every product of an input and an edge.
Measured on the digits, for models of 640 to 1.1 million edges."""


def suitable_workers(method: Method[Any], federation: Federation, clients_per_round: int, rounds: int) -> int:
    """Return one worker per core, or 1 if the work is so small that starting more takes longer.

    Only the time depends on it: the result is the same with any number of workers.
    """
    local: LocalTraining = getattr(method, "local", LocalTraining())
    passes = local.epochs * clients_per_round * rounds
    of_a_client = sum(client.train.size for client in federation.clients) / federation.voters.size
    steps = passes * (of_a_client / local.batch_size + 1)
    seconds = steps * (SECONDS_PER_STEP + SECONDS_PER_EDGE * method.network.layout.size)
    seconds += passes * of_a_client * SECONDS_PER_PRODUCT * _products(method, federation)
    return default_workers() if seconds > WORTH_WORKERS else 1


def _products(method: Method[Any], federation: Federation) -> int:
    """Return how many products of an input and an edge the model computes for one sample."""
    network, dataset = method.network, federation.dataset
    model, counts = network.with_weights(network.weights), []

    def count(layer: Any, _: object, outputs: torch.Tensor) -> None:
        counts.append(layer.weight[0].numel() * outputs[0].numel())

    for layer in network.layout:
        model.get_submodule(layer.name.rpartition(".")[0]).register_forward_hook(count)
    with torch.inference_mode():
        model(torch.from_numpy(dataset.preprocess(dataset.inputs[:1])))
    return sum(counts)


def check_device(device: Any) -> None:
    """Raise ConfigError if this machine cannot compute on a device.

    >>> check_device("gpu")
    Traceback (most recent call last):
    fedrank.errors.ConfigError: device must be 'cpu' or 'cuda', got 'gpu'
    """
    if not isinstance(device, str) or device.partition(":")[0] not in DEVICES:
        raise ConfigError(f"device must be 'cpu' or 'cuda', got {shown(device)}")
    try:
        torch.ones(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"the device {device!r} is not available: {reason}") from error
