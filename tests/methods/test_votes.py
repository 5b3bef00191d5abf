"""Votes that see all ballots together, against plain sums and a plain vote."""

import pickle
import tracemalloc
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrank.aggregators import RULES, Chain, aggregator
from fedrank.data import Federation
from fedrank.engine import local_engine
from fedrank.errors import BallotError, ConfigError
from fedrank.experiment.rounds import Schedule, play
from fedrank.methods import FRL
from fedrank.methods.votes import inner_products, robust_vote
from fedrank.nn import LocalTraining, supernetwork
from fedrank.rank import Box, Form, Kind, Layout, Tally, reputation
from tests.methods.test_frl import small_net
from tests.rank import oracle
from tests.rank.strategies import elections, near, random_ranking

Election = tuple[Form, list[np.ndarray]]
CHAINS = ["mean", "trimmed-mean", "median", "multi-krum", "geometric-median", "nnm+trimmed-mean"]
TINY = 40  # bytes of memory: every slice is as narrow as can be


def box_of(form: Form, ballots: Iterable[tuple[int, np.ndarray]], memory: int = 2**30) -> Box:
    box = Box(form, memory=memory)
    for client, ranking in ballots:
        box.add(client, form.fill_in(ranking, client))
    return box


def vote(box: Box, name: str, malicious: int = 0, memory: int = 2**30) -> list[int]:
    return robust_vote(box, Chain(name), malicious, np.random.default_rng(0), memory).tolist()


@given(elections(), st.sampled_from([TINY, 2**30]))
def test_the_ranking_of_the_mean_displacement_is_the_papers_vote(election: Election, memory: int) -> None:
    form, rankings = election
    tally = Tally(form)
    for client, ranking in enumerate(rankings):
        tally.add(client, form.fill_in(ranking, client))
    box = box_of(form, enumerate(rankings))
    assert vote(box, "mean", memory=memory) == tally.vote().tolist()


@given(st.integers(0, 2**32), st.sampled_from(["exact", "levels=5 dithered", "top=30% coded"]))
def test_so_it_is_for_many_ballots_and_many_ties(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    layout = Layout.of([("first", (70,)), ("second", (9,))])
    form = Form(layout, Kind.parse(kind), random_ranking(layout, rng), rng.bytes(16))
    rankings = [near(form.reference, layout, rng, 0.01) for _ in range(int(rng.integers(1, 60)))]
    tally = Tally(form)
    for client, ranking in enumerate(rankings):
        tally.add(client, form.fill_in(ranking, client))
    assert vote(box_of(form, enumerate(rankings)), "mean") == tally.vote().tolist()


@pytest.mark.parametrize("name", CHAINS)
@given(seed=st.integers(0, 2**32), kind=st.sampled_from(["exact", "levels=4 dithered coded", "top=50%"]))
def test_a_vote_is_the_rule_applied_to_displacements_layer_by_layer(name: str, seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    layout = Layout.of([("first", (40,)), ("second", (3, 3))])
    form = Form(layout, Kind.parse(kind), random_ranking(layout, rng), rng.bytes(16))
    rankings = {client: near(form.reference, layout, rng, 0.1) for client in range(7)}
    points = {c: np.array(oracle.points_of(form, r.tolist(), c), np.float64) for c, r in rankings.items()}
    base = 2.0 * reputation(form.reference, layout)
    ranking = vote(box_of(form, rankings.items()), name, 1, TINY)
    for layer in layout:
        moves = np.stack([(points[client] - base)[layer.edges] for client in sorted(points)])
        values = base[layer.edges] + Chain(name)(moves, 1, np.random.default_rng(0))
        got = values[ranking[layer.edges]]
        assert (np.diff(got) > -1e-3).all()  # two ways of rounding may swap what is equal


@given(elections(), st.randoms())
def test_a_box_does_not_depend_on_order_grouping_or_memory(election: Election, random) -> None:
    form, rankings = election
    ballots = list(enumerate(rankings))
    whole = box_of(form, ballots)
    shuffled = random.sample(ballots, len(ballots))
    cut = random.randint(0, len(ballots))
    merged = box_of(form, shuffled[:cut], memory=1)
    merged.merge(pickle.loads(pickle.dumps(box_of(form, shuffled[cut:]))))
    assert sorted(merged.voters) == sorted(whole.voters)
    for layer in form.layout:
        wide = [np.array(block) for _, block in whole.slices(layer, layer.size)]
        narrow = [np.array(block) for _, block in merged.slices(layer, 8)]
        assert np.concatenate(narrow, axis=1).tobytes() == np.concatenate(wide, axis=1).tobytes()


def test_inner_products_are_exact_whatever_the_slices() -> None:
    rng = np.random.default_rng(3)
    layout = Layout.of([("large", (70_000,))])
    form = Form(layout, reference=random_ranking(layout, rng))
    rankings = [random_ranking(layout, rng) for _ in range(4)]
    box = box_of(form, enumerate(rankings))
    (layer,) = layout
    narrow, wide = inner_products(box, layer, 800), inner_products(box, layer, layer.size)
    assert narrow.tobytes() == wide.tobytes()
    base = reputation(form.reference, layout).astype(np.int64)
    moves = [2 * (reputation(ranking, layout) - base) for ranking in rankings]
    scale = np.sqrt(float(moves[0] @ moves[0]) / wide[0, 0])
    exact = np.array([[float(one @ other) for other in moves] for one in moves])
    assert np.log2(scale) == pytest.approx(round(np.log2(scale)), abs=1e-6)
    np.testing.assert_allclose(wide * scale**2, exact, rtol=1e-3)


def test_a_box_refuses_what_a_tally_refuses_and_keeps_nothing_of_it() -> None:
    rng = np.random.default_rng(0)
    layout = Layout.of([("first", (30,))])
    form = Form(layout, reference=random_ranking(layout, rng))
    box = Box(form, asked={3, 4})
    ballot = form.fill_in(random_ranking(layout, rng), 3)
    box.add(3, ballot)
    with pytest.raises(BallotError, match="client 3 has voted in this round already"):
        box.add(3, ballot)
    with pytest.raises(BallotError, match="client 5 was not asked"):
        box.add(5, ballot)
    with pytest.raises(BallotError, match="the sender is 3, but 4 was asked for"):
        box.add(4, ballot)
    with pytest.raises(BallotError, match="checksum"):
        box.add(4, form.fill_in(random_ranking(layout, rng), 4)[:-1] + b"x")
    with pytest.raises(BallotError, match="both of two boxes"):
        box.merge(box_of(form, [(3, random_ranking(layout, rng))]))
    with pytest.raises(BallotError, match="cannot be merged"):
        box.merge(Box(Form(layout, round=1)))
    assert list(box.voters) == [3]
    box.add(4, form.fill_in(random_ranking(layout, rng), 4))
    assert list(box.voters) == [3, 4]


def test_a_large_layer_does_not_hide_what_a_ballot_does_to_a_small_one() -> None:
    """Six honest ballots, two that lie in the small layer only: it must end as the honest ones have it."""
    rng = np.random.default_rng(1)
    layout = Layout.of([("large", (5000,)), ("small", (30,))])
    form = Form(layout, reference=random_ranking(layout, rng))
    honest = [near(form.reference, layout, rng, 0.02) for _ in range(6)]
    liar = honest[0].copy()
    small = layout.layers[1].edges
    liar[small] = form.reference[small][::-1]
    alone = vote(box_of(form, enumerate(honest)), "mean")
    with_liars = vote(box_of(form, enumerate([*honest, liar, liar])), "nnm+trimmed-mean", 2)
    assert with_liars[small] == alone[small]


def test_memory_stays_within_what_is_allowed() -> None:
    rng = np.random.default_rng(2)
    layout = Layout.of([("only", (60_000,))])
    form = Form(layout, reference=random_ranking(layout, rng))
    ballots = [form.fill_in(random_ranking(layout, rng), client) for client in range(40)]
    allowed = 4 * 2**20
    robust_vote(box_of(form, [(0, form.reference)]), Chain("nnm+trimmed-mean"), 0, rng, allowed)  # compile
    tracemalloc.start()
    box = Box(form, memory=allowed // 2)
    for client, ballot in enumerate(ballots):
        box.add(client, ballot)
    robust_vote(box, Chain("nnm+trimmed-mean"), 16, rng, allowed // 2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    fixed = 60_000 * 8 * 6  # some arrays with a number for each edge, however many ballots there are
    assert peak < allowed + fixed
    assert 2 * (allowed + fixed) < 40 * 60_000 * 8


def test_a_rule_that_needs_everything_at_once_says_so() -> None:
    @aggregator("first-vote-test", "a test")
    def first(updates: np.ndarray, _malicious: int) -> np.ndarray:
        """The first ballot."""
        return updates[0]

    try:
        rng = np.random.default_rng(0)
        layout = Layout.of([("first", (30,)), ("second", (12,))])
        form = Form(layout, reference=random_ranking(layout, rng))
        rankings = [random_ranking(layout, rng) for _ in range(3)]
        box = box_of(form, enumerate(rankings))
        assert vote(box, "first-vote-test") == rankings[0].tolist()
        with pytest.raises(ConfigError, match=r"needs layer 'first' of all 3 ballots at once"):
            vote(box, "first-vote-test", memory=TINY)
    finally:
        del RULES["first-vote-test"]


@pytest.mark.parametrize("name", ["nnm+trimmed-mean", "geometric-median"])
def test_a_vote_does_not_depend_on_the_number_of_workers_or_on_memory(digits: Federation, name: str) -> None:
    ends = set()
    for workers, memory in ((1, 2**30), (2, 2**12)):
        network = supernetwork(small_net(), seed=11)
        frl = FRL(network, LocalTraining(epochs=1), "levels=4 dithered coded", vote=name, memory=memory)
        with local_engine(frl, digits, workers=workers) as engine:
            *_, (state, played) = play(frl, digits, engine, frl.init(), Schedule(2, 8, 2))
        assert played.refused == {}
        ends.add(state.ranking.tobytes())
    assert len(ends) == 1


def test_a_vote_withstands_the_share_that_it_expects(digits: Federation) -> None:
    network = supernetwork(small_net(), seed=11)
    frl = FRL(network, vote="nnm+trimmed-mean", expected=0.3)
    reference = frl.init().ranking
    rng = np.random.default_rng(0)
    honest = [near(reference, frl.layout, rng, 0.01) for _ in range(7)]
    reverse = np.concatenate([reference[layer.edges][::-1] for layer in frl.layout])

    def agreement(ranking: np.ndarray) -> float:
        return float(np.corrcoef(reputation(ranking, frl.layout), reputation(reference, frl.layout))[0, 1])

    held = frl.combined(reference, [*honest, *[reverse] * 3], 0, 0)
    borda = FRL(network, vote="borda").combined(reference, [*honest, *[reverse] * 3], 0, 0)
    broken = FRL(network, vote="nnm+trimmed-mean", expected=0.0).combined(
        reference, [*honest, *[reverse] * 3], 0, 0
    )
    assert np.array_equal(broken, borda)
    assert agreement(held) > agreement(broken)
