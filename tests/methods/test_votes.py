"""Votes that see all ballots together, against plain sums and a plain vote."""

import pickle
import tracemalloc
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrank.aggregators import RULES, Aggregator, aggregator
from fedrank.ballots import BallotCodec, BallotFormat, BallotStore, Tally
from fedrank.ballots.store import in_slices
from fedrank.data import Federation
from fedrank.errors import BallotError, ConfigError
from fedrank.experiment.rounds import Schedule
from fedrank.methods import FRL
from fedrank.methods.votes import inner_products, robust_vote
from fedrank.nn import LocalTraining, supernetwork
from fedrank.rank import Layer, Layout, reputation
from tests.support import oracle
from tests.support.methods import small_net
from tests.support.runs import combined, rounds_of
from tests.support.strategies import elections, near, random_ranking

Election = tuple[BallotCodec, list[np.ndarray]]
CHAINS = ["mean", "trimmed-mean", "median", "multi-krum", "geometric-median", "nnm+trimmed-mean"]
TINY = 40  # bytes of memory: every slice is as narrow as can be


def store_of(
    codec: BallotCodec, ballots: Iterable[tuple[int, np.ndarray]], memory: int = 2**30
) -> BallotStore:
    store = BallotStore(codec, memory=memory)
    for client, ranking in ballots:
        store.add(client, codec.encode(ranking, client))
    return store


def displacements_of(store: BallotStore, layer: Layer, width: int) -> np.ndarray:
    """The displacements of a layer, read so many edges at a time."""
    read = store.displacements(layer)
    blocks = in_slices(read, len(store.voters), layer.size, width, lambda _, rows: rows)
    return np.concatenate(list(blocks), axis=1)


def vote(store: BallotStore, name: str, malicious: int = 0) -> list[int]:
    return robust_vote(store, Aggregator(name), malicious, seed=0).tolist()


@given(elections(), st.sampled_from([TINY, 2**30]))
def test_the_ranking_of_the_mean_displacement_is_the_papers_vote(election: Election, memory: int) -> None:
    codec, rankings = election
    codec = replace(codec, ballot_format=BallotFormat(coded=codec.ballot_format.coded))
    tally = Tally(codec)
    for client, ranking in enumerate(rankings):
        tally.add(client, codec.encode(ranking, client))
    store = store_of(codec, enumerate(rankings), memory)
    assert vote(store, "mean") == tally.vote().tolist()


@given(elections())
def test_a_ballot_that_asks_for_no_change_is_no_displacement(election: Election) -> None:
    codec, _ = election
    assert codec.reference is not None
    store = store_of(codec, [(3, codec.reference), (4, codec.reference)])
    for layer in codec.layout:
        assert not displacements_of(store, layer, TINY).any()


@given(elections())
def test_displacements_are_those_of_the_oracle(election: Election) -> None:
    codec, rankings = election
    store = store_of(codec, enumerate(rankings))
    for layer in codec.layout:
        displacements = displacements_of(store, layer, 100)
        for client, ranking in enumerate(rankings):
            expected = oracle.displacements_of(codec, ranking.tolist(), client)[layer.edges]
            assert displacements[client].tolist() == expected


@given(st.integers(0, 2**32), st.sampled_from(["exact packed", "exact coded", "top=100%"]))
def test_so_it_is_for_many_ballots_and_many_ties(seed: int, ballot_format: str) -> None:
    rng = np.random.default_rng(seed)
    layout = Layout.of([("first", (70,)), ("second", (9,))])
    codec = BallotCodec(layout, BallotFormat.parse(ballot_format), random_ranking(layout, rng), rng.bytes(16))
    rankings = [near(codec.reference, layout, rng, 0.01) for _ in range(int(rng.integers(1, 60)))]
    tally = Tally(codec)
    for client, ranking in enumerate(rankings):
        tally.add(client, codec.encode(ranking, client))
    assert vote(store_of(codec, enumerate(rankings)), "mean") == tally.vote().tolist()


@pytest.mark.parametrize("name", CHAINS)
@given(
    seed=st.integers(0, 2**32), ballot_format=st.sampled_from(["exact", "levels=4 dithered coded", "top=50%"])
)
def test_a_vote_is_the_rule_applied_to_displacements_layer_by_layer(
    name: str, seed: int, ballot_format: str
) -> None:
    rng = np.random.default_rng(seed)
    layout = Layout.of([("first", (40,)), ("second", (3, 3))])
    codec = BallotCodec(layout, BallotFormat.parse(ballot_format), random_ranking(layout, rng), rng.bytes(16))
    rankings = {client: near(codec.reference, layout, rng, 0.1) for client in range(7)}
    moved = {c: np.array(oracle.displacements_of(codec, r.tolist(), c), float) for c, r in rankings.items()}
    base = 2.0 * reputation(codec.reference, layout)
    ranking = vote(store_of(codec, rankings.items(), TINY), name, 1)
    for layer in layout:
        moves = np.stack([moved[client][layer.edges] for client in sorted(moved)])
        values = base[layer.edges] + Aggregator(name)(moves, 1, np.random.default_rng(0))
        got = values[ranking[layer.edges]]
        assert (np.diff(got) > -1e-3).all()  # two ways of rounding may swap what is equal


@given(elections(), st.sampled_from([TINY, 2**30]))
def test_a_clipped_vote_counts_no_edge_for_more_than_three_deviations(
    election: Election, memory: int
) -> None:
    codec, rankings = election
    moved = [oracle.displacements_of(codec, r.tolist(), c) for c, r in enumerate(rankings)]
    ranking = vote(store_of(codec, enumerate(rankings), memory), "clip+mean")
    base = 2 * reputation(codec.reference, codec.layout)
    for layer in codec.layout:
        moves = [each[layer.edges] for each in moved]
        lengths = sorted(sum(value**2 for value in each) ** 0.5 for each in moves)
        median = (lengths[(len(lengths) - 1) // 2] + lengths[len(lengths) // 2]) / 2
        limit = max(1, int(3 * median / layer.size**0.5))
        totals = [
            len(moves) * int(start) + sum(min(max(value, -limit), limit) for value in column)
            for start, column in zip(base[layer.edges], zip(*moves, strict=True), strict=True)
        ]
        assert ranking[layer.edges] == sorted(range(layer.size), key=lambda edge: (totals[edge], edge))


@given(elections(), st.randoms())
def test_a_box_does_not_depend_on_order_grouping_or_memory(election: Election, random) -> None:
    codec, rankings = election
    ballots = list(enumerate(rankings))
    whole = store_of(codec, ballots)
    shuffled = random.sample(ballots, len(ballots))
    cut = random.randint(0, len(ballots))
    merged = store_of(codec, shuffled[:cut], memory=1)
    merged.merge(pickle.loads(pickle.dumps(store_of(codec, shuffled[cut:]))))
    assert sorted(merged.voters) == sorted(whole.voters)
    for layer in codec.layout:
        wide, narrow = displacements_of(whole, layer, layer.size), displacements_of(merged, layer, 8)
        assert narrow.tobytes() == wide.tobytes()


def test_inner_products_are_exact_whatever_the_slices() -> None:
    rng = np.random.default_rng(3)
    layout = Layout.of([("large", (70_000,))])
    codec = BallotCodec(layout, reference=random_ranking(layout, rng))
    rankings = [random_ranking(layout, rng) for _ in range(4)]
    store = store_of(codec, enumerate(rankings))
    (layer,) = layout
    narrow, wide = inner_products(store, layer, 800), inner_products(store, layer, layer.size)
    assert narrow.tobytes() == wide.tobytes()
    base = reputation(codec.reference, layout).astype(np.int64)
    moves = [2 * (reputation(ranking, layout) - base) for ranking in rankings]
    scale = np.sqrt(float(moves[0] @ moves[0]) / wide[0, 0])
    exact = np.array([[float(one @ other) for other in moves] for one in moves])
    assert np.log2(scale) == pytest.approx(round(np.log2(scale)), abs=1e-6)
    np.testing.assert_allclose(wide * scale**2, exact, rtol=1e-3)


def test_a_box_refuses_what_a_tally_refuses_and_keeps_nothing_of_it() -> None:
    rng = np.random.default_rng(0)
    layout = Layout.of([("first", (30,))])
    codec = BallotCodec(layout, reference=random_ranking(layout, rng))
    store = BallotStore(codec, asked={3, 4})
    ballot = codec.encode(random_ranking(layout, rng), 3)
    store.add(3, ballot)
    with pytest.raises(BallotError, match="client 3 has already voted in this round"):
        store.add(3, ballot)
    with pytest.raises(BallotError, match="client 5 was not asked"):
        store.add(5, ballot)
    with pytest.raises(BallotError, match="the sender is 3, expected 4"):
        store.add(4, ballot)
    with pytest.raises(BallotError, match="checksum"):
        store.add(4, codec.encode(random_ranking(layout, rng), 4)[:-1] + b"x")
    with pytest.raises(BallotError, match="both of two stores"):
        store.merge(store_of(codec, [(3, random_ranking(layout, rng))]))
    with pytest.raises(BallotError, match="cannot be merged"):
        store.merge(BallotStore(BallotCodec(layout, round=1)))
    assert list(store.voters) == [3]
    store.add(4, codec.encode(random_ranking(layout, rng), 4))
    assert list(store.voters) == [3, 4]


def test_a_large_layer_does_not_hide_what_a_ballot_does_to_a_small_one() -> None:
    """Six honest ballots, two that lie in the small layer only: it must end as the honest ones have it."""
    rng = np.random.default_rng(1)
    layout = Layout.of([("large", (5000,)), ("small", (30,))])
    codec = BallotCodec(layout, reference=random_ranking(layout, rng))
    honest = [near(codec.reference, layout, rng, 0.02) for _ in range(6)]
    liar = honest[0].copy()
    small = layout.layers[1].edges
    liar[small] = codec.reference[small][::-1]
    alone = vote(store_of(codec, enumerate(honest)), "mean")
    with_liars = vote(store_of(codec, enumerate([*honest, liar, liar])), "nnm+trimmed-mean", 2)
    assert with_liars[small] == alone[small]


def test_memory_stays_within_what_is_allowed() -> None:
    rng = np.random.default_rng(2)
    layout = Layout.of([("only", (60_000,))])
    codec = BallotCodec(layout, reference=random_ranking(layout, rng))
    ballots = [codec.encode(random_ranking(layout, rng), client) for client in range(40)]
    allowed = 4 * 2**20
    robust_vote(store_of(codec, [(0, codec.reference)]), Aggregator("nnm+trimmed-mean"), 0, 1)  # compile
    tracemalloc.start()
    store = BallotStore(codec, memory=allowed // 2)
    for client, ballot in enumerate(ballots):
        store.add(client, ballot)
    robust_vote(store, Aggregator("nnm+trimmed-mean"), 16, 1)
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
        codec = BallotCodec(layout, reference=random_ranking(layout, rng))
        rankings = [random_ranking(layout, rng) for _ in range(3)]
        store = store_of(codec, enumerate(rankings))
        assert vote(store, "first-vote-test") == rankings[0].tolist()
        with pytest.raises(ConfigError, match=r"needs layer 'first' of all 3 ballots at once"):
            vote(store_of(codec, enumerate(rankings), TINY), "first-vote-test")
    finally:
        del RULES["first-vote-test"]


@pytest.mark.parametrize(
    "name", ["nnm+trimmed-mean", pytest.param("geometric-median", marks=pytest.mark.slow)]
)
def test_a_vote_does_not_depend_on_the_number_of_workers_or_on_memory(digits: Federation, name: str) -> None:
    ends = set()
    for workers, memory in ((1, 2**30), (2, 2**12)):
        network = supernetwork(small_net(), seed=11)
        frl = FRL(network, LocalTraining(epochs=1), "levels=4 dithered coded", vote=name, memory=memory)
        *_, (state, played) = rounds_of(frl, digits, Schedule(2, 8, 2), workers=workers)
        assert played.refused == {}
        ends.add(state.ranking.tobytes())
    assert len(ends) == 1


def test_a_vote_withstands_the_share_that_it_expects(digits: Federation) -> None:
    network = supernetwork(small_net(), seed=11)
    frl = FRL(network, vote="nnm+trimmed-mean", assumed_malicious=0.3)
    reference = frl.init().ranking
    rng = np.random.default_rng(0)
    honest = [near(reference, frl.network.layout, rng, 0.01) for _ in range(7)]
    reverse = np.concatenate([reference[layer.edges][::-1] for layer in frl.network.layout])

    def agreement(ranking: np.ndarray) -> float:
        return float(
            np.corrcoef(reputation(ranking, frl.network.layout), reputation(reference, frl.network.layout))[
                0, 1
            ]
        )

    held = combined(frl, reference, [*honest, *[reverse] * 3])
    borda = combined(FRL(network, vote="borda"), reference, [*honest, *[reverse] * 3])
    broken = combined(
        FRL(network, vote="nnm+trimmed-mean", assumed_malicious=0), reference, [*honest, *[reverse] * 3]
    )
    assert np.array_equal(broken, borda)
    assert agreement(held) > agreement(broken)
