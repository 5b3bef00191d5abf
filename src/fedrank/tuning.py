"""`fedrank.tune`: searches learning rate, local epochs and `keep` in short runs, by successive halving."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fedrank.arguments import whole_number
from fedrank.data import Client, Federation, check_federation
from fedrank.engine import local_engine, suitable_workers
from fedrank.errors import ConfigError, ModelError, TrainingError
from fedrank.experiment.interrupt import Interrupt
from fedrank.experiment.rounds import Round, RunSetup, Schedule, run_rounds
from fedrank.methods import FRL
from fedrank.nn import LocalTraining, Supernetwork, check_fit, check_supernetwork
from fedrank.randomness import Purpose, keyed_generator
from fedrank.report.terminal import RunProgress, stderr_console
from fedrank.report.text_table import TextTable, plain_text
from fedrank.report.words import plural

RATES = (0.1, 0.2, 0.4, 0.8)
EPOCHS = (2, 5, 10)
KEEPS = (0.5, 0.65, 0.8, 0.9)
CANDIDATES = 8
STAGES = (1, 1, 2)
"""Further rounds for each of the 8 candidates, the best 4 and the best 2, in 16ths of the budget."""
UNITS = sum(units * CANDIDATES >> stage for stage, units in enumerate(STAGES))
JUDGES = 0.25


@dataclass(frozen=True)
class Trial:
    """Settings, and the accuracy and loss on the judging clients' data after so many rounds."""

    learning_rate: float
    epochs: int
    keep: float
    rounds: int = 0
    accuracy: float = 0.0
    loss: float = math.inf


@dataclass(frozen=True)
class Tuning:
    """What `tune` found: `FRL(found.network, found.local)` trains with the best settings.

    Parameters
    ----------
    network : the supernetwork with the best `keep`.
    local : local training with the best learning rate and number of epochs.
    trials : all that was tried, best first.
    judges : the clients that judged, by name or number. No model was trained on their data.
    interrupted : whether Ctrl-C ended the search early.
    """

    network: Supernetwork
    local: LocalTraining
    trials: tuple[Trial, ...]
    judges: tuple[int | str, ...]
    interrupted: bool = False

    def to_records(self) -> list[dict[str, Any]]:
        """Return a dictionary for each trial: `pandas.DataFrame(found.to_records())`."""
        return [asdict(trial) for trial in self.trials]

    def __rich__(self) -> TextTable:
        rows = [
            (
                f"{trial.learning_rate:g}",
                str(trial.epochs),
                f"{trial.keep:g}",
                str(trial.rounds),
                f"{trial.accuracy:.1%}",
                f"{trial.loss:.3g}",
            )
            for trial in self.trials
        ]
        ended = "; interrupted" if self.interrupted else ""
        notes = (
            f"accuracy and loss on the training data of {plural(len(self.judges), 'judging client')}{ended}",
        )
        headings = ("rate", "epochs", "keep", "rounds", "accuracy", "loss")
        return TextTable("Settings, best first", headings, rows, notes, together=5)

    def __str__(self) -> str:
        return plain_text(self.__rich__())

    def _repr_html_(self) -> str:
        return self.__rich__().html()

    def __repr__(self) -> str:
        best = self.trials[0]
        return (
            f"<Tuning: learning_rate={best.learning_rate:g}, epochs={best.epochs}, keep={best.keep:g}, "
            f"accuracy {best.accuracy:.1%} after {plural(best.rounds, 'round')}>"
        )


def tune(
    net: Supernetwork,
    clients: Federation,
    *,
    budget: int = 160,
    clients_per_round: int = 10,
    seed: int | None = None,
    workers: int | None = None,
    progress: bool = True,
) -> Tuning:
    """Search learning rate, local epochs and `keep` for FRL, and return what was found, best first.

    A quarter of the clients with training data judge; the others train. Models are judged by their accuracy
    on the judges' training data. Nobody's test data is used.

    Parameters
    ----------
    net : the supernetwork; its own `keep` is among those tried.
    clients : a federation, for example from `fedrank.split`.
    budget : rounds of training in all. 8 candidates get a 16th of it each, the best 4 another 16th, and the
        best 2 another 8th, so the best two train for a quarter of it.
    clients_per_round : clients to draw per round.
    seed : draws the judges and the candidates; by default the network's.
    workers : worker processes; by default one per core, or none if the work is small.
    progress : show a progress bar on stderr.

    Ctrl-C finishes the current round and returns the best so far. The same seed gives the same result.
    """
    check_supernetwork(net)
    check_federation(clients)
    budget = whole_number("budget", budget, least=UNITS)
    seed = whole_number("seed", net.seed if seed is None else seed)
    if workers is not None:
        whole_number("workers", workers, least=1)
    try:
        check_fit(net.subnetwork(net.initial_ranking), clients)
    except ModelError as error:
        raise ModelError(f"the model {error}") from error
    judges, judged = held_out(clients, seed)
    unit = budget // UNITS
    rounds = unit * sum(STAGES)
    schedule = Schedule(rounds, clients_per_round, evaluate_every=rounds)
    schedule.check(judged)
    contenders = [_Contender.of(trial, net, judged, schedule, workers) for trial in candidates(net, seed)]
    console = stderr_console()
    console.quiet = not progress
    with RunProgress(console, "tuning") as bar, Interrupt(bar.stopping) as interrupt:
        bar.begin(0, unit * UNITS)
        contenders = _halved(contenders, unit, bar, interrupt)
    return Tuning(
        contenders[0].method.network,
        contenders[0].method.local,
        tuple(contender.trial for contender in contenders),
        tuple(clients.name_of(judge) for judge in judges),
        interrupt.requested,
    )


def candidates(net: Supernetwork, seed: int) -> list[Trial]:
    """Return the default settings with the network's `keep`, and others drawn without replacement."""
    default = Trial(LocalTraining.learning_rate, LocalTraining.epochs, net.keep)
    grid = [Trial(*values) for values in itertools.product(RATES, EPOCHS, sorted({*KEEPS, net.keep}))]
    grid.remove(default)
    order = keyed_generator(seed, Purpose.TUNING, 0).permutation(len(grid))
    return [default, *(grid[index] for index in order[: CANDIDATES - 1])]


def held_out(clients: Federation, seed: int) -> tuple[list[int], Federation]:
    """Return the clients that judge, and a federation of the others with the judges' data as test set."""
    voters = clients.voters
    if voters.size < 2:
        raise ConfigError(f"tune needs at least 2 clients with training data, got {voters.size}")
    drawn = keyed_generator(seed, Purpose.TUNING, 1).permutation(voters)[
        : max(1, round(JUDGES * voters.size))
    ]
    judges, nothing = sorted(drawn.tolist()), np.empty(0, np.int64)
    trainers = tuple(
        Client(nothing if number in judges else client.train, nothing)
        for number, client in enumerate(clients.clients)
    )
    test = np.sort(np.concatenate([clients.clients[judge].train for judge in judges]))
    return judges, replace(clients, clients=trainers, test=test, probe=None)


def _halved(
    contenders: list[_Contender], unit: int, bar: RunProgress, interrupt: Interrupt
) -> list[_Contender]:
    """Let the better half of the contenders train on, stage by stage; return all of them, best first."""
    rounds = itertools.count(1)

    def show(done: Round) -> None:
        bar.round_done(replace(done, number=next(rounds)))

    for stage, units in enumerate(STAGES):
        for contender in contenders[: CANDIDATES >> stage]:
            if not interrupt.requested:
                contender.advance(unit * units, show, interrupt)
        contenders = sorted(contenders, key=_Contender.place)
    return contenders


@dataclass
class _Contender:
    """A candidate, and how far its run has come."""

    trial: Trial
    method: FRL
    setup: RunSetup
    state: Any
    workers: int

    @classmethod
    def of(
        cls, trial: Trial, net: Supernetwork, clients: Federation, schedule: Schedule, workers: int | None
    ) -> _Contender:
        local = LocalTraining(epochs=trial.epochs, learning_rate=trial.learning_rate)
        method = FRL(replace(net, keep=trial.keep), local)
        setup = RunSetup.of(method, clients, schedule)
        workers = workers or suitable_workers(method, clients, schedule.clients_per_round, schedule.rounds)
        return cls(trial, method, setup, method.init(), workers)

    def place(self) -> tuple[int, float, float]:
        """Return what contenders are sorted by: those that trained for longer have won before."""
        return -self.trial.rounds, -self.trial.accuracy, self.trial.loss

    def advance(self, rounds: int, show: Callable[[Round], None], interrupt: Interrupt) -> None:
        """Train for some more rounds, and judge. Whoever diverges comes last."""
        with local_engine(self.method, self.setup.federation, workers=self.workers) as engine:
            try:
                for state, done in itertools.islice(run_rounds(self.setup, engine, self.state), rounds):
                    self.state = state
                    show(done)
                    if interrupt.requested:
                        break
            except TrainingError:
                self.trial = replace(self.trial, accuracy=0.0, loss=math.inf)
                return
            measured = self.setup.measure(engine, self.state)
        self.trial = replace(
            self.trial, rounds=self.state.round, accuracy=measured.test_accuracy, loss=measured.test_loss
        )
