"""Where clients train: in this process or in workers of this machine."""

from fedrank.engine.local import Engine, EngineRound, default_workers, local_engine
from fedrank.engine.task import Predictions

__all__ = ["Engine", "EngineRound", "Predictions", "default_workers", "local_engine"]
