"""Federated algorithms, each one file that reads like its pseudo-code."""

from fedrank.methods.base import Collector, Method, State, Traffic, Update
from fedrank.methods.frl import FRL, FRLState

__all__ = ["FRL", "Collector", "FRLState", "Method", "State", "Traffic", "Update"]
