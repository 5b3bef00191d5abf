"""Vulnerable edge manipulation (Gong et al., 2025): spend the colluders' influence where it decides."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedrank.attacks.base import Knowledge, Target, View, attack
from fedrank.rank import Layer, Ranking, rank_points, reputation, top_count

MOST_EDGES = 2500


@attack("vem", target=Target.RANKINGS, knows=Knowledge.COLLUDERS, source="Gong et al., 2025")
def vulnerable_edge_manipulation(view: View) -> Ranking:
    """Edges near the border change places so that as many as possible change sides; the others stay."""
    known = np.zeros(view.layout.size, np.int64)
    for update in view.own:
        known += reputation(update, view.layout)
    honest = known * (view.selected - view.malicious) / len(view.own)
    voted = rank_points(known, view.layout)
    for layer in view.layout:
        order = voted[layer.edges]
        order[:] = _manipulated(order, honest[layer.edges], layer, view)
    return voted


def _manipulated(order: Ranking, honest: NDArray[np.float64], layer: Layer, view: View) -> Ranking:
    """Return a layer's ranking: vulnerable edges at both ends, the others in their order between."""
    from fedrank.attacks.assignment import assign  # torch is slow to import, and only needed here

    edge_at_border = layer.size - top_count(layer.size, view.keep)
    if not 0 < edge_at_border < layer.size:
        return order
    border = honest[order[edge_at_border - 1 : edge_at_border + 1]].mean()
    margins = honest[order] - border
    reach = view.malicious * (layer.size - 1)
    nearest = np.argsort(np.abs(margins), kind="stable")[:MOST_EDGES]
    vulnerable = np.sort(nearest[np.abs(margins[nearest]) <= reach])  # places in the ranking
    low = int(np.count_nonzero(vulnerable >= edge_at_border))
    others = np.delete(order, vulnerable)
    places = np.concatenate([np.arange(low), np.arange(layer.size - vulnerable.size + low, layer.size)])
    chosen = assign(margins[vulnerable], places, view.malicious, int(view.rng.integers(2**63)))
    sent = np.empty_like(order)
    sent[places[chosen]] = order[vulnerable]
    sent[low : low + others.size] = others
    return sent
