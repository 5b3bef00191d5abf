"""Small methods that several rooms are tested with."""

from torch import nn

from fedrank.methods import FRL
from fedrank.nn import supernetwork


def small_net() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 40, bias=False), nn.ReLU(), nn.Linear(40, 10, bias=False)
    )


def small_frl(**options: object) -> FRL:
    scores = options.pop("scores", "signed")
    return FRL(supernetwork(small_net(), seed=11, keep=0.5, scores=scores), **options)  # type: ignore[arg-type]
