import numpy as np
import pytest

from fedrank.data import IID, ByWriter, Dirichlet, Federation, Preprocess, Shards, split
from fedrank.errors import DataError

INPUTS = np.arange(100 * 4, dtype=np.uint8).reshape(100, 4)
LABELS = np.arange(100) % 5


def federation(**options: object) -> Federation:
    return split(INPUTS, LABELS, **{"by": IID(), "clients": 10, "seed": 1, **options})  # type: ignore[arg-type]


def test_each_client_keeps_a_fifth_back() -> None:
    for client in federation().clients:
        assert client.train.size == 8
        assert client.test.size == 2
        assert not set(client.train) & set(client.test)


def test_the_same_seed_gives_the_same_partition() -> None:
    def shares(seed: int) -> list[list[int]]:
        return [client.train.tolist() for client in federation(seed=seed).clients]

    assert shares(1) == shares(1)
    assert shares(1) != shares(2)


def test_without_an_official_test_set_all_clients_test_samples_are_it() -> None:
    fed = federation()
    assert sorted(np.concatenate([client.test for client in fed.clients])) == fed.test.tolist()


def test_an_official_test_set_is_never_partitioned() -> None:
    fed = federation(test=(INPUTS[:30], LABELS[:30]))
    assert fed.test.tolist() == list(range(100, 130))
    dealt = np.concatenate([np.concatenate([client.train, client.test]) for client in fed.clients])
    assert sorted(dealt.tolist()) == list(range(100))


def test_with_test_shards_clients_train_on_all_they_have_and_are_tested_on_official_samples() -> None:
    inputs, labels = np.zeros((120, 2)), np.repeat(np.arange(4), 30)
    official = np.zeros((24, 2)), np.repeat(np.arange(4), 6)
    dealt = split(inputs, labels, by=Shards(2, test=True), clients=6, seed=1, test=official)
    assert {client.train.size for client in dealt.clients} == {20}
    assert {client.test.size for client in dealt.clients} == {4}
    assert all(client.train.max() < 120 <= client.test.min() for client in dealt.clients)
    assert dealt.test.tolist() == list(range(120, 144))
    with pytest.raises(DataError, match="needs a global test set"):
        split(inputs, labels, by=Shards(2, test=True), clients=6, seed=1)


def test_a_client_without_data_never_votes() -> None:
    fed = split(INPUTS[:12], LABELS[:12], by=Dirichlet(0.02), clients=12, seed=1)
    empty = [number for number, client in enumerate(fed.clients) if client.train.size == 0]
    assert empty
    assert set(fed.voters) == set(range(12)) - set(empty)


def test_batches_show_every_sample_once_and_follow_the_generator() -> None:
    samples = federation().train_samples(0)

    def labels(seed: int) -> list[list[int]]:
        return [batch[1].tolist() for batch in samples.batches(3, np.random.default_rng(seed))]

    assert [len(batch) for batch in labels(1)] == [3, 3, 2]
    assert sorted(label for batch in labels(1) for label in batch) == sorted(samples.labels.tolist())
    assert labels(1) == labels(1)
    assert any(labels(1) != labels(seed) for seed in range(2, 6))


def test_without_standardizing_bytes_are_divided_by_255_and_other_numbers_left_alone() -> None:
    assert federation(preprocess=None).dataset.preprocess(np.array([[255]], np.uint8)).tolist() == [[1.0]]
    floats = split(INPUTS.astype(np.float64), LABELS, by=IID(), clients=2, seed=1, preprocess=None)
    assert floats.dataset.preprocess(np.array([[2.5]])).tolist() == [[2.5]]


def test_normalization_by_channel() -> None:
    preprocess = Preprocess(scale=255.0, mean=(0.5, 0.25), std=(0.5, 2.0))
    images = np.full((1, 2, 3, 3), 255, np.uint8)
    normalized = preprocess(images)
    assert normalized.dtype == np.float32
    np.testing.assert_allclose(normalized[0, 0], 1.0, rtol=1e-6)
    np.testing.assert_allclose(normalized[0, 1], 0.375, rtol=1e-6)


def test_crop_and_flip_shifts_by_at_most_four_and_mirrors_half() -> None:
    image = np.zeros((1, 1, 32, 32), np.uint8)
    image[0, 0, 16, 10] = 9
    images = np.repeat(image, 400, axis=0)
    augmented = Preprocess(crop_and_flip=True).augment(images, np.random.default_rng(1))
    rows, columns = np.nonzero(augmented[:, 0].reshape(400, -1))[1] // 32, np.nonzero(augmented)[3]
    assert set(rows) == set(range(12, 21))
    assert set(columns) == set(range(6, 15)) | {31 - c for c in range(6, 15)}
    assert 150 < np.count_nonzero(columns > 15) < 250


def test_without_augmentation_the_images_are_not_copied() -> None:
    assert Preprocess().augment(INPUTS, np.random.default_rng(1)) is INPUTS


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"labels": LABELS[:-1]}, "100 inputs but 99 labels"),
        ({"labels": LABELS - 1}, "got labels from -1 to 3"),
        ({"labels": LABELS.astype(float)}, "one integer label per sample"),
        ({"labels": LABELS[:, None]}, "shape \\(100, 1\\)"),
        ({"test": (INPUTS[:, :2], LABELS)}, "test samples have shape \\(2,\\) and type uint8"),
        ({"test": (INPUTS / 255, LABELS)}, "test samples have shape \\(4,\\) and type float64"),
        (
            {"inputs": INPUTS[:50], "labels": LABELS[:40], "test": (INPUTS[:10], LABELS[:20])},
            "50 inputs but 40",
        ),
        ({"inputs": INPUTS[0, 0]}, "no inputs"),
        ({"labels": None}, "labels must be an array, got None; for a PyTorch or Hugging Face data set"),
        ({"clients": 101}, "only 100 samples"),
        ({"clients": 0}, "clients must be at least 1, got 0"),
        ({"inputs": INPUTS[:0], "labels": LABELS[:0]}, "data set is empty"),
        ({"by": ByWriter(["a"]), "clients": None}, "1 writers"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(options: dict[str, object], complaint: str) -> None:
    arguments = {"inputs": INPUTS, "labels": LABELS, "by": IID(), "clients": 10, "seed": 1, **options}
    with pytest.raises(DataError, match=complaint):
        split(**arguments)  # type: ignore[arg-type]


def test_torch_tensors_are_taken_too() -> None:
    import torch

    fed = split(torch.rand(20, 3), torch.arange(20) % 2, by=IID(), clients=4, seed=1)
    assert fed.dataset.inputs.shape == (20, 3)
