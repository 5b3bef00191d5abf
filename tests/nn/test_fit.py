from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedrank import IID, FedAvg, FedrankError, diagnose, split, supernetwork
from fedrank.data import Federation
from fedrank.errors import ModelError
from fedrank.nn import check_fit

FEATURES, CLASSES = 8, 3


def clients(*shape: int) -> Federation:
    inputs = np.random.default_rng(1).normal(size=(60, *shape)).astype("float32")
    return split(inputs, np.arange(60) % CLASSES, clients=3, by=IID(), seed=1)


class Reply(nn.Module):
    """A model that makes something of its logits."""

    def __init__(self, reply: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES, bias=False)
        self.reply = reply

    def forward(self, inputs: Tensor) -> object:
        return self.reply(self.layer(inputs))


def only(*sizes: int) -> Callable[[Tensor], Tensor]:
    def reply(logits: Tensor) -> Tensor:
        if len(logits) not in sizes:
            raise RuntimeError("boom")
        return logits

    return reply


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        (lambda logits: {"logits": logits}, "returns a dict, but must return one tensor of logits"),
        (lambda logits: (logits, logits), "returns a tuple, but must return one tensor of logits"),
        (lambda logits: logits.sum(), r"outputs shape \(\) for a batch of 5"),
        (lambda logits: logits.mean(dim=0), r"outputs shape \(3,\) for a batch of 5"),
        (lambda logits: logits.squeeze(), r"outputs shape \(3,\) for a batch of 1"),
        (only(), r"does not fit samples of shape \(8,\) \(RuntimeError: boom\)"),
        (only(5), r"does not fit samples of shape \(8,\) in a batch of 1 \(RuntimeError: boom\)"),
    ],
)
def test_what_a_model_returns_is_checked_for_batches_of_several_sizes(
    reply: Callable[[Tensor], object], complaint: str
) -> None:
    with pytest.raises(ModelError, match=complaint):
        check_fit(Reply(reply), clients(FEATURES))


def test_a_diagnosis_says_that_a_model_refuses_larger_batches() -> None:
    with pytest.raises(FedrankError, match=r"the model does not fit a batch of 48 samples .*boom"):
        diagnose(supernetwork(Reply(only(1, 5)), seed=1), clients(FEATURES))


@pytest.mark.parametrize(
    ("layer", "shape", "complaint"),
    [
        (
            nn.Conv2d(1, 4, 3),
            (8, 8),
            r"0 \(Conv2d\) needs \(channels, height, width\), but gets .* \(8, 8\): pass images\[:, None\]",
        ),
        (nn.Conv2d(2, 4, 3), (8, 8), r"pass images\[:, None\]"),
        (nn.Conv2d(3, 4, 3), (8, 8), r"pass images\[:, None\]"),
        (
            nn.Conv1d(1, 4, 3),
            (8,),
            r"needs \(channels, length\), but gets shape \(8,\): pass signals\[:, None\]",
        ),
        (nn.Conv2d(3, 4, 3), (8, 8, 3), r"3 channels, but gets shape \(8, 8, 3\): put the channels first"),
        (nn.Conv2d(3, 4, 3), (1, 8, 8), r"3 channels, but gets shape \(1, 8, 8\): change its in_channels"),
        (nn.Linear(9, 4), (8,), r"0 \(Linear\) needs 9 features, but gets 8: change its in_features"),
        (nn.Linear(64, 4), (8, 8), r"64 features, but gets shape \(8, 8\): put nn.Flatten\(\) before it"),
    ],
)
def test_the_layer_that_does_not_fit_is_named(
    layer: nn.Module, shape: tuple[int, ...], complaint: str
) -> None:
    with pytest.raises(ModelError, match=complaint):
        check_fit(nn.Sequential(layer), clients(*shape))


def test_a_layer_that_gets_no_samples_is_not_blamed() -> None:
    flat = nn.Sequential(nn.Flatten(0), nn.Linear(FEATURES, CLASSES))
    with pytest.raises(ModelError, match=r"does not fit samples of shape \(8,\) \(RuntimeError: "):
        check_fit(flat, clients(FEATURES))


def test_a_lazy_layer_must_have_run_before() -> None:
    lazy = nn.Sequential(nn.Flatten(), nn.LazyLinear(CLASSES))
    with pytest.raises(ModelError, match=r"1 \(LazyLinear\): its weights have no shape yet; run the model"):
        supernetwork(lazy, seed=1, fix=True)
    with pytest.raises(ModelError, match="has no shape yet"):
        FedAvg(lazy, seed=1)
    lazy(torch.zeros(2, FEATURES))
    check_fit(lazy, clients(FEATURES))
    assert supernetwork(lazy, seed=1, fix=True).layout.size == FEATURES * CLASSES
