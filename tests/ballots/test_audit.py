"""The audit of a vote: what it promises is tried out, what it counts is counted again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedrank.ballots import BallotCodec, BallotFormat, BallotStore, Tally
from fedrank.ballots.audit import audit_store, audit_tally, ballots_to_flip
from fedrank.rank import Layout, reputation, top_mask
from tests.support.strategies import near, random_ranking

LAYOUT = Layout.of([("first", (40,)), ("second", (3, 4))])


def election(seed: int, voters: int, ballot_format: str = "exact") -> tuple[BallotCodec, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    codec = BallotCodec(LAYOUT, BallotFormat.parse(ballot_format), random_ranking(LAYOUT, rng), rng.bytes(16))
    return codec, [near(codec.reference, LAYOUT, rng, 0.1) for _ in range(voters)]


def counted(codec: BallotCodec, rankings: list[np.ndarray]) -> tuple[Tally, BallotStore]:
    tally, store = Tally(codec), BallotStore(codec)
    for client, ranking in enumerate(rankings):
        ballot = codec.encode(ranking, client)
        tally.add(client, ballot)
        store.add(client, ballot)
    return tally, store


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(0, 6), st.sampled_from([0.3, 0.5]))
def test_no_further_ballots_flip_an_edge_that_is_out_of_their_reach(
    seed: int, voters: int, further: int, keep: float
) -> None:
    """Whatever is added, random ballots or the most hostile ones, edges with a larger margin stay."""
    codec, rankings = election(seed, voters)
    tally, _ = counted(codec, rankings)
    before = tally.vote()
    sides = top_mask(before, LAYOUT, keep)
    hostile = np.concatenate([before[layer.edges][::-1] for layer in LAYOUT])
    for added in ([hostile] * further, election(seed + 1, further)[1]):
        attacked, _ = counted(codec, [*rankings, *added])
        flipped = top_mask(attacked.vote(), LAYOUT, keep) != sides
        for layer in LAYOUT:
            margins = ballots_to_flip(tally.total[layer.edges], before[layer.edges], keep)
            assert (margins[flipped[layer.edges]] <= further).all()


@given(st.integers(0, 2**32), st.integers(1, 6))
def test_the_edge_next_to_the_border_can_be_flipped_by_as_many_ballots_as_the_audit_says(
    seed: int, voters: int
) -> None:
    codec, rankings = election(seed, voters)
    tally, _ = counted(codec, rankings)
    before = tally.vote()
    layer = LAYOUT.layers[0]
    order = before[layer.edges]
    last, first = order[19], order[20]  # the best edge outside, the worst one inside
    margins = ballots_to_flip(tally.total[layer.edges], order, 0.5)
    assert margins[last] == margins[first]
    others = [edge for edge in order if edge not in (last, first)]
    ballot = np.concatenate([[first], others, [last], before[LAYOUT.layers[1].edges]]).astype(np.int32)
    attacked, _ = counted(codec, [*rankings, *[ballot] * (margins[first] + 1)])
    sides = top_mask(attacked.vote(), LAYOUT, 0.5)[layer.edges]
    assert sides[last]
    assert not sides[first]


@pytest.mark.parametrize("ballot_format", ["exact", "exact coded", "levels=8", "top=50%", "top=50% coded"])
def test_agreement_is_the_mean_rank_correlation_with_the_vote(ballot_format: str) -> None:
    codec, rankings = election(3, 7, ballot_format)
    tally, store = counted(codec, rankings)
    after = tally.vote()
    by_sums = audit_tally(tally, codec.reference, after, 0.5)
    by_ballots = audit_store(store, codec.reference, after, 0.5, width=8)
    for layer, one, other in zip(LAYOUT, by_sums.layers, by_ballots.layers, strict=True):
        correlations = []
        for client, ranking in enumerate(rankings):
            alone = np.zeros(LAYOUT.size, np.int64)
            codec.add_to(codec.encode(ranking, client), client, alone)
            positions = reputation(after, LAYOUT)[layer.edges]
            correlations.append(stats.pearsonr(alone[layer.edges], positions)[0])
        assert one.agreement == pytest.approx(np.mean(correlations))
        assert other.agreement == pytest.approx(np.mean(correlations))
        assert one.changed == other.changed
    if ballot_format == "exact":
        spearman = [
            stats.spearmanr(reputation(ranking, LAYOUT)[layer.edges], reputation(after, LAYOUT)[layer.edges])[
                0
            ]
            for ranking in rankings
        ]
        assert by_sums.layers[-1].agreement == pytest.approx(np.mean(spearman))


def test_edges_that_change_sides_are_counted() -> None:
    codec, rankings = election(4, 3)
    tally, _ = counted(codec, rankings)
    after = tally.vote()
    audit = audit_tally(tally, codec.reference, after, 0.5)
    for layer, found in zip(LAYOUT, audit.layers, strict=True):
        masks = [top_mask(ranking, LAYOUT, 0.5)[layer.edges] for ranking in (codec.reference, after)]
        assert found.changed == np.count_nonzero(masks[0] != masks[1])
        assert found.flippable is not None
        assert list(found.flippable) == [1, 2, 3]
        assert list(found.flippable.values()) == sorted(found.flippable.values())


def test_a_ballot_that_is_far_from_the_others_is_seen() -> None:
    codec, rankings = election(5, 8)
    far = np.concatenate([codec.reference[layer.edges][::-1] for layer in LAYOUT])
    tally, store = counted(codec, [*rankings, far])
    audit = audit_store(store, codec.reference, tally.vote(), 0.5, width=16)
    by_client = {ballot.client: ballot for ballot in audit.ballots}
    assert max(by_client, key=lambda client: by_client[client].length) == 8
    assert min(by_client, key=lambda client: by_client[client].agreement) == 8
    moved = reputation(far, LAYOUT) - reputation(codec.reference, LAYOUT)
    shares = np.concatenate([moved[layer.edges] / layer.size for layer in LAYOUT])
    assert by_client[8].length == pytest.approx(np.sqrt(np.mean(shares**2)))
