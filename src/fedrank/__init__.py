"""Federated Rank Learning: clients rank the edges of a random network, the server takes a vote.

Names are imported when they are first used, so that `import fedrank` does not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedrank.callbacks import BestCheckpoint as BestCheckpoint
    from fedrank.callbacks import Callback as Callback
    from fedrank.callbacks import EarlyStopping as EarlyStopping
    from fedrank.comparing import compare as compare
    from fedrank.data import IID as IID
    from fedrank.data import ByWriter as ByWriter
    from fedrank.data import Dirichlet as Dirichlet
    from fedrank.data import Federation as Federation
    from fedrank.data import Preprocess as Preprocess
    from fedrank.data import Shards as Shards
    from fedrank.data import samples as samples
    from fedrank.data import split as split
    from fedrank.data.own import federation as federation
    from fedrank.diagnosis import Diagnosis as Diagnosis
    from fedrank.diagnosis import diagnose as diagnose
    from fedrank.errors import FedrankError as FedrankError
    from fedrank.errors import FedrankWarning as FedrankWarning
    from fedrank.experiment.adversary import Adversary as Adversary
    from fedrank.experiment.rounds import Round as Round
    from fedrank.methods import FRL as FRL
    from fedrank.methods import FedAvg as FedAvg
    from fedrank.methods import SignSGD as SignSGD
    from fedrank.methods import TopK as TopK
    from fedrank.nn import LocalTraining as LocalTraining
    from fedrank.nn import Supernetwork as Supernetwork
    from fedrank.nn import supernetwork as supernetwork
    from fedrank.report.comparison import Comparison as Comparison
    from fedrank.run import Run as Run
    from fedrank.run import load as load
    from fedrank.training import train as train
    from fedrank.tuning import Tuning as Tuning
    from fedrank.tuning import tune as tune

__version__ = "0.1.0"

_HOMES = {
    "Adversary": "fedrank.experiment.adversary",
    "BestCheckpoint": "fedrank.callbacks",
    "Callback": "fedrank.callbacks",
    "Comparison": "fedrank.report.comparison",
    "EarlyStopping": "fedrank.callbacks",
    "FedAvg": "fedrank.methods",
    "SignSGD": "fedrank.methods",
    "TopK": "fedrank.methods",
    "FRL": "fedrank.methods",
    "IID": "fedrank.data",
    "ByWriter": "fedrank.data",
    "Diagnosis": "fedrank.diagnosis",
    "Dirichlet": "fedrank.data",
    "Federation": "fedrank.data",
    "FedrankError": "fedrank.errors",
    "FedrankWarning": "fedrank.errors",
    "LocalTraining": "fedrank.nn",
    "Preprocess": "fedrank.data",
    "Round": "fedrank.experiment.rounds",
    "Run": "fedrank.run",
    "load": "fedrank.run",
    "Shards": "fedrank.data",
    "Supernetwork": "fedrank.nn",
    "compare": "fedrank.comparing",
    "federation": "fedrank.data.own",
    "diagnose": "fedrank.diagnosis",
    "samples": "fedrank.data",
    "split": "fedrank.data",
    "supernetwork": "fedrank.nn",
    "train": "fedrank.training",
    "Tuning": "fedrank.tuning",
    "tune": "fedrank.tuning",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedrank' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
