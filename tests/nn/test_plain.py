import copy

import numpy as np
import pytest
import torch
from torch import nn

from fedrank.errors import ModelError
from fedrank.nn import LocalTraining, PlainNetwork
from fedrank.nn.weights import WeightNetwork, train_weights


def with_everything() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.LayerNorm(144), nn.Linear(144, 10)
    )


def test_a_network_holds_all_parameters_and_running_statistics_and_starts_with_the_modules_own() -> None:
    module = with_everything()
    network = PlainNetwork.of(module, seed=1)
    named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    expected = {name for name in named if not name.endswith("num_batches_tracked")}
    assert {layer.name for layer in network.layout} == expected
    for layer in network.layout:
        assert network.weights[layer.edges].tolist() == named[layer.name].detach().reshape(-1).tolist()
    again = network.with_weights(network.weights).state_dict()
    assert all(torch.equal(again[name], value) for name, value in module.state_dict().items())


def test_training_equals_an_ordinary_loop_with_biases_and_batch_statistics() -> None:
    rng = np.random.default_rng(3)
    images, labels = rng.normal(size=(16, 1, 8, 8)).astype(np.float32), np.arange(16) % 10

    class Once:
        labels = np.arange(16) % 10

        def batches(self, _size: int, _rng: np.random.Generator):  # type: ignore[no-untyped-def]
            yield images, labels

    module = with_everything()
    network = PlainNetwork.of(module, seed=1)
    local = LocalTraining(epochs=2, learning_rate=0.05, balanced=False)
    trained = train_weights(WeightNetwork(network, torch.device("cpu")), network.weights, Once(), rng, local)
    ours = network.with_weights(trained.weights).state_dict()

    theirs = copy.deepcopy(module).train()
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    for rate in (0.05, 0.025):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        nn.functional.cross_entropy(theirs(torch.from_numpy(images)), torch.from_numpy(labels)).backward()
        optimizer.step()
    for name, value in theirs.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            torch.testing.assert_close(ours[name], value, rtol=1e-4, atol=1e-5)


def test_a_single_sample_is_normalized_by_the_running_statistics() -> None:
    module = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    module[0].running_mean = torch.tensor([1.0, 2.0, 3.0])
    network = PlainNetwork.of(module, seed=1)
    working = WeightNetwork(network, torch.device("cpu"))
    working.begin(network.weights)
    one = torch.tensor([[4.0, 5.0, 6.0]])
    torch.testing.assert_close(working.forward(one), module.eval()(one))
    assert working.flat.tolist() == network.weights.tolist()


def test_frozen_parameters_stay_and_are_not_sent() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    module[0].requires_grad_(False)
    network = PlainNetwork.of(module, seed=1)
    assert [layer.name for layer in network.layout] == ["1.weight", "1.bias"]
    model = network.with_weights(np.zeros(10, np.float32))
    assert torch.equal(model[0].weight, module[0].weight)  # type: ignore[index]


def test_numbers_become_32_bit_floats_and_the_module_stays_as_it_is() -> None:
    module = nn.Linear(3, 2).double()
    assert PlainNetwork.of(module, seed=1).with_weights(np.ones(8, np.float32)).weight.dtype == torch.float32
    assert module.weight.dtype == torch.float64


@pytest.mark.parametrize(
    ("module", "complaint"),
    [
        (nn.Flatten(), "no parameters to train"),
        (nn.Linear(2, 2).requires_grad_(False), "no parameters to train"),
        (nn.LazyLinear(2), "has no shape yet"),
        (nn.Linear(2, 2, dtype=torch.complex64), "complex64"),
    ],
)
def test_modules_that_cannot_be_trained_are_refused(module: nn.Module, complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        PlainNetwork.of(module, seed=1)


def test_a_seed_has_32_bits() -> None:
    with pytest.raises(ModelError, match="32 bits"):
        PlainNetwork.of(nn.Linear(2, 2), seed=-1)
