"""Proposals: the models that some of a round's updates make, for validators to measure.

Both worlds work alike: the updates are clipped, summed up once for each unit, and averaged over some units.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from fedrank.aggregators.measured import ClippedSums, clipped_sums
from fedrank.ballots.candidates import (
    Inquiry,
    decode_flips,
    decode_mask,
    encode_flips,
    encode_mask,
    read_question,
)
from fedrank.data import Samples
from fedrank.errors import BallotError
from fedrank.nn import Scores, Supernetwork, Workspace, channels_last
from fedrank.rank import Layer, Ranking, reputation, top_count
from fedrank.rank.ranking import argsort_totals

GRID = 2.0**12
"""Points are rounded to this part of one, so that equal sums rank equal."""
Floats = NDArray[np.float32]
Matrix = NDArray[np.float64]
Patch = tuple[slice | NDArray[np.int32], NDArray[np.float32]]
"""Some weights of a candidate that differ from those of the present model."""


class Slices(Protocol):
    """The updates of a round, whose coordinates are read a layer and a slice at a time."""

    @property
    def voters(self) -> Collection[int]: ...

    def slices(self, layer: Layer, width: int) -> Iterable[tuple[slice, NDArray[np.float64]]]: ...

    def slice_width(self) -> int: ...


class Proposals(Protocol):
    """What can be made of the updates of a round."""

    members: NDArray[np.float64]
    """Which updates (columns, in the order of the clients' numbers) each unit (row) consists of."""

    def present(self) -> bytes:
        """Return the present model, for a question."""
        ...

    def candidate(self, units: NDArray[np.bool_]) -> bytes:
        """Return the model that the mean of some units makes, for a question. Threads may call it."""
        ...

    def result(self, units: NDArray[np.bool_]) -> Any:
        """Return the state that the mean of some units leads to."""
        ...


class RankingProposals:
    """Rankings that some of a round's ballots vote for."""

    def __init__(
        self, network: Supernetwork, present: Ranking, ballots: Slices, edges: float, members: Matrix
    ) -> None:
        layout = network.layout
        self.network = network
        self.members = members
        self.mask = network.mask(present)
        self.base = 2.0 * reputation(present, layout)
        self.sums = [_layer_sums(ballots, layer, members, edges) for layer in layout]

    def present(self) -> bytes:
        """Return the present mask."""
        return encode_mask(self.mask)

    def candidate(self, units: NDArray[np.bool_]) -> bytes:
        """Return the edges that enter or leave the mask."""
        if self.network.scores is Scores.AUTHORS:
            mask = self.network.mask(self.result(units))
        else:
            mask = np.concatenate([self._mask(layer, points) for layer, points in self._points(units)])
        return encode_flips(np.flatnonzero(mask != self.mask).astype(np.int32), mask.size)

    def result(self, units: NDArray[np.bool_]) -> Ranking:
        """Return the ranking."""
        return np.concatenate([argsort_totals(points) for _, points in self._points(units)])

    def _points(self, units: NDArray[np.bool_]) -> Iterator[tuple[Layer, NDArray[np.int64]]]:
        for layer, sums in zip(self.network.layout, self.sums, strict=True):
            points = np.rint((self.base[layer.edges] + sums.mean(units)) * GRID).astype(np.int64)
            yield layer, points - points.min()

    def _mask(self, layer: Layer, points: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return the top edges of a layer's ranking, without sorting."""
        zeros = layer.size - top_count(layer.size, self.network.keep)
        if zeros == 0:
            return np.ones(layer.size, np.bool_)
        border = np.partition(points, zeros)[zeros]
        mask = np.asarray(points > border)
        ties = np.flatnonzero(points == border)
        mask[ties[ties.size - (layer.size - zeros - np.count_nonzero(mask)) :]] = True
        return mask


class WeightProposals:
    """Weights that some of a round's updates lead to."""

    def __init__(
        self, network: Supernetwork, present: Floats, updates: Slices, edges: float, members: Matrix
    ) -> None:
        self.members = members
        self.weights = present
        self.sums = [_layer_sums(updates, layer, members, edges) for layer in network.layout]

    def present(self) -> bytes:
        """Return the present weights."""
        return self.weights.astype("<f4").tobytes()

    def candidate(self, units: NDArray[np.bool_]) -> bytes:
        """Return the weights."""
        return (self.weights + self.result(units)).astype("<f4").tobytes()

    def result(self, units: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Return the step from the present weights."""
        return np.concatenate([sums.mean(units) for sums in self.sums]).astype(np.float32)


def _layer_sums(updates: Slices, layer: Layer, members: NDArray[np.float64], edges: float) -> ClippedSums:
    width = updates.slice_width()
    return clipped_sums(lambda: updates.slices(layer, width), layer.size, members, edges)


def rankings_report(question: bytes, inquiry: Inquiry, samples: Samples, workspace: Workspace) -> bytes:
    """Answer a question about masks."""
    network = workspace.network
    asked = read_question(question, inquiry.run, inquiry.layout)
    mask = decode_mask(asked.present, network.layout.size)
    weights = network.weights

    def patches() -> Iterator[Patch]:
        for content in asked.candidates:
            edges = decode_flips(content, network.layout.size)
            yield edges, np.where(mask[edges], np.float32(0), weights[edges])

    present = np.where(mask, weights, np.float32(0))
    differences = _loss_differences(workspace, present, patches(), samples)
    return inquiry.report(asked.stage, asked.validator, differences)


def weights_report(question: bytes, inquiry: Inquiry, samples: Samples, workspace: Workspace) -> bytes:
    """Answer a question about weights."""
    asked = read_question(question, inquiry.run, inquiry.layout)
    size = workspace.network.layout.size
    if any(len(content) != 4 * size for content in (asked.present, *asked.candidates)):
        raise BallotError(f"the question does not hold {size} weights for each model")
    present, *others = (
        np.frombuffer(each, "<f4").astype(np.float32) for each in (asked.present, *asked.candidates)
    )
    patches: Iterator[Patch] = ((slice(None), weights) for weights in others)
    return inquiry.report(
        asked.stage, asked.validator, _loss_differences(workspace, present, patches, samples)
    )


def _loss_differences(
    workspace: Workspace, present: NDArray[np.float32], patches: Iterator[Patch], samples: Samples
) -> NDArray[np.float32]:
    """Return by how much the mean loss of each patched model differs from that of the present one."""
    network = workspace.testing
    inputs = channels_last(torch.from_numpy(samples.preprocess(samples.inputs)).to(network.device))
    labels = torch.from_numpy(samples.labels).to(network.device)

    def loss() -> float:
        return float(cross_entropy(network.forward(inputs), labels, reduction="none").double().mean())

    with torch.inference_mode():
        network.begin(present)
        at_present, found = loss(), []
        for where, values in patches:
            _write(network.flat, where, values)
            found.append(loss() - at_present)
            _write(network.flat, where, present[where])
    largest = float(np.finfo(np.float32).max)
    known = np.nan_to_num(np.array(found), nan=largest, posinf=largest, neginf=-largest)
    return np.asarray(np.clip(known, -largest, largest), np.float32)


def _write(flat: torch.Tensor, where: slice | NDArray[np.int32], values: Floats) -> None:
    if flat.device.type == "cpu":
        flat.numpy()[where] = values  # several times as fast
    else:
        place = where if isinstance(where, slice) else torch.from_numpy(where).to(flat.device)
        flat[place] = torch.from_numpy(values).to(flat.device)
