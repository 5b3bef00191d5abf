import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedrank.data import samples
from fedrank.nn import MaskedNetwork, supernetwork
from fedrank.nn.signals import layer_signals, spread


def test_signals_are_those_of_the_network_that_clients_train() -> None:
    model = nn.Sequential(
        nn.Conv1d(2, 6, 3, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3, bias=False)
    )
    network = supernetwork(model, seed=5, keep=0.5)
    rng = np.random.default_rng(1)
    batch = samples(rng.normal(size=(20, 2, 8)), np.arange(20) % 3)

    trained = MaskedNetwork(network, torch.device("cpu"))
    trained.begin(network.initial_scores)
    inputs = torch.from_numpy(batch.preprocess(batch.inputs))
    logits = trained.forward(inputs)
    trained.backward(cross_entropy(logits, torch.from_numpy(batch.labels)))
    gradients = [parameter.grad.numpy().reshape(-1) for parameter in trained.parameters]

    (first, last), outputs = layer_signals(network, batch)
    assert (first.kind, first.shape, first.edges, first.kept, first.fan_in) == (
        "Conv1d",
        (6, 2, 3),
        36,
        18,
        6,
    )
    convolved = trained.module[0](inputs).detach().numpy()
    np.testing.assert_allclose(first.outputs, np.sqrt(np.mean(convolved.var(axis=0))), rtol=1e-5)
    np.testing.assert_allclose(last.outputs, np.sqrt(np.mean(logits.detach().numpy().var(axis=0))), rtol=1e-5)
    assert spread(outputs) == last.outputs
    for layer, signal, gradient in zip(network.layout, (first, last), gradients, strict=True):
        expected = np.std(gradient * network.weights[layer.edges])
        np.testing.assert_allclose(signal.gradient, expected, rtol=1e-4)


class Unusual(nn.Module):
    """Uses one layer's weight without calling the layer, and another layer not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(4, 3, bias=False)
        self.unused = nn.Linear(4, 3, bias=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs @ self.used.weight.T


def test_a_layer_that_is_not_called_or_not_used_is_described_all_the_same() -> None:
    batch = samples(np.random.default_rng(1).normal(size=(9, 4)), np.arange(9) % 3)
    (used, unused), _ = layer_signals(supernetwork(Unusual(), seed=5), batch)
    assert used.outputs is None
    assert used.gradient > 0
    assert unused.outputs is None
    assert unused.gradient == 0
