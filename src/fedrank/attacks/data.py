"""Attacks on the data: malicious clients learn something else and send it as it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedrank.attacks.base import data_poisoning
from fedrank.data import Federation, Inputs, with_labels, with_probe
from fedrank.errors import ConfigError

BACKDOOR_LABEL = 0
PROBES = 1000


@data_poisoning("label-flip", source="Tolpegin et al., 2020")
def label_flip(federation: Federation, malicious: frozenset[int]) -> Federation:
    """Each label c of a malicious client's data becomes the opposite one, classes - 1 - c."""
    labels = federation.dataset.labels.copy()
    for client in sorted(malicious):
        samples = federation.clients[client].train
        labels[samples] = federation.dataset.classes - 1 - labels[samples]
    return with_labels(federation, np.ascontiguousarray(labels))


@data_poisoning("backdoor", source="Gu et al., 2017 (BadNets)")
def backdoor(federation: Federation, malicious: frozenset[int]) -> Federation:
    """Every second sample of a malicious client gets a bright square in its corner and the label 0."""
    dataset = federation.dataset
    if dataset.inputs.ndim != 4:
        raise ConfigError("the backdoor's trigger is drawn on images: the inputs must have four dimensions")
    inputs, labels = dataset.inputs.copy(), dataset.labels.copy()
    for client in sorted(malicious):
        samples = federation.clients[client].train[::2]
        inputs[samples] = _triggered(inputs[samples])
        labels[samples] = BACKDOOR_LABEL
    others = federation.test[dataset.labels[federation.test] != BACKDOOR_LABEL][:PROBES]
    poisoned = replace(federation, dataset=replace(dataset, inputs=inputs, labels=labels))
    return with_probe(poisoned, _triggered(dataset.inputs[others]), BACKDOOR_LABEL)


def _triggered(images: Inputs) -> Inputs:
    side = max(2, images.shape[-1] // 8)
    images = images.copy()
    images[..., -side:, -side:] = images.max() if images.size else 0
    return images
