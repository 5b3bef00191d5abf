from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedrank.errors import ModelError, TrainingError
from fedrank.nn import LocalTraining, MaskedNetwork, Supernetwork, edge_popup, supernetwork
from fedrank.nn.training import cosine

CPU = torch.device("cpu")


class Fixed:
    """Samples in a fixed order."""

    def __init__(self, inputs: np.ndarray, labels: np.ndarray) -> None:
        self.inputs, self.labels = inputs, labels

    def batches(self, batch_size: int, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for begin in range(0, len(self.labels), batch_size):
            yield self.inputs[begin : begin + batch_size], self.labels[begin : begin + batch_size]


def small_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, stride=2, bias=False),
        nn.ReLU(),
        nn.Conv2d(4, 6, 3, groups=2, dilation=2, padding=2, bias=False),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(6 * 9, 3, bias=False),
    )


def small_data(count: int = 20) -> Fixed:
    rng = np.random.default_rng(1)
    return Fixed(rng.normal(size=(count, 2, 6, 6)).astype(np.float32), rng.integers(0, 3, count))


def gradient_of(masked: MaskedNetwork, loss: Tensor) -> np.ndarray:
    """The scores' gradient: what a step of rate 1 without momentum and decay subtracts."""
    before = masked.scores.clone()
    masked.backward(loss)
    masked.descend(rate=1.0, momentum=0.0, decay=0.0)
    return (before - masked.scores).numpy()


def test_gradient_of_a_hand_computed_net() -> None:
    """Two inputs, one neuron per class: dL/ds_uv = dL/dI_v * Z_u * W_uv, masked or not."""
    network = supernetwork(nn.Linear(2, 2, bias=False), seed=3, keep=0.5)
    masked = MaskedNetwork(network, CPU)
    masked.begin(np.array([0.9, -0.1, 0.2, 0.8], np.float32))
    w = network.weights  # edges (v, u): 00, 01, 10, 11; the top two are 00 and 11
    z = np.array([1.5, -2.0])
    logits = masked.forward(torch.tensor(z[None], dtype=torch.float32))
    inputs_of_neurons = np.array([w[0] * z[0], w[3] * z[1]])
    np.testing.assert_allclose(logits[0].detach().numpy(), inputs_of_neurons, rtol=1e-6)

    p = np.exp(inputs_of_neurons) / np.exp(inputs_of_neurons).sum()
    dl_di = p - np.array([1.0, 0.0])
    expected = np.outer(dl_di, z).reshape(-1) * w
    gradient = gradient_of(masked, cross_entropy(logits, torch.tensor([0])))
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("mode", ["signed", "magnitude", "authors"])
def test_gradient_equals_autograd_through_a_dense_oracle(mode: str) -> None:
    network = supernetwork(small_net(), seed=5, keep=0.3, scores=mode)
    masked = MaskedNetwork(network, CPU)
    masked.begin(network.initial_scores)
    data = small_data(4)
    loss = cross_entropy(masked.forward(torch.tensor(data.inputs)), torch.tensor(data.labels))
    gradient = gradient_of(masked, loss)

    oracle_scores = torch.tensor(network.initial_scores, requires_grad=True)
    logits = dense_oracle(network, oracle_scores, torch.tensor(data.inputs), by_magnitude=mode != "signed")
    oracle_loss = cross_entropy(logits, torch.tensor(data.labels))
    oracle_loss.backward()
    assert float(loss.detach()) == pytest.approx(float(oracle_loss.detach()), rel=1e-5)
    assert oracle_scores.grad is not None
    np.testing.assert_allclose(gradient, oracle_scores.grad.numpy(), rtol=1e-3, atol=1e-6)


def dense_oracle(network: Supernetwork, scores: Tensor, inputs: Tensor, by_magnitude: bool) -> Tensor:
    """Edge-popup as its authors describe it: sort, mask, identity in the backward pass."""
    weights = {}
    for layer in network.layout:
        s = scores[layer.edges]
        h = s.abs() if by_magnitude else s
        order = torch.sort(h.detach(), stable=True).indices
        mask = torch.ones(layer.size)
        mask[order[: int((1 - network.keep) * layer.size)]] = 0
        straight_through = mask + h - h.detach()
        weights[layer.name] = (torch.tensor(network.weights[layer.edges]) * straight_through).view(
            layer.shape
        )
    return torch.func.functional_call(network.skeleton, weights, (inputs,))


@pytest.mark.parametrize("balanced", [False, True])
def test_training_equals_a_plain_loop_with_torchs_optimizer_and_schedule(balanced: bool) -> None:
    network = supernetwork(small_net(), seed=5)
    local = LocalTraining(3, learning_rate=0.3, weight_decay=1e-2, balanced=balanced)
    data = small_data()
    trained = edge_popup(
        MaskedNetwork(network, CPU), network.initial_scores, data, np.random.default_rng(0), local
    )

    known = data.labels.tolist()
    shares = [(1 + known.count(label)) / (len(known) + 3) for label in range(3)]
    offsets = torch.tensor(shares).log() if balanced else torch.zeros(3)
    scores = torch.tensor(network.initial_scores, requires_grad=True)
    optimizer = torch.optim.SGD([scores], lr=0.3, momentum=0.9, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3)
    losses = []
    for _ in range(3):
        for inputs, labels in data.batches(8, np.random.default_rng(0)):
            optimizer.zero_grad()
            logits = dense_oracle(network, scores, torch.tensor(inputs), False)
            loss = cross_entropy(logits + offsets, torch.tensor(labels))
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        schedule.step()
    np.testing.assert_allclose(trained.scores, scores.detach().numpy(), rtol=1e-4, atol=1e-5)
    assert trained.loss == pytest.approx(np.mean(losses), rel=1e-4)


def test_a_client_with_a_single_label_does_not_forget_the_others_as_fast() -> None:
    """The balanced loss has a smaller gradient where only the client's share of labels is to be learned."""
    network, rng = supernetwork(small_net(), seed=5), np.random.default_rng(0)
    data = small_data()
    data.labels = np.zeros_like(data.labels)

    def moved(balanced: bool) -> float:
        masked, local = MaskedNetwork(network, CPU), LocalTraining(1, balanced=balanced)
        trained = edge_popup(masked, network.initial_scores, data, rng, local).scores
        return float(np.abs(trained - network.initial_scores).mean())

    assert 0 < moved(balanced=True) < moved(balanced=False) / 2


def test_training_does_not_touch_the_weights_or_the_initial_scores() -> None:
    network = supernetwork(small_net(), seed=5)
    weights, scores = network.weights.copy(), network.initial_scores.copy()
    edge_popup(
        MaskedNetwork(network, CPU),
        network.initial_scores,
        small_data(),
        np.random.default_rng(0),
        LocalTraining(),
    )
    assert np.array_equal(network.weights, weights)
    assert np.array_equal(network.initial_scores, scores)


def test_a_learning_rate_that_blows_up_is_reported() -> None:
    network = supernetwork(small_net(), seed=5)
    local = LocalTraining(epochs=30, learning_rate=1e38)
    with pytest.raises(TrainingError, match="learning rate"):
        edge_popup(
            MaskedNetwork(network, CPU), network.initial_scores, small_data(), np.random.default_rng(0), local
        )


def test_dropout_is_keyed_by_the_generator_not_by_torchs_global_stream() -> None:
    network = supernetwork(nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(72, 3, bias=False)), seed=1)

    def train(seed: int) -> bytes:
        torch.rand(1)
        rng = np.random.default_rng(seed)
        result = edge_popup(
            MaskedNetwork(network, CPU), network.initial_scores, small_data(), rng, LocalTraining()
        )
        return result.scores.tobytes()

    assert train(1) == train(1)
    assert train(1) != train(2)


def test_buffers_do_not_carry_anything_from_one_client_to_the_next() -> None:
    class Remembering(nn.Module):
        mean: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(72, 3, bias=False)
            self.register_buffer("mean", torch.zeros(72))

        def forward(self, x: Tensor) -> Tensor:
            self.mean = 0.5 * self.mean + 0.5 * x.flatten(1).mean(0).detach()
            return self.inner(x.flatten(1) - self.mean)

    network = supernetwork(Remembering(), seed=1)
    masked = MaskedNetwork(network, CPU)

    def train(count: int) -> bytes:
        rng = np.random.default_rng(1)
        data = small_data(count)
        return edge_popup(masked, network.initial_scores, data, rng, LocalTraining()).scores.tobytes()

    first = train(10)
    train(20)
    assert train(10) == first


def test_a_layer_that_is_not_used_is_named() -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used = nn.Linear(72, 3, bias=False)
            self.idle = nn.Linear(3, 3, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x.flatten(1))

    network = supernetwork(Unused(), seed=1)
    with pytest.raises(ModelError, match=r"idle\.weight.*does not affect"):
        edge_popup(
            MaskedNetwork(network, CPU),
            network.initial_scores,
            small_data(),
            np.random.default_rng(0),
            LocalTraining(),
        )


def test_cosine_schedule_starts_at_the_rate_and_falls() -> None:
    assert cosine(0.4, 0, 2) == 0.4
    assert cosine(0.4, 1, 2) == pytest.approx(0.2)
    assert [cosine(1.0, e, 5) for e in range(5)] == sorted(
        (cosine(1.0, e, 5) for e in range(5)), reverse=True
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_training_on_cuda_agrees_with_the_cpu() -> None:
    network = supernetwork(small_net(), seed=5)
    results = [
        edge_popup(
            MaskedNetwork(network, torch.device(device)),
            network.initial_scores,
            small_data(),
            np.random.default_rng(0),
            LocalTraining(),
        ).scores
        for device in ("cpu", "cuda")
    ]
    np.testing.assert_allclose(results[0], results[1], rtol=1e-2, atol=1e-3)
