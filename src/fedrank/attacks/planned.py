"""Planned flips: which edges to move by gradient, and how far by simulating the server's vote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedrank.attacks.base import Knowledge, Oracle, Target, View, attack
from fedrank.errors import ConfigError
from fedrank.rank import Layer, Ranking, rank, reputation, top_count, top_mask
from fedrank.rank.ranking import argsort_scores

Floats = NDArray[np.float32]

STEPS = 4
REACHES = (0.4, 0.7, 1.0, 1.5)
"""How far the result is to be shifted, in the median length of honest displacements times k/n."""
PUSHES = (1.0, 1.5, 2.0, 3.0, 4.0)
"""How much farther than needed a ballot pulls, as votes shorten it."""
DISGUISES = (0.0, 0.2, 0.4, 0.8)
"""How much of the honest direction is added, in median lengths, to pass for honest."""
MEASURED_REACHES = (0.1, 0.2, 0.35, 0.6)
HELP = (0.5, 0.0, 1.0)
"""How many times the honest mean is added, where validators measure what a ballot does."""


@attack("planned-flips", target=Target.RANKINGS, knows=Knowledge.DATA, source="fedrank")
def planned_flips(
    view: View,
    *,
    knows: Annotated[
        Literal["data", "benign"],
        Field(
            description="data: of all malicious clients, who stand in for honest ones; benign: the ballots"
        ),
    ] = "data",
    label: Annotated[int, Field(ge=-1, description="the class to damage; -1: all")] = -1,
    reach: Annotated[float, Field(gt=0, description="a factor for how far the result is shifted")] = 1.0,
    different: Annotated[bool, Field(description="each colluder adds what it has learned itself")] = False,
) -> list[Ranking]:
    """Move the edges whose flip harms most, as far as the simulated vote lets through."""
    if view.oracle is None:
        raise ConfigError("planned-flips needs the malicious clients' data")
    honest = view.benign if knows == "benign" else view.stand_ins
    plan = _Planner(view, honest or view.own, view.oracle.aimed_at(label), reach)
    if view.measured:
        return plan.disguised(different=different)
    return max(plan.fitted(different=different), key=plan.harm)


@dataclass(frozen=True)
class _LayerPlan:
    """What the planner knows of a layer."""

    layer: Layer
    length: float
    """The median length of the honest displacements."""
    zeros: int
    """The edges that are not kept."""
    weight: float
    """How much of what all colluders ask for the vote does."""
    farthest: float
    """The most that the vote lets one edge be moved, in the result."""


class _Planner:
    """Plans shifts of a vote's result, and the ballots that bring them about."""

    def __init__(self, view: View, honest: list[Ranking], oracle: Oracle, reach: float) -> None:
        self.view, self.oracle, self.reach = view, oracle, reach
        count = max(1, view.selected - view.malicious)
        self.honest = [honest[number % len(honest)] for number in range(count)]
        self.strength = view.malicious / view.selected
        self.start = reputation(view.reference, view.layout).astype(np.float32)
        displacements = [self._displacement(each) for each in self.honest]
        self.mean = np.asarray(np.mean(displacements, axis=0), np.float32)
        moved = self._displacement(view.aggregate(self.honest)) * (1 - self.strength)
        self.expected = self.start + moved
        self.layers = [self._layer_plan(layer, displacements) for layer in view.layout]

    def fitted(self, *, different: bool) -> Iterator[list[Ranking]]:
        """Yield ballots for each reach, fitted layer by layer so that the vote moves as planned."""
        for reach in REACHES:
            shift = self._shift(reach * self.reach)
            best = np.full(len(self.layers), np.inf)
            chosen = np.zeros_like(self.start)
            for push in PUSHES:
                for disguise in DISGUISES:
                    vector = push / self.strength * shift + self._toward_honest(disguise)
                    sent = self._ballots(vector, different=False)
                    result = self._displacement(self.view.simulate(self.honest, sent)) + self.start
                    missed = result - self.expected - shift
                    for number, plan in enumerate(self.layers):
                        edges = plan.layer.edges
                        error = float(np.linalg.norm(missed[edges]))
                        if error < best[number]:
                            best[number], chosen[edges] = error, vector[edges]
            yield self._ballots(chosen, different=different)

    def disguised(self, *, different: bool) -> list[Ranking]:
        """Return the most harmful ballots that also help: first the best reach, then how much to help."""

        def made(shift: Floats, times: float) -> list[Ranking]:
            asked = np.float32(0 if different else times) * self.mean
            for plan in self.layers:
                asked[plan.layer.edges] += shift[plan.layer.edges] / plan.weight
            return self._ballots(asked, different=different)

        shifts = [self._shift(reach * self.reach) for reach in MEASURED_REACHES]
        found = [(self.harm(made(shift, HELP[0])), number, HELP[0]) for number, shift in enumerate(shifts)]
        if not different:
            _, best, _ = max(found)
            found += [(self.harm(made(shifts[best], times)), best, times) for times in HELP[1:]]
        _, best, times = max(found)
        return made(shifts[best], times)

    def harm(self, sent: list[Ranking]) -> float:
        """Return the loss after the simulated vote."""
        return self.oracle.loss(self._mask(self.view.simulate(self.honest, sent)))

    def _shift(self, reach: float) -> Floats:
        """Plan a shift of the result, in steps: the flips that harm most for the way that they take."""
        shift = np.zeros_like(self.start)
        for step in range(1, STEPS + 1):
            points = self.expected + shift
            mask = self._mask(rank(points, self.view.layout))
            gradient = self.oracle.gradient(mask)
            for plan in self.layers:
                edges = plan.layer.edges
                budget = (reach * plan.length * plan.weight) ** 2 * step / STEPS
                shift[edges] = self._layer_shift(plan, shift[edges], mask[edges], gradient[edges], budget)
        return shift

    def _layer_shift(
        self, plan: _LayerPlan, shift: Floats, mask: NDArray[np.bool_], gradient: Floats, budget: float
    ) -> Floats:
        """Return the shift of a layer with further flips, as many out of the mask as into it."""
        if not 0 < plan.zeros < plan.layer.size:
            return shift
        expected = self.expected[plan.layer.edges]
        around = np.partition(expected + shift, (plan.zeros - 1, plan.zeros))[plan.zeros - 1 : plan.zeros + 1]
        margin = plan.length / np.sqrt(self.view.selected * plan.layer.size)
        target = around.mean() + np.where(mask, -margin, margin) - expected
        way = np.maximum(target**2 - shift**2, 1e-9)
        harmful = np.where(mask, gradient < 0, gradient > 0) & (np.abs(target) <= plan.farthest)
        gain = np.abs(gradient) / way
        leave, enter = (_best_first(harmful & side, gain) for side in (mask, ~mask))
        pairs = min(leave.size, enter.size)
        spent = float((shift**2).sum()) + np.cumsum(way[leave[:pairs]] + way[enter[:pairs]])
        pairs = int(np.searchsorted(spent, budget))
        flipped = np.concatenate([leave[:pairs], enter[:pairs]])
        shift = shift.copy()
        shift[flipped] = target[flipped]
        return shift

    def _ballots(self, vector: Floats, *, different: bool) -> list[Ranking]:
        """Return the ballots of all colluders that ask for a displacement."""
        layout = self.view.layout
        if different:
            own = [self._displacement(each) for each in self.view.own]
            return [rank(self.start + vector + each, layout) for each in own]
        return [rank(self.start + vector, layout)] * self.view.malicious

    def _toward_honest(self, lengths: float) -> Floats:
        """Return the honest direction, so many median lengths long in each layer."""
        out = np.zeros_like(self.start)
        for plan in self.layers:
            mean = self.mean[plan.layer.edges]
            out[plan.layer.edges] = lengths * plan.length / max(float(np.linalg.norm(mean)), 1e-9) * mean
        return out

    def _layer_plan(self, layer: Layer, displacements: list[Floats]) -> _LayerPlan:
        lengths = np.array([np.linalg.norm(each[layer.edges]) for each in displacements])
        length = float(np.median(lengths))
        weight = self.strength
        if self.view.measured and length > 0:  # such a vote stretches what it has clipped
            weight *= float(np.minimum(lengths, 2 * length).sum() / np.minimum(lengths, length).sum())
        farthest = self.view.edge_limit * length / np.sqrt(layer.size) * weight
        dropped = layer.size - top_count(layer.size, self.view.keep)
        return _LayerPlan(layer, length, dropped, weight, farthest)

    def _displacement(self, ranking: Ranking) -> Floats:
        return reputation(ranking, self.view.layout) - self.start

    def _mask(self, ranking: Ranking) -> NDArray[np.bool_]:
        return top_mask(ranking, self.view.layout, self.view.keep)


def _best_first(chosen: NDArray[np.bool_], gain: Floats) -> NDArray[np.intp]:
    found = np.flatnonzero(chosen)
    return np.asarray(found[argsort_scores(-gain[found])])
