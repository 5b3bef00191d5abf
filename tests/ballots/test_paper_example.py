"""The worked example of the paper: six edges, three clients."""

import numpy as np
import pytest

from fedrank.ballots import BallotCodec, BallotFormat, Tally
from fedrank.rank import Layout, assign_scores, reputation, vote_on

LAYOUT = Layout.of([("figure", (6,))])
C1 = [4, 0, 2, 3, 5, 1]
# The text gives C1 and the totals; these two rankings are the ones that add up to them.
C2 = [2, 0, 5, 3, 4, 1]
C3 = [0, 2, 1, 5, 4, 3]


def ranking(edges: list[int]) -> np.ndarray:
    return np.array(edges, np.int32)


def tally_of(*clients: list[int], ballot_format: str = "exact") -> Tally:
    codec = BallotCodec(LAYOUT, BallotFormat.parse(ballot_format))
    tally = Tally(codec)
    for number, client in enumerate(clients):
        tally.add(number, codec.encode(ranking(client), number))
    return tally


def test_reputation_is_the_position_in_the_ranking() -> None:
    by_edge = reputation(ranking(C1), LAYOUT)
    assert [by_edge[edge] for edge in C1] == [0, 1, 2, 3, 4, 5]
    assert by_edge.tolist() == [1, 5, 2, 3, 0, 4]


def test_scores_are_placed_by_the_global_ranking() -> None:
    sorted_scores = np.array([0.2, 0.4, 0.5, 0.8, 1.0, 1.2], np.float32)
    scores = assign_scores(sorted_scores, by=ranking([2, 3, 0, 5, 1, 4]), layout=LAYOUT)
    assert scores[4] == np.float32(1.2)
    assert scores[2] == np.float32(0.2)


def test_vote_of_three_clients() -> None:
    tally = tally_of(C1, C2, C3)
    assert (tally.total / 2).tolist() == [2, 12, 3, 11, 8, 9]
    assert tally.vote().tolist() == [0, 2, 4, 5, 3, 1]
    assert vote_on([ranking(client) for client in (C1, C2, C3)], LAYOUT).tolist() == [0, 2, 4, 5, 3, 1]


def test_sparse_ballot_names_the_top_half_and_gives_the_rest_nothing() -> None:
    tally = tally_of(C1, ballot_format="top=50%")
    assert (tally.total / 2).tolist() == [0, 5, 0, 3, 0, 4]


@pytest.mark.parametrize("client", [C1, C2, C3])
def test_a_single_voter_decides_alone(client: list[int]) -> None:
    assert tally_of(client).vote().tolist() == client
