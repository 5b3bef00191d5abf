from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from fedrank.data import Dirichlet, Federation, load, partition

settings.register_profile("fedrank", deadline=None)  # the first example may wait for a compiler
settings.load_profile("fedrank")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The directory with MNIST, CIFAR10 and FEMNIST as Parquet."""
    configured = os.environ.get("FEDRANK_TEST_DATA")
    if not configured:
        pytest.skip("FEDRANK_TEST_DATA does not name a directory with the real data sets")
    return Path(configured)


@pytest.fixture(scope="session")
def digits() -> Federation:
    """The embedded digits among 30 clients."""
    loaded = load("digits", Path("unused"))
    return partition(loaded.dataset, loaded.train_count, by=Dirichlet(1.0), clients=30, seed=3)
