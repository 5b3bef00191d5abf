"""Aggregation rules and the mixings that go before them."""

from fedrank.aggregators import rules
from fedrank.aggregators.base import RULES, Chain, Role, Rule, aggregator, grouping, mixing, weighing

__all__ = ["RULES", "Chain", "Role", "Rule", "aggregator", "grouping", "mixing", "rules", "weighing"]
