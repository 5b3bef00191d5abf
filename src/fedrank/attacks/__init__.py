"""What malicious clients send instead of what they have learned. Each attack is one function."""

import fedrank.attacks.data
import fedrank.attacks.planned
import fedrank.attacks.rankings
import fedrank.attacks.vectors
import fedrank.attacks.vem
import fedrank.attacks.weights  # noqa: F401  (each registers its attacks)
from fedrank.attacks.base import (
    ATTACKS,
    Attack,
    Craft,
    Knowledge,
    Oracle,
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
    "Craft",
    "Knowledge",
    "Oracle",
    "Target",
    "Update",
    "View",
    "attack",
    "attack_named",
    "data_poisoning",
]
