"""Federated algorithms, each one file that reads like its pseudo-code."""

from fedrank.methods.base import Collector, Learned, Method, State, Traffic
from fedrank.methods.frl import FRL, FRLState

__all__ = ["FRL", "Collector", "FRLState", "Learned", "Method", "State", "Traffic"]
