"""The networks of the paper's table of model architectures, and a small one for 8x8 digits.

No biases and no normalization: training only decides which edges to keep. Pooling comes before ReLU,
which gives the same result as the reverse order and leaves ReLU a quarter of the work.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn


class LeNet(nn.Module):
    """Two convolutions and two linear layers, for grayscale images of `side` x `side` pixels."""

    def __init__(self, classes: int = 10, side: int = 28) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1, bias=False),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1, bias=False),
            nn.MaxPool2d(2),
            nn.ReLU(),
        )
        self.linear = nn.Sequential(
            nn.Flatten(),
            nn.Linear(64 * (side // 2) ** 2, 128, bias=False),
            nn.ReLU(),
            nn.Linear(128, classes, bias=False),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of a batch of images."""
        logits: Tensor = self.linear(self.convolutions(images))
        return logits


class ConvNet(nn.Module):
    """Conv2, Conv4, Conv6 or Conv8 (Ramanujan et al., 2020), for 32 x 32 color images."""

    WIDTHS = (64, 128, 256, 512)

    def __init__(self, depth: int, classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels, side = 3, 32
        for width in self.WIDTHS[: depth // 2]:
            layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.ReLU()]
            layers += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.MaxPool2d(2), nn.ReLU()]
            channels, side = width, side // 2
        self.convolutions = nn.Sequential(*layers)
        self.linear = nn.Sequential(
            nn.Flatten(),
            nn.Linear(channels * side * side, 256, bias=False),
            nn.ReLU(),
            nn.Linear(256, 256, bias=False),
            nn.ReLU(),
            nn.Linear(256, classes, bias=False),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of a batch of images."""
        logits: Tensor = self.linear(self.convolutions(images))
        return logits


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "lenet-digits": lambda: LeNet(side=8),
    "lenet": LeNet,
    "lenet-62": lambda: LeNet(classes=62),
    "conv2": lambda: ConvNet(2),
    "conv4": lambda: ConvNet(4),
    "conv6": lambda: ConvNet(6),
    "conv8": lambda: ConvNet(8),
}
