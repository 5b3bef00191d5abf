import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrank.errors import BallotError
from fedrank.rank import Ballot, Layout, Tally
from tests.rank.strategies import elections, random_ranking

Election = tuple[Layout, float, list[Ballot]]


def tally_of(layout: Layout, ballots: list[Ballot], top: float = 1.0) -> Tally:
    tally = Tally(layout, top)
    for ballot in ballots:
        tally.add(ballot)
    return tally


def oracle_vote(layout: Layout, ballots: list[Ballot], top: float) -> list[int]:
    """The vote in plain Python: dictionaries and sorted()."""
    result: list[int] = []
    begin = 0
    for layer in layout:
        sent = layer.size - int((1 - top) * layer.size)
        points = dict.fromkeys(range(layer.size), 0)
        for ballot in ballots:
            for place, edge in enumerate(ballot.edges[begin : begin + sent].tolist()):
                points[edge] += layer.size - sent + place
        begin += sent
        result += sorted(points, key=lambda edge: (points[edge], edge))
    return result


@given(elections())
def test_vote_equals_the_plain_oracle(election: Election) -> None:
    layout, top, ballots = election
    assert tally_of(layout, ballots, top).vote().tolist() == oracle_vote(layout, ballots, top)


@given(elections(), st.randoms())
def test_vote_does_not_depend_on_order_or_grouping(election: Election, random) -> None:
    layout, top, ballots = election
    shuffled = random.sample(ballots, len(ballots))
    cut = random.randint(0, len(ballots))
    merged = tally_of(layout, shuffled[:cut], top)
    merged.merge(tally_of(layout, shuffled[cut:], top))
    assert merged.total.tobytes() == tally_of(layout, ballots, top).total.tobytes()
    assert merged.vote().tobytes() == tally_of(layout, ballots, top).vote().tobytes()
    assert merged.ballots == len(ballots)


@given(elections(), st.integers(0, 2**32))
def test_renaming_edges_renames_the_vote(election: Election, seed: int) -> None:
    layout, top, ballots = election
    new_name = random_ranking(layout, np.random.default_rng(seed))

    def renamed(ballot: Ballot) -> Ballot:
        edges = ballot.edges.copy()
        begin = 0
        for layer in layout:
            sent = layer.size - int((1 - top) * layer.size)
            edges[begin : begin + sent] = new_name[layer.edges][edges[begin : begin + sent]]
            begin += sent
        return Ballot(edges)

    before = tally_of(layout, ballots, top)
    after = tally_of(layout, [renamed(b) for b in ballots], top)
    for layer in layout:
        totals = before.total[layer.edges]
        assert after.total[layer.edges][new_name[layer.edges]].tolist() == totals.tolist()
        if len(set(totals.tolist())) == layer.size:  # ties break by number, so only without them
            expected = new_name[layer.edges][before.vote()[layer.edges]]
            assert after.vote()[layer.edges].tolist() == expected.tolist()


LAYOUT = Layout.of([("first", (5,)), ("second", (2, 2))])
LEGAL = np.array([0, 1, 2, 3, 4, 0, 1, 2, 3], np.int32)


def changed(position: int, value: int) -> np.ndarray:
    edges = LEGAL.copy()
    edges[position] = value
    return edges


@pytest.mark.parametrize(
    ("edges", "complaint"),
    [
        (changed(3, 2), "'first': the ballot names 1 edges more than once"),
        (changed(8, 0), "'second': the ballot names 1 edges more than once"),
        (changed(0, -1), "names -1 to 4"),
        (changed(5, 4), "'second' has edges 0 to 3"),
        (LEGAL[:-1], "needs 9 int32 edge numbers"),
        (np.append(LEGAL, 0).astype(np.int32), "needs 9 int32 edge numbers"),
        (LEGAL.astype(np.float32), "has float32 numbers"),
        (LEGAL[None], "of shape (1, 9)"),
        (LEGAL.tolist(), "this one list"),
        (np.concatenate([LEGAL[5:], LEGAL[:5]]), "more than once"),
    ],
    ids=[
        "duplicate",
        "duplicate in another layer",
        "negative",
        "too large",
        "short",
        "long",
        "floats",
        "nested",
        "no array",
        "layers swapped",
    ],
)
def test_an_illegal_ballot_is_refused_and_the_tally_untouched(edges: np.ndarray, complaint: str) -> None:
    tally = tally_of(LAYOUT, [Ballot(LEGAL)])
    before = tally.total.tobytes()
    with pytest.raises(BallotError) as refusal:
        tally.add(Ballot(edges))
    assert complaint in str(refusal.value)
    assert tally.total.tobytes() == before
    assert tally.ballots == 1


def test_a_sparse_ballot_with_an_edge_twice_is_refused() -> None:
    layout = Layout.of([("layer", (6,))])
    with pytest.raises(BallotError, match="more than once"):
        Tally(layout, top=0.5).add(Ballot(np.array([5, 5, 1], np.int32)))


def test_the_server_decides_how_much_of_a_ranking_a_ballot_names() -> None:
    layout = Layout.of([("layer", (6,))])
    whole, half = np.arange(6, dtype=np.int32), np.arange(3, dtype=np.int32)
    for top, edges in ((0.5, whole), (1.0, half)):
        with pytest.raises(BallotError, match="int32 edge numbers"):
            Tally(layout, top).add(Ballot(edges))


def test_an_election_without_ballots_has_no_result() -> None:
    with pytest.raises(BallotError, match="nobody voted"):
        Tally(LAYOUT).vote()


def test_tallies_of_different_layouts_do_not_merge() -> None:
    with pytest.raises(BallotError, match="different layouts"):
        Tally(LAYOUT).merge(Tally(Layout.of([("other", (9,))])))
    with pytest.raises(BallotError, match="kinds of ballots"):
        Tally(LAYOUT).merge(Tally(LAYOUT, top=0.5))


def test_memory_does_not_grow_with_the_number_of_ballots() -> None:
    layout = Layout.of([("layer", (100_000,))])
    rng = np.random.default_rng(0)
    tally = Tally(layout)

    def peak_while_adding(count: int) -> int:
        tracemalloc.start()
        for _ in range(count):
            tally.add(Ballot.of(random_ranking(layout, rng), layout))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    few = peak_while_adding(2)
    assert peak_while_adding(20) < 1.2 * few
