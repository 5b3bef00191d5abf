import pickle

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedrank.errors import ModelError
from fedrank.nn import MaskedNetwork, supernetwork

BIAS_FREE = nn.Sequential(nn.Conv1d(3, 4, 3, bias=False), nn.Flatten(), nn.Linear(24, 5, bias=False))


def test_linear_and_all_convolutions_are_ranked() -> None:
    model = nn.ModuleDict(
        {
            "linear": nn.Linear(3, 4, bias=False),
            "conv1": nn.Conv1d(2, 4, 3, bias=False),
            "conv2": nn.Conv2d(2, 4, 3, groups=2, stride=2, padding=1, bias=False),
            "conv3": nn.Conv3d(2, 4, 3, dilation=2, bias=False),
        }
    )
    layout = supernetwork(model, seed=1).layout
    assert [(layer.name, layer.shape) for layer in layout] == [
        ("linear.weight", (4, 3)),
        ("conv1.weight", (4, 2, 3)),
        ("conv2.weight", (4, 1, 3, 3)),
        ("conv3.weight", (4, 2, 3, 3, 3)),
    ]


def test_the_users_model_is_not_changed() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    supernetwork(model, seed=1, fix=True)
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


class Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 4)
        self.scale = nn.Parameter(torch.ones(4))


@pytest.mark.parametrize(
    ("model", "complaint"),
    [
        (nn.Linear(2, 2), r"the model \(Linear\): biases are not ranked.*bias=False"),
        (nn.Sequential(nn.Conv2d(1, 1, 1)), r"0 \(Conv2d\): biases"),
        (nn.Sequential(nn.BatchNorm2d(3)), r"learned outside.*use GroupNorm\(1, 3, affine=False\)"),
        (
            nn.Sequential(nn.BatchNorm1d(3, affine=False, track_running_stats=False)),
            "mix the samples of a batch",
        ),
        (nn.Sequential(nn.InstanceNorm2d(3, affine=True)), "track_running_stats=False"),
        (nn.Sequential(nn.LayerNorm(3)), "elementwise_affine=False"),
        (nn.Sequential(nn.GroupNorm(1, 3)), r"switch them off \(affine=False\)"),
        (Embedded(), r"words \(Embedding\).*one-hot"),
        (Embedded(), r"the model \(Embedded\): its parameters \(scale\)"),
        (nn.MultiheadAttention(4, 2), "scaled_dot_product_attention"),
        (nn.LSTM(3, 4), r"its parameters \(weight_ih_l0"),
        (nn.ConvTranspose2d(1, 1, 2, bias=False), "not edges of a layer"),
        (nn.Sequential(nn.ReLU()), "no layer whose edges can be ranked"),
        (
            nn.utils.parametrizations.weight_norm(nn.Linear(2, 2, bias=False)),
            "parametrizations",
        ),
    ],
)
def test_what_cannot_be_ranked_is_refused_with_reason_and_remedy(model: nn.Module, complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        supernetwork(model, seed=1)


def test_attention_is_refused_once_not_for_each_of_its_parts() -> None:
    with pytest.raises(ModelError) as refusal:
        supernetwork(nn.Sequential(nn.MultiheadAttention(4, 2), nn.Linear(4, 2, bias=False)), seed=1)
    assert str(refusal.value).count("\n") == 1


def test_fix_removes_biases_and_makes_normalization_stateless() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
        nn.GroupNorm(2, 4),
        nn.Flatten(),
        nn.Linear(144, 6),
        nn.LayerNorm(6),
    )
    network = supernetwork(model, seed=1, fix=True)
    assert [layer.name for layer in network.layout] == ["0.weight", "5.weight"]
    assert not list(network.skeleton.buffers())
    assert isinstance(network.skeleton[1], nn.GroupNorm)
    model = network.subnetwork(network.initial_ranking)
    images = torch.randn(2, 1, 8, 8)
    torch.testing.assert_close(model(images)[:1], model(images[:1]))  # samples do not see each other


def test_fix_does_not_hide_what_it_cannot_mend() -> None:
    with pytest.raises(ModelError, match="Embedding"):
        supernetwork(nn.Sequential(nn.Embedding(3, 3), nn.Linear(3, 3)), seed=1, fix=True)


@pytest.mark.parametrize("keep", [0, -0.5, 1.5, float("nan")])
def test_keep_must_be_more_than_0_and_at_most_1(keep: float) -> None:
    with pytest.raises(ModelError, match="more than 0 and at most 1" if keep else "without edges"):
        supernetwork(BIAS_FREE, seed=1, keep=keep)


@pytest.mark.parametrize("mode", ["signed", "magnitude", "authors"])
def test_to_keep_all_edges_is_to_have_the_random_network(mode: str) -> None:
    network = supernetwork(BIAS_FREE, seed=1, keep=1.0, scores=mode)
    model = network.subnetwork(network.initial_ranking)
    flat = np.concatenate([weight.flatten().numpy() for weight in model.parameters()])
    assert flat.tobytes() == network.weights.tobytes()


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_has_32_bits(seed: int) -> None:
    with pytest.raises(ModelError, match="32 bits"):
        supernetwork(BIAS_FREE, seed=seed)


def test_unknown_choices_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ModelError, match="kaiming-normal"):
        supernetwork(BIAS_FREE, seed=1, weights="xavier")
    with pytest.raises(ModelError, match="signed, magnitude, authors"):
        supernetwork(BIAS_FREE, seed=1, scores="absolute")


@pytest.mark.parametrize("mode", ["signed", "magnitude", "authors"])
def test_subnetwork_is_an_ordinary_module_with_masked_weights(mode: str) -> None:
    network = supernetwork(BIAS_FREE, seed=1, keep=0.3, scores=mode)
    ranking = network.initial_ranking
    model = network.subnetwork(ranking)
    assert type(model) is nn.Sequential
    assert not model.training
    mask = network.mask(ranking)
    for layer, weight in zip(network.layout, model.parameters(), strict=True):
        assert not weight.requires_grad
        flat = weight.flatten().numpy()
        assert np.count_nonzero(flat) == layer.size - int(0.7 * layer.size)
        assert np.array_equal(flat, network.weights[layer.edges] * mask[layer.edges])


def test_the_mask_of_the_authors_mode_is_both_tails_of_the_ranking() -> None:
    model = nn.Linear(300, 100, bias=False)
    signed = supernetwork(model, seed=1, keep=0.5)
    authors = supernetwork(model, seed=1, keep=0.5, scores="authors")
    ranking = signed.initial_ranking
    reverse = np.concatenate([ranking[layer.edges][::-1] for layer in signed.layout])
    assert np.mean(signed.mask(ranking) == signed.mask(reverse)) < 0.01
    assert np.mean(authors.mask(ranking) == authors.mask(reverse)) > 0.98


def test_the_subnetwork_is_what_training_sees() -> None:
    """The masked network of edge-popup and the final module compute the same function."""
    for mode in ("signed", "magnitude", "authors"):
        network = supernetwork(BIAS_FREE, seed=9, scores=mode)
        ranking = network.initial_ranking
        inputs = torch.randn(4, 3, 8)
        masked = MaskedNetwork(network, torch.device("cpu"))
        masked.begin(network.assign_scores(ranking))
        logits = masked.forward(inputs)
        torch.testing.assert_close(logits, network.subnetwork(ranking)(inputs))


def test_a_pickled_supernetwork_carries_the_seed_not_the_weights() -> None:
    network = supernetwork(nn.Linear(1000, 100, bias=False), seed=4)
    expected = network.weights.tobytes()
    pickled = pickle.dumps(network)
    assert len(pickled) < 10_000
    copy = pickle.loads(pickled)
    assert "weights" not in copy.__dict__
    assert copy.weights.tobytes() == expected


def test_layers_that_share_their_weight_are_one_layer() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4, bias=False)
            self.second = nn.Linear(4, 4, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x))

    network = supernetwork(Tied(), seed=1)
    assert len(network.layout) == 1
    model = network.subnetwork(network.initial_ranking)
    assert torch.equal(model.first.weight, model.second.weight)
