"""Where clients train: in this process or in workers of this machine."""

from fedrank.engine.local import Collected, Engine, default_workers, local_engine
from fedrank.engine.task import Predictions

__all__ = ["Collected", "Engine", "Predictions", "default_workers", "local_engine"]
