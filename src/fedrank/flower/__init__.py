"""Federated Rank Learning over a real network, with Flower."""

try:
    import flwr  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "Flower is not installed; run: pip install 'fedrank[flower]'", name="flwr"
    ) from error

from fedrank.flower.client import Voter, voting
from fedrank.flower.strategy import RankVote

__all__ = ["RankVote", "Voter", "voting"]
