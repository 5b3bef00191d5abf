"""What malicious clients send instead of what they have learned. Each attack is one function."""

from fedrank.attacks.base import ATTACKS, Attack, View
from fedrank.attacks.reverse import reverse

__all__ = ["ATTACKS", "Attack", "View", "reverse"]
