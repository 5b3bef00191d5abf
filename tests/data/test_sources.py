import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fedrank.data import SOURCES, default_data_dir, load
from fedrank.data.sources import availability
from fedrank.errors import DataError


def png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def gray_cells(count: int, side: int = 28) -> list[dict[str, Any]]:
    return [{"bytes": png(np.full((side, side), i, np.uint8)), "path": None} for i in range(count)]


def write(path: Path, **columns: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.parent.name == "mnist" and not list(path.parent.glob("test-*")):
        test = pa.table({"image": gray_cells(1), "label": [0]})
        pq.write_table(test, path.parent / "test-00000-of-00001.parquet")
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    write(tmp_path / "mnist/train-00000-of-00001.parquet", image=gray_cells(6), label=[0, 1, 2, 3, 4, 9])
    write(tmp_path / "mnist/test-00000-of-00001.parquet", image=gray_cells(2), label=[5, 6])
    return tmp_path


def test_parquet_becomes_uint8_images_with_the_test_set_behind(mnist: Path) -> None:
    loaded = load("mnist", mnist)
    assert loaded.train_count == 6
    assert loaded.dataset.inputs.shape == (8, 1, 28, 28)
    assert loaded.dataset.inputs.dtype == np.uint8
    assert loaded.dataset.inputs[:, 0, 5, 5].tolist() == [0, 1, 2, 3, 4, 5, 0, 1]
    assert loaded.dataset.labels.tolist() == [0, 1, 2, 3, 4, 9, 5, 6]


def test_color_images_have_their_channels_first(tmp_path: Path) -> None:
    pixels = np.zeros((32, 32, 3), np.uint8)
    pixels[3, 4] = (10, 20, 30)
    cell = {"bytes": png(pixels), "path": "x.png"}
    for split in ("train", "test"):
        write(tmp_path / f"cifar10/{split}-00000-of-00001.parquet", img=[cell], label=[7])
    assert load("cifar10", tmp_path).dataset.inputs[0, :, 3, 4].tolist() == [10, 20, 30]


def test_femnist_knows_its_writers(tmp_path: Path) -> None:
    write(
        tmp_path / "femnist/train-00000-of-00001.parquet",
        image=gray_cells(3),
        writer_id=["f1", "f0", "f1"],
        character=[0, 61, 5],
    )
    loaded = load("femnist", tmp_path)
    assert loaded.writers is not None
    assert loaded.writers.tolist() == ["f1", "f0", "f1"]


def test_missing_data_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"fedrank data get mnist.*--data-dir"):
        load("mnist", tmp_path)


def test_a_missing_official_test_set_is_not_replaced_in_silence(mnist: Path) -> None:
    (mnist / "mnist/test-00000-of-00001.parquet").unlink()
    with pytest.raises(DataError, match=r"no file test-\*\.parquet"):
        load("mnist", mnist)


def test_availability_tells_what_is_here(mnist: Path) -> None:
    assert availability(SOURCES["digits"], mnist) == "yes"
    assert availability(SOURCES["mnist"], mnist) == "yes"
    assert availability(SOURCES["cifar10"], mnist) == "no"
    (mnist / "mnist/test-00000-of-00001.parquet").rename(mnist / "mnist/test-00000-of-00001.parquet.part")
    assert availability(SOURCES["mnist"], mnist) == "incomplete"


def test_unknown_data_is_refused_with_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="unknown data set 'imagenet'; known: digits, mnist"):
        load("imagenet", tmp_path)


def test_a_truncated_file_is_named(mnist: Path) -> None:
    path = mnist / "mnist/train-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"train-00000-of-00001.parquet: not a complete Parquet file"):
        load("mnist", mnist)


def test_damage_in_the_middle_is_named(mnist: Path) -> None:
    path = mnist / "mnist/train-00000-of-00001.parquet"
    content = bytearray(path.read_bytes())
    content[4:400] = bytes(396)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"train-00000-of-00001.parquet"):
        load("mnist", mnist)


def test_a_missing_column_is_named_with_those_that_are_there(tmp_path: Path) -> None:
    write(tmp_path / "mnist/train-00000-of-00001.parquet", img=gray_cells(1), label=[0])
    with pytest.raises(DataError, match="no column 'image'; its columns are 'img', 'label'"):
        load("mnist", tmp_path)


@pytest.mark.parametrize(("label", "complaint"), [(10, "row 1 has label 10"), (-1, "row 1 has label -1")])
def test_a_label_out_of_range_is_named_with_its_row(tmp_path: Path, label: int, complaint: str) -> None:
    write(tmp_path / "mnist/train-00000-of-00001.parquet", image=gray_cells(2), label=[0, label])
    with pytest.raises(DataError, match=complaint):
        load("mnist", tmp_path)


@pytest.mark.parametrize("label", ["seven", None, 1.5])
def test_labels_that_are_not_whole_numbers_are_refused(tmp_path: Path, label: object) -> None:
    other = 0.5 if isinstance(label, float) else label
    write(tmp_path / "mnist/train-00000-of-00001.parquet", image=gray_cells(2), label=[other, label])
    with pytest.raises(DataError, match="expected integers in column"):
        load("mnist", tmp_path)


@pytest.mark.parametrize(
    "cell",
    [{"bytes": b"not an image", "path": None}, {"bytes": None, "path": "x"}, *gray_cells(1, side=27)],
    ids=["garbage", "no bytes", "wrong size"],
)
def test_a_cell_that_is_no_image_is_named_with_its_row(tmp_path: Path, cell: dict[str, Any]) -> None:
    write(tmp_path / "mnist/train-00000-of-00001.parquet", image=[*gray_cells(1), cell], label=[0, 1])
    with pytest.raises(DataError, match="row 1 is not an image of 28x28 pixels"):
        load("mnist", tmp_path)


def test_an_image_column_of_another_type_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "mnist/train-00000-of-00001.parquet", image=[b"abc"], label=[0])
    with pytest.raises(DataError, match="row 0 is not an image"):
        load("mnist", tmp_path)


def test_a_set_with_missing_parts_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "mnist/train-00001-of-00002.parquet", image=gray_cells(1), label=[0])
    with pytest.raises(DataError, match="expected 2 files of train, found 1"):
        load("mnist", tmp_path)


def test_digits_need_no_files(tmp_path: Path) -> None:
    loaded = load("digits", tmp_path)
    assert loaded.dataset.inputs.shape == (1797, 1, 8, 8)
    normalized = loaded.dataset.preprocess(loaded.dataset.inputs)
    assert abs(normalized.mean()) < 0.01
    assert normalized.std() == pytest.approx(1, abs=0.01)


def test_the_data_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDRANK_DATA", str(tmp_path))
    assert default_data_dir() == tmp_path
    monkeypatch.delenv("FEDRANK_DATA")
    assert default_data_dir().parts[-2:] == ("fedrank", "data")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "train", "total", "classes"),
    [("mnist", 60_000, 70_000, 10), ("cifar10", 50_000, 60_000, 10), ("femnist", 16_393, 16_393, 62)],
)
def test_real_data_has_the_published_numbers(
    real_data: Path, name: str, train: int, total: int, classes: int
) -> None:
    loaded = load(name, real_data)
    assert (loaded.train_count, len(loaded.dataset.labels)) == (train, total)
    assert len(set(loaded.dataset.labels.tolist())) == classes
    normalized = loaded.dataset.preprocess(loaded.dataset.inputs[:train:7])
    assert abs(normalized.mean()) < 0.05
    assert normalized.std() == pytest.approx(1, abs=0.05)
    if name == "femnist":
        assert loaded.writers is not None
        assert len(set(loaded.writers.tolist())) == 105
