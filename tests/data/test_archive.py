"""Data of one's own in a NumPy archive."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrank.data.archive import read_archive
from fedrank.errors import DataError

INPUTS = np.arange(24.0).reshape(6, 4)
LABELS = np.array([0, 1, 2, 0, 1, 2])


def written(folder: Path, **arrays: Any) -> Path:
    path = folder / "mine.npz"
    np.savez(path, **{"inputs": INPUTS, "labels": LABELS} | arrays)
    return path


def test_samples_and_a_test_set_are_read(tmp_path: Path) -> None:
    archive = read_archive(written(tmp_path, test_inputs=INPUTS[:2], test_labels=LABELS[:2]))
    assert isinstance(archive.samples, tuple)
    assert archive.test is not None
    for array, expected in zip(
        (*archive.samples, *archive.test), (INPUTS, LABELS, INPUTS[:2], LABELS[:2]), strict=True
    ):
        np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize(
    ("owners", "names"),
    [
        (["south", "north", "south", "south", "north", "7"], ["client-7", "north", "south"]),
        ([10, 9, 10, 10, 9, 2], ["client-2", "client-9", "client-10"]),
    ],
)
def test_every_value_of_clients_is_a_client(tmp_path: Path, owners: list[Any], names: list[str]) -> None:
    samples = read_archive(written(tmp_path, clients=np.array(owners))).samples
    assert isinstance(samples, dict)
    assert list(samples) == names
    for number, positions in enumerate([[5], [1, 4], [0, 2, 3]]):
        inputs, labels = samples[names[number]]
        np.testing.assert_array_equal(inputs, INPUTS[positions])
        np.testing.assert_array_equal(labels, LABELS[positions])


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"label": LABELS}, "unknown array 'label'; did you mean 'labels'"),
        ({"test_inputs": INPUTS}, "there is no array 'test_labels', only 'inputs', 'labels', 'test_inputs'"),
        ({"labels": LABELS[:5]}, "got 6 inputs but 5 labels"),
        ({"labels": LABELS / 2}, "expected one integer label per sample, got float64"),
        ({"inputs": np.where(INPUTS == 9, np.nan, INPUTS)}, "sample 2 contains nan"),
        ({"labels": np.array([*"abcdef"], object)}, "fedrank reads no pickled objects: convert them"),
        ({"clients": np.arange(5)}, "'clients' must be one string or integer for each of 6 samples"),
        ({"clients": np.arange(6.0)}, "'clients' must be one string or integer .* got float64"),
        ({"test_inputs": INPUTS, "test_labels": LABELS[:1]}, "test: got 6 inputs but 1 labels"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, arrays: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        read_archive(written(tmp_path, **arrays))


def test_a_file_that_is_missing_damaged_or_incomplete_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file in the current directory"):
        read_archive(tmp_path / "nowhere.npz")
    for content in (b"PK garbage", b"a,b\n1,2\n"):
        (tmp_path / "garbage.npz").write_bytes(content)
        with pytest.raises(DataError, match=r"it is not a NumPy archive; np\.savez writes one"):
            read_archive(tmp_path / "garbage.npz")
    archive = zipfile.ZipFile(tmp_path / "damaged.npz", "w")
    archive.writestr("inputs.npy", b"\x93NUMPY no array")
    archive.close()
    with pytest.raises(DataError, match="cannot be read as a NumPy archive"):
        read_archive(tmp_path / "damaged.npz")
    np.savez(tmp_path / "half.npz", inputs=INPUTS)
    with pytest.raises(DataError, match="there is no array 'labels', only 'inputs'"):
        read_archive(tmp_path / "half.npz")
