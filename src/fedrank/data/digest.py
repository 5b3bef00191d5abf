"""A digest of a federation's data, to tell whether two runs have the same."""

from __future__ import annotations

import hashlib

import numpy as np

from fedrank.data.federation import Federation


def data_digest(federation: Federation) -> str:
    """Return a digest of all samples, their preprocessing, and who has which of them, by name.

    >>> from fedrank.data import IID, split
    >>> deal = lambda seed: split(np.eye(9), np.arange(9), by=IID(), clients=3, seed=seed)
    >>> data_digest(deal(1)) == data_digest(deal(1)), data_digest(deal(1)) == data_digest(deal(2))
    (True, False)
    """
    dataset = federation.dataset
    digest = hashlib.sha256(f"{dataset.preprocess} {dataset.classes} {federation.names}".encode())
    shares = [part for client in federation.clients for part in (client.train, client.test)]
    for array in (dataset.inputs, dataset.labels, *shares, federation.test):
        plain = np.ascontiguousarray(array)
        digest.update(f"{plain.dtype.str} {plain.shape}".encode())
        digest.update(plain.data.cast("B") if plain.size else b"")
    return digest.hexdigest()[:32]
