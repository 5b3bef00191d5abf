"""Federated algorithms, each one file that reads like its pseudo-code."""

from fedrank.methods.base import (
    ClientUpdate,
    Collector,
    Method,
    State,
    check_clients,
    check_method,
    knowing,
    weighing,
)
from fedrank.methods.fedavg import FedAvg
from fedrank.methods.frl import FRL, FRLState
from fedrank.methods.signsgd import SignSGD
from fedrank.methods.topk import TopK
from fedrank.methods.weights import WeightState

METHODS = {"frl": FRL, "fedavg": FedAvg, "signsgd": SignSGD, "topk": TopK}
"""The methods by the names they have in a configuration."""

__all__ = [
    "FRL",
    "METHODS",
    "ClientUpdate",
    "Collector",
    "FRLState",
    "FedAvg",
    "Method",
    "SignSGD",
    "State",
    "TopK",
    "WeightState",
    "check_clients",
    "check_method",
    "knowing",
    "weighing",
]
