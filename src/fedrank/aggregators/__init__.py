"""Aggregation rules and the mixings that go before them."""

from fedrank.aggregators import rules
from fedrank.aggregators.base import AGGREGATORS, LISTED, MIXINGS, Chain, Listed, aggregator, mixing

__all__ = ["AGGREGATORS", "LISTED", "MIXINGS", "Chain", "Listed", "aggregator", "mixing", "rules"]
