"""Data sources: embedded digits, or Parquet files in a data directory."""

from __future__ import annotations

import io
import os
import re
import string
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedrank.data.arrays import Labels
from fedrank.data.federation import Dataset
from fedrank.data.preprocess import Preprocess
from fedrank.errors import DataError
from fedrank.parameters import did_you_mean


@dataclass(frozen=True)
class Source:
    """A named data set and the schema of its Parquet files, if any.

    `repository` and `folder` locate the files on the Hugging Face hub.
    """

    name: str
    about: str
    classes: int
    shape: tuple[int, int, int]
    preprocess: Preprocess
    repository: str = ""
    folder: str = ""
    image_column: str = "image"
    label_column: str = "label"
    writer_column: str = ""
    splits: tuple[str, ...] = ("train", "test")
    names: tuple[str, ...] = tuple(string.digits)
    """The names of the classes."""

    @property
    def embedded(self) -> bool:
        return not self.repository


@dataclass(frozen=True)
class Loaded:
    """A source's samples: the first `train_count` are for clients, the rest is the official test set."""

    dataset: Dataset
    train_count: int
    writers: NDArray[np.str_] | None = None


SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        Source(
            name="digits",
            about="1,797 handwritten digits of 8x8 pixels, shipped with scikit-learn",
            classes=10,
            shape=(1, 8, 8),
            preprocess=Preprocess(scale=16.0, mean=(0.3053,), std=(0.3760,)),
        ),
        Source(
            name="mnist",
            about="70,000 handwritten digits of 28x28 pixels (LeCun et al., 1998)",
            classes=10,
            shape=(1, 28, 28),
            preprocess=Preprocess(scale=255.0, mean=(0.1307,), std=(0.3081,)),
            repository="ylecun/mnist",
            folder="mnist",
        ),
        Source(
            name="cifar10",
            about="60,000 color photographs of 32x32 pixels in 10 classes (Krizhevsky, 2009)",
            classes=10,
            shape=(3, 32, 32),
            preprocess=Preprocess(
                scale=255.0,
                mean=(0.491, 0.482, 0.447),
                std=(0.247, 0.243, 0.262),
                crop_and_flip=True,
            ),
            repository="uoft-cs/cifar10",
            folder="plain_text",
            image_column="img",
            names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        ),
        Source(
            name="femnist",
            about="handwritten characters in 62 classes, by writer (LEAF, Caldas et al., 2018)",
            classes=62,
            shape=(1, 28, 28),
            preprocess=Preprocess(scale=255.0, mean=(0.9612,), std=(0.1655,)),
            repository="flwrlabs/femnist",
            folder="data",
            label_column="character",
            writer_column="writer_id",
            splits=("train",),
            names=tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase),
        ),
    )
}


def find_source(name: str) -> Source:
    """Return the source with this name."""
    if name not in SOURCES:
        raise DataError(f"unknown data set {name!r}{did_you_mean(name, SOURCES)}")
    return SOURCES[name]


def default_data_dir() -> Path:
    """Return $FEDRANK_DATA, or else the user's cache directory."""
    if configured := os.environ.get("FEDRANK_DATA"):
        return Path(configured)
    from platformdirs import user_cache_path

    return user_cache_path("fedrank") / "data"


def load(name: str, data_dir: Path) -> Loaded:
    """Read a named data set into memory."""
    source = find_source(name)
    if source.embedded:
        return _load_digits(source)
    files = data_files(name, data_dir)
    parts = [_read_parquet(path, source) for path in files["train"]]
    train_count = sum(len(part.labels) for part in parts)
    parts += [_read_parquet(path, source) for path in files.get("test", ())]
    dataset = Dataset(
        np.concatenate([part.images for part in parts]),
        np.concatenate([part.labels for part in parts]),
        source.classes,
        source.preprocess,
    )
    writers = np.concatenate([part.writers for part in parts]) if source.writer_column else None
    return Loaded(dataset, train_count, writers)


def data_files(name: str, data_dir: Path) -> dict[str, list[Path]]:
    """Return the files of a named data set by split; raise DataError if any is missing."""
    source = find_source(name)
    splits = () if source.embedded else source.splits
    return {split: parquet_files(data_dir / name, split) for split in splits}


def parquet_files(folder: Path, split: str) -> list[Path]:
    """Return the files of a split in order; raise DataError if any is missing."""
    paths = sorted(folder.glob(f"{split}-*.parquet"))
    if not paths:
        raise DataError(
            f"{folder.name}: no file {split}-*.parquet in {folder}. "
            f"Download it with 'fedrank data get {folder.name}', or choose another directory with --data-dir."
        )
    for path in paths:
        match = re.fullmatch(rf"{split}-\d+-of-(\d+)\.parquet", path.name)
        if match and int(match[1]) != len(paths):
            raise DataError(
                f"{folder}: expected {int(match[1])} files of {split}, found {len(paths)}. "
                f"Download the rest with 'fedrank data get {folder.name}'."
            )
    return paths


def availability(source: Source, data_dir: Path) -> str:
    """Return whether a data set is available locally: yes, no, or incomplete."""
    if source.embedded:
        return "yes"
    folder = data_dir / source.name
    if not any(folder.glob("*.parquet*")):
        return "no"
    try:
        data_files(source.name, data_dir)
    except DataError:
        return "incomplete"
    return "yes"


@dataclass(frozen=True)
class _Part:
    images: NDArray[np.uint8]
    labels: Labels
    writers: NDArray[np.str_]


def _read_parquet(path: Path, source: Source) -> _Part:
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = [source.image_column, source.label_column]
    if source.writer_column:
        wanted.append(source.writer_column)
    try:
        present = pq.read_schema(path).names
        missing = [column for column in wanted if column not in present]
        if missing:
            raise DataError(
                f"{path}: no column {missing[0]!r}; its columns are {', '.join(map(repr, present))}. "
                f"Expected the schema of the Hugging Face data set {source.repository}."
            )
        table = pq.read_table(path, columns=wanted)
    except PermissionError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{path}: not a complete Parquet file ({error}). "
            f"Delete it and download it again with 'fedrank data get {source.name}'."
        ) from error
    labels = table[source.label_column].to_numpy()
    if not np.issubdtype(labels.dtype, np.integer):
        raise DataError(f"{path}: expected integers in column {source.label_column!r}, got {labels.dtype}")
    writers = table[source.writer_column].to_pylist() if source.writer_column else []
    images = _decode(path, table[source.image_column].to_pylist(), source)
    _check_labels(path, labels, source.classes)
    return _Part(images, labels.astype(np.int64), np.asarray(writers, np.str_))


def _check_labels(path: Path, labels: Labels, classes: int) -> None:
    outside = np.flatnonzero((labels < 0) | (labels >= classes))
    if outside.size:
        row = int(outside[0])
        raise DataError(f"{path}: row {row} has label {labels[row]}, expected 0 to {classes - 1}")


def _decode(path: Path, cells: list[dict[str, bytes]], source: Source) -> NDArray[np.uint8]:
    from PIL import Image

    channels, height, width = source.shape
    mode = "L" if channels == 1 else "RGB"
    images = np.empty((len(cells), height, width, channels), np.uint8)
    for row, cell in enumerate(cells):
        try:
            with Image.open(io.BytesIO(cell["bytes"])) as image:
                pixels = np.asarray(image if image.mode == mode else image.convert(mode))
            images[row] = pixels.reshape(height, width, channels)
        except (OSError, TypeError, KeyError, ValueError) as error:
            raise DataError(
                f"{path}: row {row} is not an image of {width}x{height} pixels ({error})"
            ) from error
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def _load_digits(source: Source) -> Loaded:
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = digits.images.astype(np.uint8)[:, None]
    labels = digits.target.astype(np.int64)
    return Loaded(Dataset(images, labels, source.classes, source.preprocess), len(labels))
