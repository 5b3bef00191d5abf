"""Aggregators: rules that make one update of many, and pre-aggregators that go before them."""

import fedrank.aggregators.measured
import fedrank.aggregators.rules  # noqa: F401  (register the rules)
from fedrank.aggregators.base import (
    ASSUMPTIONS,
    RULES,
    Aggregator,
    AssumedMalicious,
    Role,
    Rule,
    RuleFunction,
    aggregator,
    clipping,
    grouping,
    is_assumption,
    preaggregator,
    weighting,
)

__all__ = [
    "ASSUMPTIONS",
    "RULES",
    "Aggregator",
    "AssumedMalicious",
    "Role",
    "Rule",
    "RuleFunction",
    "aggregator",
    "clipping",
    "grouping",
    "is_assumption",
    "preaggregator",
    "weighting",
]
