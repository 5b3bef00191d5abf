"""Random layouts and ballots for property tests."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from fedrank.rank import Ballot, Layout


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=3))
    return Layout.of((f"layer{i}", (size,)) for i, size in enumerate(sizes))


def random_ranking(layout: Layout, rng: np.random.Generator) -> np.ndarray:
    return np.concatenate([rng.permutation(layer.size) for layer in layout]).astype(np.int32)


@st.composite
def elections(draw: st.DrawFn, max_ballots: int = 6) -> tuple[Layout, float, list[Ballot]]:
    """A layout, the share of it that ballots name, and some ballots."""
    layout = draw(layouts())
    top = draw(st.sampled_from([1.0, 0.9, 0.5, 0.1]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    count = draw(st.integers(1, max_ballots))
    return layout, top, [Ballot.of(random_ranking(layout, rng), layout, top) for _ in range(count)]
