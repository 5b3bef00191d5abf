import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrank.ballots import BallotCodec, BallotFormat, Tally
from fedrank.errors import BallotError, TooFewUpdatesError
from fedrank.rank import Layout
from tests.support import oracle
from tests.support.strategies import elections, random_ranking

Election = tuple[BallotCodec, list[np.ndarray]]
LAYOUT = Layout.of([("first", (5,)), ("second", (2, 2))])


def tally_of(codec: BallotCodec, rankings: dict[int, np.ndarray]) -> Tally:
    tally = Tally(codec)
    for client, ranking in rankings.items():
        tally.add(client, codec.encode(ranking, client))
    return tally


@given(elections())
def test_vote_equals_the_plain_oracle(election: Election) -> None:
    codec, rankings = election
    tally = tally_of(codec, dict(enumerate(rankings)))
    assert tally.vote().tolist() == oracle.vote(codec, [ranking.tolist() for ranking in rankings])


@given(elections(), st.randoms())
def test_vote_does_not_depend_on_order_or_grouping(election: Election, random) -> None:
    codec, rankings = election
    whole = tally_of(codec, dict(enumerate(rankings)))
    shuffled = random.sample(list(enumerate(rankings)), len(rankings))
    cut = random.randint(0, len(rankings))
    merged = tally_of(codec, dict(shuffled[:cut]))
    merged.merge(tally_of(codec, dict(shuffled[cut:])))
    assert merged.total.tobytes() == whole.total.tobytes()
    assert merged.vote().tobytes() == whole.vote().tobytes()
    assert merged.voters == set(range(len(rankings)))


@given(elections(), st.integers(0, 2**32))
def test_renaming_edges_renames_the_vote(election: Election, seed: int) -> None:
    codec, rankings = election
    layout = codec.layout
    new_name = random_ranking(layout, np.random.default_rng(seed))

    def renamed(ranking: np.ndarray) -> np.ndarray:
        return np.concatenate([new_name[layer.edges][ranking[layer.edges]] for layer in layout])

    before = tally_of(codec, dict(enumerate(rankings)))
    after = tally_of(codec, {client: renamed(ranking) for client, ranking in enumerate(rankings)})
    for layer in layout:
        totals = before.total[layer.edges]
        assert after.total[layer.edges][new_name[layer.edges]].tolist() == totals.tolist()
        if len(set(totals.tolist())) == layer.size:  # ties break by number, so only without them
            expected = new_name[layer.edges][before.vote()[layer.edges]]
            assert after.vote()[layer.edges].tolist() == expected.tolist()


def test_a_client_votes_once_and_only_if_it_was_asked() -> None:
    codec = BallotCodec(LAYOUT)
    tally = Tally(codec, asked={3, 4})
    ballot = codec.encode(random_ranking(LAYOUT, np.random.default_rng(0)), 3)
    tally.add(3, ballot)
    before = tally.total.tobytes()
    with pytest.raises(BallotError, match="client 3 has already voted in this round"):
        tally.add(3, ballot)
    with pytest.raises(BallotError, match="client 5 was not asked"):
        tally.add(5, ballot)
    with pytest.raises(BallotError, match="the sender is 3, expected 4"):
        tally.add(4, ballot)
    for nobody in (-1, 2**64):
        with pytest.raises(BallotError, match="not a client number"):
            Tally(codec).add(nobody, ballot)
    assert tally.total.tobytes() == before
    assert tally.voters == {3}


def test_an_election_without_ballots_has_no_result() -> None:
    with pytest.raises(TooFewUpdatesError, match="nobody voted"):
        Tally(BallotCodec(LAYOUT)).vote()


@pytest.mark.parametrize(
    "other",
    [
        BallotCodec(Layout.of([("other", (9,))])),
        BallotCodec(LAYOUT, BallotFormat.parse("top=50%")),
        BallotCodec(LAYOUT, round=1),
        BallotCodec(LAYOUT, run=b"another run, yes"),
    ],
)
def test_tallies_of_different_votes_do_not_merge(other: BallotCodec) -> None:
    with pytest.raises(BallotError, match="cannot be merged"):
        Tally(BallotCodec(LAYOUT)).merge(Tally(other))


def test_tallies_that_share_a_voter_do_not_merge() -> None:
    ranking = random_ranking(LAYOUT, np.random.default_rng(0))
    with pytest.raises(BallotError, match="client 2 has voted in both"):
        tally_of(BallotCodec(LAYOUT), {1: ranking, 2: ranking}).merge(
            tally_of(BallotCodec(LAYOUT), {2: ranking})
        )


@pytest.mark.parametrize("ballot_format", ["exact", "exact coded", "levels=16 dithered coded", "top=50%"])
def test_memory_does_not_grow_with_the_number_of_ballots(ballot_format: str) -> None:
    layout = Layout.of([("layer", (100_000,))])
    rng = np.random.default_rng(0)
    codec = BallotCodec(layout, BallotFormat.parse(ballot_format), random_ranking(layout, rng))
    ballots = [codec.encode(random_ranking(layout, rng), client) for client in range(12)]
    tally = Tally(codec)
    tally.add(0, ballots[0])

    def peak_while_adding(clients: range) -> int:
        tracemalloc.start()
        for client in clients:
            tally.add(client, ballots[client])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    few = peak_while_adding(range(1, 3))
    assert peak_while_adding(range(3, 12)) < 1.2 * few + 10_000
