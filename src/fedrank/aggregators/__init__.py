"""Aggregators: rules that make one update of many, and pre-aggregators that go before them."""

import fedrank.aggregators.measured
import fedrank.aggregators.rules  # noqa: F401  (register the rules)
from fedrank.aggregators.base import (
    RULES,
    Aggregator,
    AssumedMalicious,
    Role,
    Rule,
    RuleFunction,
    aggregator,
    clipping,
    grouping,
    preaggregator,
    weighting,
)

__all__ = [
    "RULES",
    "Aggregator",
    "AssumedMalicious",
    "Role",
    "Rule",
    "RuleFunction",
    "aggregator",
    "clipping",
    "grouping",
    "preaggregator",
    "weighting",
]
