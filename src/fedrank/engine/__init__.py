"""Engines that train clients, in this process or in worker processes on this machine."""

from fedrank.engine.local import Engine, EngineRound, default_workers, local_engine
from fedrank.engine.sizing import check_device, suitable_workers
from fedrank.engine.task import Predictions

__all__ = [
    "Engine",
    "EngineRound",
    "Predictions",
    "check_device",
    "default_workers",
    "local_engine",
    "suitable_workers",
]
