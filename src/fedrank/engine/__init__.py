"""Where clients train: in this process or in workers of this machine."""

from fedrank.engine.local import Collected, Engine, local_engine
from fedrank.engine.task import Predictions

__all__ = ["Collected", "Engine", "Predictions", "local_engine"]
