import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedrank.ballots import BallotCodec, BallotFormat
from fedrank.ballots.traffic import packed_bits
from fedrank.errors import BallotError, ModelError
from fedrank.rank import Layout, assign_scores, check_ranking, rank, reputation, top_count, top_mask
from fedrank.rank.ranking import argsort_totals
from tests.support.strategies import layouts, random_ranking

# Few distinct values, so that ties (and both zeros) are common.
SCORES = st.sampled_from([-2.5, -1.0, -1e-38, -0.0, 0.0, 1e-45, 0.5, 1.0, 3e38])


@given(layouts(), st.data())
def test_rank_sorts_each_layer_by_score_then_number(layout: Layout, data: st.DataObject) -> None:
    scores = data.draw(
        hnp.arrays(np.float32, layout.size, elements=st.one_of(SCORES, st.floats(-1, 1, width=32)))
    )
    expected: list[int] = []
    for layer in layout:
        values = scores[layer.edges].tolist()
        expected += sorted(range(layer.size), key=lambda edge: (values[edge], edge))
    assert rank(scores, layout).tolist() == expected


@given(hnp.arrays(np.int64, st.integers(1, 50), elements=st.integers(0, 2**63 - 1) | st.integers(0, 3)))
def test_totals_are_sorted_stably_whether_they_can_be_packed_or_not(totals: np.ndarray) -> None:
    assert argsort_totals(totals).tolist() == np.argsort(totals, kind="stable").tolist()


@given(layouts(), st.integers(0, 2**32))
def test_placing_sorted_scores_by_a_ranking_gives_that_ranking_back(layout: Layout, seed: int) -> None:
    rng = np.random.default_rng(seed)
    wanted = random_ranking(layout, rng)
    sorted_scores = np.concatenate([np.sort(rng.permutation(layer.size)) for layer in layout])
    placed = assign_scores(sorted_scores.astype(np.float32), by=wanted, layout=layout)
    assert rank(placed, layout).tolist() == wanted.tolist()


@given(layouts(), st.integers(0, 2**32))
def test_reputation_is_the_inverse_of_the_ranking(layout: Layout, seed: int) -> None:
    ranking = random_ranking(layout, np.random.default_rng(seed))
    positions = reputation(ranking, layout)
    for layer in layout:
        order, position = ranking[layer.edges].tolist(), positions[layer.edges].tolist()
        assert [order.index(edge) for edge in range(layer.size)] == position


@given(layouts(), st.integers(0, 2**32), st.sampled_from([0.1, 0.3, 0.5, 0.7, 0.9]))
def test_top_mask_holds_the_end_of_every_layer(layout: Layout, seed: int, share: float) -> None:
    ranking = random_ranking(layout, np.random.default_rng(seed))
    mask = top_mask(ranking, layout, share)
    for layer in layout:
        zeros = int((1 - share) * layer.size)
        assert set(np.flatnonzero(mask[layer.edges])) == set(ranking[layer.edges].tolist()[zeros:])


@pytest.mark.parametrize(
    ("edges", "share", "kept"), [(6, 0.5, 3), (7, 0.5, 4), (10, 0.3, 3), (1, 0.1, 1), (8, 1.0, 8)]
)
def test_top_count_follows_the_papers_formula(edges: int, share: float, kept: int) -> None:
    assert top_count(edges, share) == kept


def test_layout_puts_layers_one_behind_the_other() -> None:
    layout = Layout.of([("conv", (4, 1, 3, 3)), ("linear", (2, 5))])
    assert [(layer.offset, layer.size) for layer in layout] == [(0, 36), (36, 10)]
    assert layout.size == 46
    assert len(layout) == 2


def test_a_layout_needs_edges() -> None:
    with pytest.raises(ModelError, match="no layer"):
        Layout.of([])
    with pytest.raises(ModelError, match="'empty' has shape"):
        Layout.of([("empty", (3, 0))])
    with pytest.raises(ModelError, match=r"more than 2\^30"):
        Layout.of([("huge", (2**16, 2**15))])


def test_packed_bits_give_the_papers_traffic_for_lenet() -> None:
    lenet = Layout.of([("c1", (288,)), ("c2", (18432,)), ("f1", (1605632,)), ("f2", (1280,))])
    published = {"exact": 4.05, "top=50%": 2.03, "top=10%": 0.40}
    for ballot_format, mebibytes in published.items():
        bits = packed_bits(lenet, BallotFormat.parse(ballot_format))
        assert bits / 8 / 2**20 == pytest.approx(mebibytes, abs=0.01)
        codec = BallotCodec(lenet, BallotFormat.parse(ballot_format))
        ranking = np.concatenate([np.arange(layer.size, dtype=np.int32) for layer in lenet])
        assert 0 <= len(codec.encode(ranking)) - bits / 8 < 100  # really sent: the numbers and a header


@pytest.mark.parametrize("broken", [[0, 0, 1], [0, 1, 3], [-1, 0, 1], [0, 1]])
def test_a_ranking_that_is_no_permutation_is_refused(broken: list[int]) -> None:
    with pytest.raises(BallotError):
        check_ranking(np.array(broken, np.int32), Layout.of([("layer", (3,))]))


def test_scores_of_another_precision_are_ranked_too() -> None:
    """The compiled pass looks at bits: it must never be given other ones than it expects."""
    scores = np.random.default_rng(0).normal(size=1000)
    layout = Layout.of([("only", (1000,))])
    assert rank(scores, layout).tolist() == rank(scores.astype(np.float32), layout).tolist()
    assert rank(np.arange(1000)[::-1], layout).tolist() == list(range(1000))[::-1]
