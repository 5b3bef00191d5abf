"""Proposals: the models that some of a round's updates make, for validators to measure.

Both worlds work alike: the updates are clipped, summed up once for each unit, and averaged over some units.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from fedrank.aggregators.measured import ClippedSums, Read, clipped_sums
from fedrank.ballots.candidates import (
    Inquiry,
    Stage,
    decode_flips,
    encode_flips,
    read_question,
)
from fedrank.data import Samples
from fedrank.errors import BallotError
from fedrank.nn import Network, Scores, Supernetwork, Workspace, channels_last
from fedrank.nn.weights import WeightNetwork
from fedrank.rank import Layer, Ranking, reputation, top_count
from fedrank.rank.ranking import argsort_totals

GRID = 2.0**12
"""Points are rounded to this part of one, so that equal sums rank equal."""
Floats = NDArray[np.float32]
Matrix = NDArray[np.float64]
Patch = tuple[slice | NDArray[np.int32], NDArray[np.float32]]
"""Some weights of a candidate that differ from those of the present model."""


class Updates(Protocol):
    """The updates of a round, whose coordinates are read a layer and a slice at a time."""

    def displacements(self, layer: Layer) -> Read:
        """Return what writes some neighboring coordinates of all updates, in the order of the clients."""
        ...


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
        self, network: Supernetwork, present: Ranking, ballots: Updates, edges: float, members: Matrix
    ) -> None:
        layout = network.layout
        self.network = network
        self.members = members
        self.mask = network.mask(present)
        self.base = 2.0 * reputation(present, layout)
        self.sums = [clipped_sums(ballots.displacements(each), each.size, members, edges) for each in layout]
        self.bands = [self._band(*each) for each in zip(layout, self.sums, strict=True)]

    def present(self) -> bytes:
        """Return the edges in which the present mask differs from the initial one."""
        return _coded_difference(self.network.initial_mask, self.mask)

    def candidate(self, units: NDArray[np.bool_]) -> bytes:
        """Return the edges that enter or leave the mask."""
        if self.network.scores is Scores.AUTHORS:
            return _coded_difference(self.mask, self.network.mask(self.result(units)))
        flips = np.concatenate([band.flips(units) for band in self.bands])
        return encode_flips(flips.astype(np.int32), self.mask.size)

    def result(self, units: NDArray[np.bool_]) -> Ranking:
        """Return the ranking."""
        layers = zip(self.network.layout, self.sums, strict=True)
        points = (sums.moved(self.base[layer.edges], units, GRID) for layer, sums in layers)
        return np.concatenate([argsort_totals(each - each.min()) for each in points])

    def _band(self, layer: Layer, sums: ClippedSums) -> _Band:
        base, size = self.base[layer.edges], layer.size
        dropped = size - top_count(size, self.network.keep)
        # One step of the grid for the rounding; the border itself moves as far as an edge can.
        near = np.abs(base - 2.0 * dropped) <= 2 * sums.farthest + 1
        edges = np.flatnonzero(near)
        below = int(np.count_nonzero(~near & (base < 2.0 * dropped)))
        return _Band(
            layer.offset + edges,
            base[edges],
            sums.at(edges),
            self.mask[layer.edges][edges],
            dropped - below,
            2.0 * dropped,
        )


@dataclass(frozen=True)
class _Band:
    """The edges of a layer that a mean of ballots can move across the border of the mask."""

    edges: NDArray[np.intp]
    base: NDArray[np.floating]
    sums: ClippedSums
    mask: NDArray[np.bool_]
    dropped: int
    """How many of them are not kept."""
    border: float
    """The points of the last edge that is kept at present."""

    def flips(self, units: NDArray[np.bool_]) -> NDArray[np.intp]:
        """Return the edges that some units move into the mask or out of it."""
        if not 0 < self.dropped < self.edges.size:
            return self.edges[:0]
        points = self.sums.moved(self.base, units, GRID)
        border = self._border(points)
        mask = np.asarray(points > border)
        ties = np.flatnonzero(points == border)  # the last ones are kept, as in a sorted ranking
        mask[ties[ties.size - (points.size - self.dropped - np.count_nonzero(mask)) :]] = True
        return np.asarray(self.edges[mask != self.mask])

    def _border(self, points: NDArray[np.int64]) -> int:
        """Return the least points that are kept. They hardly move, so few candidates are looked at first."""
        middle, reach = self.border * GRID, self.sums.farthest / 16 * GRID
        below = np.count_nonzero(points < middle - reach)
        near = points[(points >= middle - reach) & (points <= middle + reach)]
        if below <= self.dropped < below + near.size:
            return int(np.partition(near, self.dropped - below)[self.dropped - below])
        return int(np.partition(points, self.dropped)[self.dropped])


def _coded_difference(before: NDArray[np.bool_], after: NDArray[np.bool_]) -> bytes:
    return encode_flips(np.flatnonzero(before != after).astype(np.int32), after.size)


class WeightProposals:
    """Weights that some of a round's updates lead to."""

    def __init__(
        self, network: Network, present: Floats, updates: Updates, edges: float, members: Matrix
    ) -> None:
        self.members = members
        self.weights = present
        self.sums = [
            clipped_sums(updates.displacements(layer), layer.size, members, edges) for layer in network.layout
        ]

    def present(self) -> bytes:
        """Return the present weights."""
        return self.weights.astype("<f4").tobytes()

    def candidate(self, units: NDArray[np.bool_]) -> bytes:
        """Return the weights."""
        return (self.weights + self.result(units)).astype("<f4").tobytes()

    def result(self, units: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Return the step from the present weights."""
        return np.concatenate([sums.mean(units) for sums in self.sums]).astype(np.float32)


def rankings_report(question: bytes, inquiry: Inquiry, samples: Samples, workspace: Workspace) -> bytes:
    """Answer a question about masks."""
    asked = read_question(question, inquiry.run, inquiry.layout)
    network, tested = workspace.network, workspace.testing
    assert isinstance(network, Supernetwork)
    size, weights = network.layout.size, network.weights
    changed = decode_flips(asked.present, size)
    if tested.holds != asked.present:  # all validators of a round are asked about the same model
        mask = network.initial_mask.copy()
        mask[changed] = ~mask[changed]
        tested.begin(np.where(mask, weights, np.float32(0)), asked.present)

    def patches() -> Iterator[Patch]:
        for content in asked.candidates:
            edges = decode_flips(content, size)
            yield edges, weights[edges] - _read(tested.flat, edges)

    return inquiry.report(asked.stage, asked.validator, _measured(asked.stage, tested, patches(), samples))


def weights_report(question: bytes, inquiry: Inquiry, samples: Samples, workspace: Workspace) -> bytes:
    """Answer a question about weights."""
    asked = read_question(question, inquiry.run, inquiry.layout)
    size = workspace.network.layout.size
    if any(len(content) != 4 * size for content in (asked.present, *asked.candidates)):
        raise BallotError(f"the question does not hold {size} weights for each model")
    present, *others = (
        np.frombuffer(each, "<f4").astype(np.float32) for each in (asked.present, *asked.candidates)
    )
    workspace.testing.begin(present)
    patches: Iterator[Patch] = ((slice(None), weights) for weights in others)
    found = _measured(asked.stage, workspace.testing, patches, samples)
    return inquiry.report(asked.stage, asked.validator, found)


def _measured(stage: Stage, network: WeightNetwork, patches: Iterator[Patch], samples: Samples) -> Matrix:
    """Return the mean loss of each patched model; in the runoff, by how much it differs from the present."""
    inputs = channels_last(torch.from_numpy(samples.preprocess(samples.inputs)).to(network.device))
    labels = torch.from_numpy(samples.labels).to(network.device)

    def loss() -> float:
        return float(cross_entropy(network.forward(inputs), labels, reduction="none").double().mean())

    with torch.inference_mode():
        at_present, found = loss() if stage is Stage.RUNOFF else 0.0, []
        for where, values in patches:
            before = _read(network.flat, where).copy()
            _write(network.flat, where, values)
            try:
                found.append(loss() - at_present)
            finally:
                _write(network.flat, where, before)
    largest = float(np.finfo(np.float32).max)
    return np.asarray(np.clip(np.nan_to_num(np.array(found), nan=largest), -largest, largest))


def _read(flat: torch.Tensor, where: slice | NDArray[np.int32]) -> Floats:
    if flat.device.type == "cpu":
        return np.asarray(flat.numpy()[where])
    place = where if isinstance(where, slice) else torch.from_numpy(where).to(flat.device)
    return np.asarray(flat[place].cpu().numpy())


def _write(flat: torch.Tensor, where: slice | NDArray[np.int32], values: Floats) -> None:
    if flat.device.type == "cpu":
        flat.numpy()[where] = values  # several times as fast
    else:
        place = where if isinstance(where, slice) else torch.from_numpy(where).to(flat.device)
        flat[place] = torch.from_numpy(values).to(flat.device)
