"""Short ways to run rounds in tests."""

from typing import Any

import numpy as np

from fedrank.data import Federation
from fedrank.engine import local_engine
from fedrank.experiment.adversary import Adversary
from fedrank.experiment.rounds import Round, RunSetup, Schedule, run_rounds
from fedrank.methods import Method
from fedrank.methods.spaces import space_of


def rounds_of(
    method: Method,
    federation: Federation,
    schedule: Schedule,
    adversary: Adversary | None = None,
    *,
    state: Any = None,
    workers: int = 1,
) -> list[tuple[Any, Round]]:
    """Run rounds from a state, or from the beginning; return each with the state after it."""
    setup = RunSetup.of(method, federation, schedule, adversary)
    with local_engine(method, setup.federation, workers=workers) as engine:
        return list(run_rounds(setup, engine, method.init() if state is None else state))


def combined(
    method: Method, reference: np.ndarray, updates: list[np.ndarray], round_number: int = 0
) -> np.ndarray:
    """What the server makes of some updates after a broadcast of `reference`."""
    state = method.unpack({"round": np.array(round_number), "ranking": reference, "weights": reference})
    return space_of(method, method.receive(method.broadcast(state))).combine(updates)
