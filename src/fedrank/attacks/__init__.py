"""What malicious clients send instead of what they have learned. Each attack is one function."""

from fedrank.attacks import data, rankings, vectors, vem, weights
from fedrank.attacks.base import (
    ATTACKS,
    Attack,
    Knowledge,
    Target,
    Update,
    View,
    attack,
    attack_named,
    data_poisoning,
)

__all__ = [
    "ATTACKS",
    "Attack",
    "Knowledge",
    "Target",
    "Update",
    "View",
    "attack",
    "attack_named",
    "data",
    "data_poisoning",
    "rankings",
    "vectors",
    "vem",
    "weights",
]
