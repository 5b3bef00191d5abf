"""`fedrank.train`: federated training with your own model and data in one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from fedrank.data import Federation
from fedrank.diagnosis import warn
from fedrank.engine import default_workers, local_engine
from fedrank.errors import ModelError
from fedrank.experiment.adversary import Adversary
from fedrank.experiment.interrupt import Interrupt
from fedrank.experiment.metrics import Evaluation
from fedrank.experiment.rounds import Round, RunSetup, Schedule, check_fit, run_rounds
from fedrank.methods import Method
from fedrank.report.terminal import RunProgress, stderr_console


@dataclass(frozen=True)
class Run:
    """A trained model and its training history."""

    method: Method[Any]
    state: Any
    evaluation: Evaluation
    """The evaluation of the trained model."""
    history: tuple[Round, ...]

    def subnetwork(self) -> nn.Module:
        """Return the trained model: an ordinary module, in evaluation mode."""
        return self.method.model(self.state)


def train(
    method: Method[Any],
    clients: Federation,
    *,
    rounds: int,
    per_round: int,
    evaluate_every: int = 1,
    adversary: Adversary | None = None,
    workers: int | None = None,
    device: str = "cpu",
    progress: bool = True,
    on_round: Callable[[Round], None] = lambda _: None,
) -> Run:
    """Train on this machine and return the result.

    Parameters
    ----------
    method : for example `fedrank.FRL(network)`.
    clients : a federation, for example from `fedrank.split`.
    rounds : number of rounds.
    per_round : clients to draw per round.
    evaluate_every : evaluate the model every so many rounds, and after the last one.
    adversary : malicious clients and their attack, to test robustness.
    workers : worker processes, one thread each; one per core by default.
    device : where workers compute, `cpu` or `cuda`.
    progress : show a progress bar on stderr.
    on_round : callback after every round, for example for your own logger.

    Ctrl-C finishes the current round and returns the result so far; a second Ctrl-C raises
    KeyboardInterrupt. The result does not depend on the number of workers.
    """
    console = stderr_console()
    console.quiet = not progress
    history: list[Round] = []
    state = method.init()
    try:
        check_fit(method.model(state), clients)
    except ModelError as error:
        raise ModelError(f"the model {error}") from error
    warn(method, clients)
    setup = RunSetup.of(method, clients, Schedule(rounds, per_round, evaluate_every), adversary)
    workers = default_workers() if workers is None else workers
    with (
        RunProgress(console) as bar,
        local_engine(method, setup.federation, workers=workers, device=device) as engine,
        Interrupt(bar.stopping) as interrupt,
    ):
        bar.begin(0, rounds)
        for state, done in run_rounds(setup, engine, state):
            history.append(done)
            bar.round_done(done)
            on_round(done)
            if interrupt.requested:
                break
        measured = history[-1].evaluation or setup.measure(engine, state)
    return Run(method, state, measured, tuple(history))
