"""Attacks on the data: malicious clients learn something else and send it as it is."""

from __future__ import annotations

import numpy as np

from fedrank.attacks.base import data_poisoning
from fedrank.data import Federation, with_labels


@data_poisoning("label-flip", source="Tolpegin et al., 2020")
def label_flip(federation: Federation, malicious: frozenset[int]) -> Federation:
    """Each label c of a malicious client's data becomes the opposite one, classes - 1 - c."""
    labels = federation.dataset.labels.copy()
    for client in sorted(malicious):
        samples = federation.clients[client].train
        labels[samples] = federation.dataset.classes - 1 - labels[samples]
    return with_labels(federation, np.ascontiguousarray(labels))
