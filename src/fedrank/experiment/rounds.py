"""The round loop: select, train, vote, measure."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedrank.arguments import check_kind, whole_number
from fedrank.ballots.audit import Audit, audit_vote
from fedrank.ballots.candidates import Measured, Stage
from fedrank.ballots.traffic import Traffic
from fedrank.data import Federation
from fedrank.engine import Engine, EngineRound
from fedrank.errors import ConfigError, TooFewUpdatesError, TrainingError
from fedrank.experiment.adversary import Adversary, divide
from fedrank.experiment.metrics import Evaluation, evaluation, test_samples
from fedrank.methods import Method, check_clients, check_method, knowing, weighing
from fedrank.methods.measured import Panel, measured_method, measured_vote
from fedrank.randomness import Purpose, keyed_generator

MOST_DRAWS = 1000

logger = logging.getLogger("fedrank")


@dataclass(frozen=True, repr=False)
class Round:
    """The record of one round. `number` counts from 1; clients are listed by name if they have names."""

    number: int
    clients: tuple[int | str, ...]
    malicious: tuple[int | str, ...]
    train_loss: float | None
    """The mean over the honest clients, if there were any."""
    refused: dict[Any, str]
    """Clients whose message was rejected, with the reason."""
    sent: Traffic
    """Bytes that a client actually sent and received, on average."""
    evaluation: Evaluation | None
    vote: Audit | None
    """How safe the vote was, for methods that vote on edges."""
    measured: Measured | None
    """What validators measured, for methods that ask for it."""
    wall_seconds: float

    def __str__(self) -> str:
        votes = len(self.clients) - len(self.refused)
        accuracy = f", accuracy {self.evaluation.test_accuracy:.1%}" if self.evaluation else ""
        adopted = ", result not adopted" if self.measured and not self.measured.adopted else ""
        seconds = f"{self.wall_seconds:.1f} s"
        return f"round {self.number}: {votes} of {len(self.clients)} votes{accuracy}{adopted}, {seconds}"

    def __repr__(self) -> str:
        return f"<{str(self).capitalize()}>"

    def to_dict(self) -> dict[str, float | None]:
        """Return the numbers of the round under plain names, such as a row of a data frame."""
        found = self.evaluation
        clients = found.clients if found else None
        return {
            "round": self.number,
            "test_accuracy": found.test_accuracy if found else None,
            "test_loss": found.test_loss if found else None,
            "worst_class": found.worst_class if found else None,
            "backdoor": found.backdoor if found else None,
            "clients_mean": clients.mean if clients else None,
            "clients_std": clients.std if clients else None,
            "clients_min": clients.min if clients else None,
            "clients_max": clients.max if clients else None,
            "train_loss": self.train_loss,
            "selected": len(self.clients),
            "malicious": len(self.malicious),
            "refused": len(self.refused),
            "upload_bytes": self.sent.upload_bytes,
            "download_bytes": self.sent.download_bytes,
            "wall_seconds": self.wall_seconds,
        }


Rounds = Iterator[tuple[Any, Round]]
"""Completed rounds, each with the state after it."""


@dataclass(frozen=True)
class Schedule:
    """The number of rounds, the clients per round, and how often the model is evaluated."""

    rounds: int
    clients_per_round: int
    evaluate_every: int = 1

    def __post_init__(self) -> None:
        for name in ("rounds", "clients_per_round", "evaluate_every"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name), least=1))

    def measures(self, round_number: int) -> bool:
        """Return whether the model is evaluated after a round, as it always is after the last."""
        return round_number % self.evaluate_every == 0 or round_number == self.rounds

    def check(self, federation: Federation) -> None:
        """Raise ConfigError if these clients do not allow the schedule."""
        if federation.test.size == 0:
            raise ConfigError(
                "there are no test samples: use fewer clients, a larger test_share, or a global test set"
            )
        voters = federation.voters.size
        if self.clients_per_round > voters:
            have = "1 client has" if voters == 1 else f"{voters} clients have"
            raise ConfigError(f"clients_per_round is {self.clients_per_round}, but only {have} training data")


@dataclass(frozen=True)
class RunSetup:
    """All parts of a run. Poisoning of the malicious clients' data has already happened."""

    method: Method[Any]
    federation: Federation
    schedule: Schedule
    adversary: Adversary | None = None

    @classmethod
    def of(
        cls,
        method: Method[Any],
        federation: Federation,
        schedule: Schedule,
        adversary: Adversary | None = None,
    ) -> RunSetup:
        """Check that the parts fit together, and poison the adversary's data."""
        check_method(method)
        check_kind(
            "adversary", adversary, Adversary | None, "an Adversary, such as Adversary('mirror', share=0.2)"
        )
        schedule.check(federation)
        check_clients(method, schedule.clients_per_round)
        if adversary:
            adversary.check_target(method)
            adversary = adversary.among(federation, method.network.seed)
            adversary.check(federation, schedule.clients_per_round)
            federation = adversary.poison(federation)
        return cls(weighing(method, federation), federation, schedule, adversary)

    def select(self, round_number: int) -> tuple[int, ...]:
        """Draw the clients of a round."""
        avoided = avoided_by(self.adversary)
        voters, clients_per_round = self.federation.voters, self.schedule.clients_per_round
        return select(voters, clients_per_round, self.method.network.seed, round_number, avoided)

    def validators(self, round_number: int, collected: Any) -> tuple[int, ...]:
        """Draw the validators of a round, after its messages are in; none if the method needs none."""
        asks = measured_method(self.method)
        if asks is None or asks.measuring is None:
            return ()
        count, seed = asks.measuring.validators, asks.network.seed
        return draw_validators(self.federation.voters, count, seed, round_number, collected.entropy)

    def measure(self, engine: Engine, state: Any) -> Evaluation:
        """Test the model of `state` on every client's test data and on the global test set."""
        return evaluation(self.federation, engine.predict(state, test_samples(self.federation)))


class Collected(Protocol):
    """The messages of a round's clients, on this machine or over a network."""

    @property
    def messages(self) -> Any: ...

    @property
    def refused(self) -> dict[int, str]: ...

    @property
    def upload_bytes(self) -> int: ...

    @property
    def download_bytes(self) -> int:
        """Bytes that each client received."""
        ...

    def mean_loss(self, clients: Collection[int]) -> float | None: ...


def run_rounds(setup: RunSetup, engine: Engine, state: Any) -> Rounds:
    """Run the remaining rounds after `state`; yield the new state after each."""
    while state.round < setup.schedule.rounds:
        begin = time.perf_counter()
        clients = setup.select(state.round)
        honest, malicious = divide(clients, setup.adversary)
        broadcast = setup.method.broadcast(state)
        if setup.adversary and malicious and not setup.adversary.attack.poison:
            collected = attacked(setup, engine, broadcast, honest, malicious)
        else:
            collected = engine.collect(broadcast, clients)

        def measure(state: Any) -> Evaluation | None:
            return setup.measure(engine, state) if setup.schedule.measures(state.round) else None

        panel = panel_of(setup, engine, state.round, collected)
        state, done = conclude(
            setup.method, setup.adversary, state, clients, collected, measure, begin, panel
        )
        done = named(done, setup.federation)
        logger.info("%s", done)
        yield state, done


def named(done: Round, federation: Federation) -> Round:
    """Return a round's record with the clients' names, if they have names, in place of their numbers."""
    if not federation.names:
        return done

    def names(clients: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(federation.name_of(client) for client in clients)

    def by_name(reasons: Mapping[Any, str]) -> dict[Any, str]:
        return dict(zip(names(reasons), reasons.values(), strict=True))

    vote, measured = done.vote, done.measured
    if vote:
        ballots = tuple(replace(ballot, client=names([ballot.client])[0]) for ballot in vote.ballots)
        vote = replace(vote, ballots=ballots)
    if measured:
        measured = replace(
            measured,
            validators=names(measured.validators),
            kept=names(measured.kept),
            refused=by_name(measured.refused),
        )
    return replace(
        done,
        clients=names(done.clients),
        malicious=names(done.malicious),
        refused=by_name(done.refused),
        vote=vote,
        measured=measured,
    )


def panel_of(setup: RunSetup, engine: Engine, round_number: int, collected: Collected) -> Panel:
    """Return the validators of a round. Malicious ones lie, unless their attack poisons data."""

    def ask(stage: Stage, questions: Mapping[int, bytes]) -> dict[int, bytes]:
        honest, liars = divide(questions, setup.adversary)
        if setup.adversary is None or setup.adversary.attack.poison:
            honest, liars = tuple(questions), ()
        answers = engine.measure({validator: questions[validator] for validator in honest})
        for liar in liars:
            assert setup.adversary is not None
            voters, entropy = collected.messages.voters, collected.messages.entropy
            answers[liar] = setup.adversary.report(setup.method, round_number, voters, entropy, liar, stage)
        return answers

    return Panel(setup.validators(round_number, collected.messages), ask)


def attacked(
    setup: RunSetup, engine: Engine, broadcast: bytes, honest: tuple[int, ...], malicious: tuple[int, ...]
) -> EngineRound:
    """Train a round's clients; the malicious ones send what their attack crafts."""
    method, adversary = setup.method, setup.adversary
    assert adversary is not None
    received = method.receive(broadcast)
    known = adversary.learners(honest, malicious, setup.federation, method.network.seed, received.round)
    if known == honest:
        collected = engine.collect(broadcast, (), (*honest, *malicious))
        for client in honest:
            learned = collected.learned[client]
            collected.add(client, method.encode(received, learned.update, client), learned.loss)
    else:
        collected = engine.collect(broadcast, honest, (*malicious, *known))
    crafted = adversary.craft(method, setup.federation, received, collected.learned, honest, malicious)
    for client, update in crafted.items():
        collected.add(client, method.encode(received, update, client))
    return collected


def conclude(
    method: Method[Any],
    adversary: Adversary | None,
    state: Any,
    clients: tuple[int, ...],
    collected: Collected,
    measure: Callable[[Any], Evaluation | None],
    begin: float,
    panel: Panel,
) -> tuple[Any, Round]:
    """Aggregate the messages of a round; return the next state and the record of the round."""
    honest, malicious = divide(clients, adversary)
    before, vote, measured = state, None, None
    try:
        if asks := measured_method(method):
            state, measured = measured_vote(asks, before, collected.messages, panel)
        else:
            state = knowing(method, len(malicious)).aggregate(before, collected.messages)
        if hasattr(state, "ranking"):
            vote = audit_vote(collected.messages, before.ranking, state.ranking, method.network.keep)
    except TooFewUpdatesError:
        if adversary is None:
            reason = next(iter(collected.refused.values()))
            raise TrainingError(
                f"round {state.round + 1} has too few usable updates: {reason}. "
                "Is the learning rate too high for this model and data?"
            ) from None
        state = replace(state, round=state.round + 1)
    return state, Round(
        number=state.round,
        clients=clients,
        malicious=malicious,
        train_loss=collected.mean_loss(honest),
        refused=collected.refused,
        sent=_sent(collected, measured, len(clients)),
        evaluation=measure(state),
        vote=vote,
        measured=measured,
        wall_seconds=time.perf_counter() - begin,
    )


def _sent(collected: Collected, measured: Measured | None, clients: int) -> Traffic:
    """Return the bytes per client of the round; what validators transferred is added."""
    reports, questions = (measured.report_bytes, measured.question_bytes) if measured else (0, 0)
    return Traffic(
        (collected.upload_bytes + reports) / clients, collected.download_bytes + questions / clients
    )


def avoided_by(adversary: Adversary | None) -> frozenset[int]:
    """Return the clients that must be a minority in every round."""
    return frozenset(adversary.clients) if adversary and adversary.redraw else frozenset()


def select(
    voters: Sequence[int] | NDArray[np.int64],
    count: int,
    seed: int,
    round_number: int,
    avoided: Collection[int] = (),
    retry: int = 0,
) -> tuple[int, ...]:
    """Draw the clients of a round (Algorithm 2, line 6), fewer than half of them from `avoided`.

    A repeated round draws other clients: `retry` counts the repetitions.
    """
    rng = keyed_generator(seed, Purpose.SELECTION, round_number, *([retry] if retry else []))
    for _ in range(MOST_DRAWS):
        drawn = tuple(int(voters[index]) for index in rng.choice(len(voters), count, replace=False))
        if 2 * sum(client in avoided for client in drawn) < count:
            return drawn
    raise ConfigError(
        f"in each of {MOST_DRAWS} draws of {count} clients, half or more were malicious: "
        "use a smaller share of them, or allow such rounds (attack.redraw = false)"
    )


def draw_validators(
    clients: Sequence[int] | NDArray[np.int64], count: int, seed: int, round_number: int, entropy: int
) -> tuple[int, ...]:
    """Draw the validators of a round, all clients if there are no more than `count`.

    Nobody knows them before all messages are in, as these make the `entropy`.
    """
    rng = keyed_generator(seed, Purpose.VALIDATORS, round_number, entropy)
    drawn = rng.choice(len(clients), min(count, len(clients)), replace=False)
    return tuple(sorted(int(clients[index]) for index in drawn))
