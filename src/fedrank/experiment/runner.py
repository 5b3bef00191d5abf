"""Running a configured experiment in a run directory, from the beginning or from its checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from fedrank.data import Federation
from fedrank.engine import Engine, local_engine
from fedrank.errors import RunError
from fedrank.experiment.build import build_adversary, build_federation, build_method, check_network
from fedrank.experiment.config import Experiment
from fedrank.experiment.interrupt import Interrupt
from fedrank.experiment.records import RoundRecord, Summary
from fedrank.experiment.rounds import Adversary, Expectation, Round, Schedule, check_voters, measure, play
from fedrank.experiment.rundir import RunDirectory
from fedrank.methods import FRL, Method, Traffic
from fedrank.methods.frl import BORDA

Played = Iterator[tuple[Any, Round]]
"""Rounds as they are played, each with the state after it."""


class Observer(Protocol):
    """Watches a run, for example to draw a progress bar."""

    def begin(self, done: int, rounds: int) -> None: ...

    def round_done(self, played: Round) -> None: ...

    def stopping(self) -> None: ...


@dataclass(frozen=True)
class Observers:
    """Several observers that watch together."""

    members: Sequence[Observer]

    def begin(self, done: int, rounds: int) -> None:
        for member in self.members:
            member.begin(done, rounds)

    def round_done(self, played: Round) -> None:
        for member in self.members:
            member.round_done(played)

    def stopping(self) -> None:
        for member in self.members:
            member.stopping()


@dataclass(frozen=True)
class Prepared:
    """What a configuration stands for."""

    method: Method[Any]
    federation: Federation
    schedule: Schedule
    adversary: Adversary | None
    expectation: Expectation


def prepare(experiment: Experiment, data_dir: Path) -> Prepared:
    """Load the data, deal it and build the network; whatever does not fit is refused here."""
    federation = build_federation(experiment.data, experiment.seed, data_dir)
    schedule = Schedule(experiment.rounds, experiment.clients_per_round, experiment.evaluate_every)
    schedule.check(federation)
    check_network(experiment, federation)
    method = build_method(experiment)
    check_voters(method, schedule)
    adversary = build_adversary(experiment, federation)
    if adversary:
        adversary.check(federation, schedule.per_round)
    if adversary and adversary.attack.poison:
        federation = adversary.attack.poison(federation, adversary.clients)
    expectation = Expectation(experiment.method.told, experiment.method.expected)
    return Prepared(method, federation, schedule, adversary, expectation)


def run(
    directory: RunDirectory, prepared: Prepared, *, workers: int, device: str, observer: Observer
) -> Summary | None:
    """Play the rounds that are not done yet; return the result, or None if Ctrl-C stopped the run."""
    with (
        local_engine(prepared.method, prepared.federation, workers=workers, device=device) as engine,
        Interrupt(observer.stopping) as interrupt,
    ):

        def rounds(state: Any) -> Played:
            for state, played in play(
                prepared.method,
                prepared.federation,
                engine,
                state,
                prepared.schedule,
                prepared.adversary,
                prepared.expectation,
            ):
                yield state, played
                if interrupt.requested:
                    return

        return record(directory, prepared, engine, rounds, observer)


def record(
    directory: RunDirectory,
    prepared: Prepared,
    engine: Engine,
    rounds: Callable[[Any], Played],
    observer: Observer,
) -> Summary | None:
    """Write down rounds as they are played from the last checkpoint on; return the result after the last.

    A round's line of metrics is written before its checkpoint, and dropped again on resuming if
    the checkpoint never came.
    """
    method, schedule = prepared.method, prepared.schedule
    with directory.locked():
        state = last_state(directory, method)
        directory.forget_after(state.round)
        observer.begin(state.round, schedule.rounds)
        measured = None
        for state, played in rounds(state):
            directory.append_metrics(record_of(played))
            directory.write_checkpoint(method.pack(state))
            observer.round_done(played)
            measured = played.evaluation
        if state.round < schedule.rounds:
            return None
        summary = Summary(
            rounds=state.round,
            evaluation=measured or measure(prepared.federation, engine, state),
            sent=_sent(directory),
            paper_traffic=method.traffic(),
            wall_seconds=sum(record.wall_seconds for record in directory.read_metrics()),
        )
        directory.write_summary(summary)
    return summary


def evaluate(directory: RunDirectory, prepared: Prepared, *, workers: int, device: str) -> Summary:
    """Test the model of the last checkpoint again."""
    method, federation = prepared.method, prepared.federation
    state = last_state(directory, method)
    if state.round == 0:
        raise RunError(f"{directory.path}: no round is finished yet, there is nothing to test")
    begin = time.perf_counter()
    with local_engine(method, federation, workers=workers, device=device) as engine:
        measured = measure(federation, engine, state)
    seconds = time.perf_counter() - begin
    return Summary(
        rounds=state.round,
        evaluation=measured,
        sent=_sent(directory),
        paper_traffic=method.traffic(),
        wall_seconds=seconds,
    )


def rehearse(directory: RunDirectory, prepared: Prepared, *, workers: int, device: str) -> Round:
    """Play the round after the last checkpoint and keep its ballots, but save nothing."""
    method, federation = prepared.method, prepared.federation
    if not isinstance(method, FRL):
        raise RunError(f"{directory.path}: this method holds no vote on edges")
    keeping = replace(method, vote="mean") if method.vote == BORDA else method
    state = last_state(directory, method)
    schedule = replace(prepared.schedule, rounds=state.round + 1, evaluate_every=state.round + 2)
    with local_engine(keeping, federation, workers=workers, device=device) as engine:
        _, played = next(play(keeping, federation, engine, state, schedule, prepared.adversary))
    return played


def last_state(directory: RunDirectory, method: Method[Any]) -> Any:
    """Return the state of the last checkpoint, or the initial one."""
    arrays = directory.read_checkpoint()
    return method.init() if arrays is None else method.unpack(arrays)


def _sent(directory: RunDirectory) -> Traffic:
    records = directory.read_metrics()
    clients = sum(len(record.clients) for record in records)
    return Traffic(
        sum(record.upload_bytes for record in records) / clients,
        sum(record.download_bytes for record in records) / clients,
    )


def record_of(played: Round) -> RoundRecord:
    """Return a round as its line of metrics; single clients' accuracies are in the summary only."""
    return RoundRecord(
        round=played.number,
        train_loss=played.train_loss,
        refused=played.refused,
        evaluation=played.evaluation and replace(played.evaluation, accuracies={}, samples={}),
        upload_bytes=round(played.sent.upload_bytes * len(played.clients)),
        download_bytes=round(played.sent.download_bytes * len(played.clients)),
        wall_seconds=played.wall_seconds,
        clients=played.clients,
        malicious=played.malicious,
        vote=played.vote,
    )
