import pytest
import torch

from fedrank.nn import NETWORKS, supernetwork

LENET = [288, 18432, 1605632]
CONV8 = [1728, 36864, 73728, 147456, 294912, 589824, 1179648, 2359296, 524288, 65536, 2560]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("lenet", [*LENET, 1280]), ("lenet-62", [*LENET, 7936]), ("conv8", CONV8)],
)
def test_layers_have_the_papers_parameter_counts(name: str, sizes: list[int]) -> None:
    network = supernetwork(NETWORKS[name](), seed=1)
    assert [layer.size for layer in network.layout] == sizes


@pytest.mark.parametrize(
    ("name", "edges"),
    # Ramanujan et al. (2020): Conv2 4.3M, Conv4 2.4M, Conv6 2.3M edges.
    [("conv2", 4_300_992), ("conv4", 2_425_024), ("conv6", 2_261_184)],
)
def test_smaller_conv_nets_have_the_published_size(name: str, edges: int) -> None:
    assert supernetwork(NETWORKS[name](), seed=1).layout.size == edges


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_maps_images_to_logits(name: str) -> None:
    shape = {"lenet-digits": (1, 8, 8), "lenet": (1, 28, 28), "lenet-62": (1, 28, 28)}.get(name, (3, 32, 32))
    logits = NETWORKS[name]()(torch.zeros(2, *shape))
    assert logits.shape == (2, 62 if name == "lenet-62" else 10)
