import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrank.data import IID, ByWriter, Dirichlet, Partition, Shards
from fedrank.errors import DataError

LABELS = np.repeat(np.arange(10), 100)


def shares_of(by: Partition, labels: np.ndarray, clients: int | None, seed: int = 1) -> list[np.ndarray]:
    return by.partition(labels, clients, np.random.default_rng(seed))


@given(
    st.sampled_from([Dirichlet(0.1), Dirichlet(1.0), Dirichlet(100.0), Shards(2), Shards(1), IID()]),
    st.integers(1, 25),
    st.integers(0, 1000),
)
def test_every_sample_goes_to_exactly_one_client(partition: Partition, clients: int, seed: int) -> None:
    labels = np.random.default_rng(seed).integers(0, 5, 50)
    shares = shares_of(partition, labels, clients, seed)
    assert len(shares) == clients
    assert sorted(np.concatenate(shares).tolist()) == list(range(50))


def class_share_deviation(beta: float) -> float:
    shares = shares_of(Dirichlet(beta), LABELS, 20)
    counts = np.array([np.bincount(LABELS[share], minlength=10) for share in shares])
    return float((counts / 100).std())


def test_a_smaller_beta_makes_clients_more_different() -> None:
    assert class_share_deviation(0.1) > class_share_deviation(1.0) > class_share_deviation(100.0)


def test_dirichlet_shares_have_the_distributions_mean_and_deviation() -> None:
    labels = np.zeros(100_000, np.int64)
    shares = np.concatenate(
        [[len(h) / 1e5 for h in shares_of(Dirichlet(2.0), labels, 50, s)] for s in range(20)]
    )
    # a share of Dirichlet(beta, ..., beta) over n clients is Beta(beta, (n - 1) * beta)
    assert shares.mean() == pytest.approx(1 / 50)
    assert shares.std() == pytest.approx(np.sqrt((1 / 50) * (49 / 50) / (2.0 * 50 + 1)), rel=0.1)


def test_two_shards_give_at_most_two_classes_when_shards_do_not_straddle() -> None:
    shares = shares_of(Shards(2), LABELS, 50)
    assert all(share.size == 20 for share in shares)
    assert max(len(set(LABELS[share])) for share in shares) == 2


def test_shards_of_the_test_set_go_with_those_of_the_same_classes() -> None:
    test_labels = np.tile(np.arange(10), 20)
    train, test = Shards(2, test=True).partition_both(LABELS, test_labels, 50, np.random.default_rng(1))
    assert {share.size for share in train} == {20}
    assert {share.size for share in test} == {4}
    assert sorted(np.concatenate(test).tolist()) == list(range(200))
    for mine, tested in zip(train, test, strict=True):
        assert set(LABELS[mine]) == set(test_labels[tested])


def test_iid_hands_are_even() -> None:
    assert {share.size for share in shares_of(IID(), LABELS, 30)} == {33, 34}


def test_each_writer_is_a_client() -> None:
    writers = np.array(["b", "a", "b", "c", "a", "b"])
    shares = shares_of(ByWriter(writers), np.zeros(6, np.int64), None)
    assert [share.tolist() for share in shares] == [[1, 4], [0, 2, 5], [3]]
    some = shares_of(ByWriter(writers), np.zeros(6, np.int64), 2)
    assert len(some) == 2
    assert all(len(set(writers[share])) == 1 for share in some)


@pytest.mark.parametrize(
    ("partition", "clients", "complaint"),
    [
        (Dirichlet(), 0, "clients must be at least 1, got 0"),
        (Dirichlet(), 1001, "only 1000 samples: use at most 1000"),
        (IID(), 1001, "only 1000 samples"),
        (Shards(2), 501, "at most 500 clients"),
        (IID(), None, "needs the number of clients"),
        (ByWriter(np.repeat(["x", "y"], 500)), 3, "between 1 and 2, the number of writers"),
        (ByWriter(np.repeat(["x", "y"], 500)), 0, "between 1 and 2, the number of writers"),
        (ByWriter(["x"]), None, "got 1 writers for 1000 samples"),
    ],
)
def test_impossible_numbers_of_clients_are_refused(
    partition: Partition, clients: int | None, complaint: str
) -> None:
    with pytest.raises(DataError, match=complaint):
        shares_of(partition, LABELS, clients)


def test_impossible_partitions_are_refused() -> None:
    for beta in (0, -1, float("inf"), float("nan")):
        with pytest.raises(DataError, match="beta must be between"):
            Dirichlet(beta)
    with pytest.raises(DataError, match="per_client must be at least 1, got 0"):
        Shards(0)
