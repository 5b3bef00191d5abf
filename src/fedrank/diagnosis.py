"""`fedrank.diagnose`: what a model and its clients look like before the first round, and what to change."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Group
from rich.text import Text
from torch import Tensor

from fedrank.arguments import check_kind
from fedrank.data import Federation, Samples, check_federation
from fedrank.errors import DataError, FedrankWarning, ModelError
from fedrank.methods import FRL, Method
from fedrank.nn import LocalTraining, Supernetwork, check_fit, check_supernetwork
from fedrank.nn.signals import LayerSignal, layer_signals, spread
from fedrank.report.text_table import TextTable, plain_text
from fedrank.report.words import plural

BATCH = 100
"""Samples to look at."""
OFF_CENTER = 0.3
"""Means of inputs, in deviations: from here on, centering helps."""
WEAK, STRONG = 0.1, 10.0
"""Spreads of the outputs. Most models learned well from 0.1 to 4.4, few below, and none from 11 on."""
ENOUGH = 0.8
"""The share of the edges from which keeping more no longer helps."""
FEW_EDGES = 5_000
FEW_STEPS = 5


@dataclass(frozen=True)
class InputFacts:
    """The inputs as the network receives them."""

    mean: float
    deviation: float
    least: float
    greatest: float


@dataclass(frozen=True)
class Counts:
    """A number that differs from client to client."""

    least: int
    median: int
    most: int

    @classmethod
    def of(cls, numbers: NDArray[np.int64]) -> Counts:
        """Summarize the numbers of all clients."""
        return cls(int(numbers.min()), int(np.median(numbers)), int(numbers.max()))

    def __str__(self) -> str:
        return f"{self.least} to {self.most}, median {self.median}"


@dataclass(frozen=True)
class Diagnosis:
    """What one batch shows about a network, and warnings with a remedy each.

    Print it, or use `to_records()` for a data frame with a row for each layer.
    """

    layers: tuple[LayerSignal, ...]
    outputs: float
    """By how much the model's outputs differ from sample to sample."""
    inputs: InputFacts
    samples: Counts
    """Training samples per client."""
    steps: Counts
    """Training steps per client and round."""
    warnings: tuple[str, ...]

    @property
    def edges(self) -> int:
        """The number of edges of all layers."""
        return sum(layer.edges for layer in self.layers)

    def to_records(self) -> list[dict[str, Any]]:
        """Return a dictionary for each layer."""
        return [asdict(layer) for layer in self.layers]

    def __rich__(self) -> Group:
        return Group(self._table(), *(Text.assemble(("warning: ", "yellow"), each) for each in self.warnings))

    def __str__(self) -> str:
        return plain_text(self)

    def _repr_html_(self) -> str:
        return replace(self._table(), notes=(*self._table().notes, *self.warnings)).html()

    def _table(self) -> TextTable:
        headings = ("layer", "kind", "shape", "edges", "kept", "fan-in", "outputs", "gradient")
        rows = [
            (
                layer.name,
                layer.kind if layer.groups == 1 else f"{layer.kind}, {layer.groups} groups",
                " x ".join(map(str, layer.shape)),
                f"{layer.edges:,}",
                f"{layer.kept:,}",
                f"{layer.fan_in:,}",
                *(_number(each) for each in (layer.outputs, layer.gradient)),
            )
            for layer in self.layers
        ]
        inputs = self.inputs
        notes = (
            "outputs: standard deviation from sample to sample; gradient: standard deviation over the "
            "layer's scores; both on one batch, with the initial mask",
            f"{self.edges:,} edges; the model's outputs differ by {self.outputs:.2g} from sample to sample",
            f"inputs: mean {inputs.mean:.3g}, deviation {inputs.deviation:.3g}, "
            f"{inputs.least:.3g} to {inputs.greatest:.3g}",
            f"samples per client: {self.samples}; steps per client and round: {self.steps}",
        )
        return TextTable("Before the first round", headings, rows, notes)


def diagnose(net: Supernetwork, clients: Federation, local: LocalTraining | None = None) -> Diagnosis:
    """Run one batch through a supernetwork; return what it shows, with warnings.

    Parameters
    ----------
    net : the supernetwork to train.
    clients : the data of the clients.
    local : how a client trains, to count its steps; by default as FRL does.
    """
    check_supernetwork(net)
    check_federation(clients)
    local = LocalTraining() if local is None else local
    check_kind("local", local, LocalTraining, "a LocalTraining, such as LocalTraining(epochs=2)")
    if clients.voters.size == 0:
        raise DataError("no client has training data")
    batch = _batch(clients)
    try:
        check_fit(net.subnetwork(net.initial_ranking), clients)
        layers, logits = layer_signals(net, batch)
    except ModelError as error:
        raise ModelError(f"the model {error}") from error
    prepared = batch.preprocess(batch.inputs)
    inputs = InputFacts(
        *(
            float(each)
            for each in (
                prepared.mean(dtype=np.float64),
                prepared.std(dtype=np.float64),
                prepared.min(),
                prepared.max(),
            )
        )
    )
    counts = np.array([clients.clients[client].train.size for client in clients.voters])
    samples, steps = Counts.of(counts), Counts.of(local.epochs * -(-counts // local.batch_size))
    found = Diagnosis(layers, spread(logits), inputs, samples, steps, ())
    return replace(found, warnings=tuple(_warnings(found, net.keep, softmax=_are_shares(logits))))


def warn(method: Method[Any], clients: Federation) -> None:
    """Issue the warnings of a diagnosis, if the method ranks edges, on behalf of the caller's caller."""
    if isinstance(method, FRL):
        for text in diagnose(method.network, clients, method.local).warnings:
            warnings.warn(text, FedrankWarning, stacklevel=3)


def _batch(clients: Federation) -> Samples:
    """Return a few training samples of as many clients as possible."""
    voters = clients.voters
    some = voters[np.unique(np.linspace(0, voters.size - 1, BATCH).astype(int))]
    each = -(-BATCH // some.size)
    parts = [clients.train_samples(int(client)) for client in some]
    inputs = np.concatenate([part.inputs[:each] for part in parts])[:BATCH]
    labels = np.concatenate([part.labels[:each] for part in parts])[:BATCH]
    return Samples(inputs, labels, parts[0].preprocess)


def _are_shares(logits: Tensor) -> bool:
    """Return whether every row is a distribution, as after a softmax."""
    return bool((logits >= 0).all() and torch.allclose(logits.sum(dim=1), torch.ones(len(logits)), atol=1e-4))


def _warnings(found: Diagnosis, keep: float, *, softmax: bool) -> Iterator[str]:
    """Yield what has been measured to hinder training (docs/low-accuracy.md), with a remedy."""
    inputs, outputs = found.inputs, found.outputs
    if inputs.deviation == 0:
        yield f"all inputs are {inputs.mean:.3g}, so nothing can be learned: check how the data is loaded"
        return
    if abs(inputs.mean) > OFF_CENTER * inputs.deviation:
        yield (
            f"the inputs are not centered (mean {inputs.mean:.3g}, deviation {inputs.deviation:.3g}): "
            "subtract the mean of the training data and divide by its deviation"
        )
    if softmax:
        yield (
            "the model's outputs are shares that sum to 1, as after a softmax, but the loss expects logits: "
            "remove the softmax from the model"
        )
    elif outputs < WEAK:
        edges = "" if keep >= ENOUGH else f"keep at least {ENOUGH:.0%} of the edges (keep={ENOUGH}), "
        yield (
            f"the signal is weak: outputs differ by only {outputs:.2g} from sample to sample. Standardize "
            f"the inputs, flatten instead of pooling whole images, use ReLU, {edges}"
            "or put normalization between the layers"
        )
    elif outputs > STRONG:
        yield (
            f"the signal explodes: outputs differ by {outputs:.2g} from sample to sample. "
            "Standardize the inputs, or put normalization between the layers"
        )
    if found.edges < FEW_EDGES:
        yield (
            f"the network has only {found.edges:,} edges, and subnetworks of fewer than {FEW_EDGES:,} learn "
            "less: make the layers wider"
        )
    if found.steps.median < FEW_STEPS:
        yield (
            f"half of the clients take {plural(found.steps.median, 'step')} per round or fewer: "
            "use more local epochs or smaller batches, for at least 5"
        )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"
