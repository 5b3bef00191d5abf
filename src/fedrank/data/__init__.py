"""Where data comes from, and how it is split among clients."""

from fedrank.data.federation import (
    Client,
    Dataset,
    Federation,
    Samples,
    deal,
    samples,
    split,
    with_labels,
    with_probe,
)
from fedrank.data.partition import IID, ByWriter, Dirichlet, Partition, Shards
from fedrank.data.preprocess import Inputs, Preprocess
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
    "data_files",
    "deal",
    "default_data_dir",
    "find_source",
    "load",
    "samples",
    "split",
    "with_labels",
    "with_probe",
]
