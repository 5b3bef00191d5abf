"""Random layouts, formats and rankings for property tests."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from fedrank.ballots import BallotCodec, BallotFormat
from fedrank.rank import Layout

FORMATS = [
    "exact",
    "levels=2",
    "levels=3 dithered",
    "levels=7",
    "levels=300 dithered",
    "top=50%",
    "top=10%",
    "top=100%",
]


@st.composite
def layouts(draw: st.DrawFn, most: int = 12) -> Layout:
    sizes = draw(st.lists(st.integers(1, most), min_size=1, max_size=3))
    return Layout.of((f"layer{i}", (size,)) for i, size in enumerate(sizes))


def random_ranking(layout: Layout, rng: np.random.Generator) -> np.ndarray:
    return np.concatenate([rng.permutation(layer.size) for layer in layout]).astype(np.int32)


def near(ranking: np.ndarray, layout: Layout, rng: np.random.Generator, noise: float) -> np.ndarray:
    """A ranking that differs from another as a client's does from the broadcast."""
    moved = np.empty_like(ranking)
    for layer in layout:
        positions = np.argsort(ranking[layer.edges]) + layer.size * noise * rng.standard_cauchy(layer.size)
        moved[layer.edges] = np.argsort(positions)
    return moved


def formats() -> st.SearchStrategy[BallotFormat]:
    words = st.tuples(st.sampled_from(FORMATS), st.sampled_from(["packed", "coded"]))
    return words.map(lambda pair: BallotFormat.parse(" ".join(pair)))


@st.composite
def codecs(draw: st.DrawFn, most: int = 12) -> BallotCodec:
    """A codec with a random layout, ballot_format and broadcast."""
    layout = draw(layouts(most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return BallotCodec(
        layout, draw(formats()), random_ranking(layout, rng), rng.bytes(16), int(rng.integers(2**32))
    )


@st.composite
def elections(draw: st.DrawFn, most: int = 6) -> tuple[BallotCodec, list[np.ndarray]]:
    """A codec, and the rankings of some clients: a client's number is its place in the list."""
    codec = draw(codecs())
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return codec, [random_ranking(codec.layout, rng) for _ in range(draw(st.integers(1, most)))]
