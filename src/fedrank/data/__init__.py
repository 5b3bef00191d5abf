"""Data sources, partitions among clients, and preprocessing."""

from fedrank.data.arrays import Inputs
from fedrank.data.federation import (
    Client,
    Dataset,
    Federation,
    Samples,
    check_federation,
    partition,
    samples,
    split,
    with_labels,
    with_probe,
)
from fedrank.data.partitions import IID, ByWriter, Dirichlet, Partition, Shards
from fedrank.data.preprocess import Preprocess
from fedrank.data.sources import SOURCES, Loaded, Source, data_files, default_data_dir, find_source, load

__all__ = [
    "IID",
    "SOURCES",
    "ByWriter",
    "Client",
    "Dataset",
    "Dirichlet",
    "Federation",
    "Inputs",
    "Loaded",
    "Partition",
    "Preprocess",
    "Samples",
    "Shards",
    "Source",
    "check_federation",
    "data_files",
    "default_data_dir",
    "find_source",
    "load",
    "partition",
    "samples",
    "split",
    "with_labels",
    "with_probe",
]
