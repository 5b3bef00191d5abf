"""Runs an experiment in a run directory, from the start or from its checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from fedrank.ballots.traffic import Traffic
from fedrank.engine import Engine, local_engine
from fedrank.errors import RunError
from fedrank.experiment.budget import is_over
from fedrank.experiment.interrupt import Interrupt
from fedrank.experiment.metrics import Evaluation
from fedrank.experiment.parts import check_data, check_network, keep_parts
from fedrank.experiment.records import RoundRecord, Summary
from fedrank.experiment.rounds import Round, Rounds, RunSetup, run_rounds
from fedrank.experiment.rundir import RunDirectory
from fedrank.methods import FRL, Method
from fedrank.methods.frl import BORDA
from fedrank.methods.traffic import paper_traffic


class Observer(Protocol):
    """Watches a run, for example to draw a progress bar."""

    def begin(self, done: int, rounds: int) -> None: ...

    def round_done(self, done: Round) -> None: ...

    def stopping(self) -> None: ...


@dataclass(frozen=True)
class Observers:
    """Several observers as one."""

    members: Sequence[Observer]

    def begin(self, done: int, rounds: int) -> None:
        for member in self.members:
            member.begin(done, rounds)

    def round_done(self, done: Round) -> None:
        for member in self.members:
            member.round_done(done)

    def stopping(self) -> None:
        for member in self.members:
            member.stopping()


def run(
    directory: RunDirectory,
    setup: RunSetup,
    *,
    workers: int,
    device: str,
    observer: Observer,
    until: float | None = None,
) -> Summary | None:
    """Run the remaining rounds; return the result, or None if the run was stopped by Ctrl-C or by time.

    It stops before a round that would end after `until`, if it took as long as the one before it. One
    round is always run, so that every call gets further.
    """
    with (
        directory.locked(),  # before any worker starts
        local_engine(setup.method, setup.federation, workers=workers, device=device) as engine,
        Interrupt(observer.stopping) as interrupt,
    ):

        def rounds(state: Any) -> Rounds:
            for state, done in run_rounds(setup, engine, state):
                yield state, done
                if interrupt.requested or is_over(until, done.wall_seconds):
                    return

        return record(directory, setup, engine, rounds, observer)


def record(
    directory: RunDirectory,
    setup: RunSetup,
    engine: Engine,
    rounds: Callable[[Any], Rounds],
    observer: Observer,
) -> Summary | None:
    """Record rounds as they complete, starting from the last checkpoint; return the final result.

    The caller has locked the directory.
    """
    method, schedule = setup.method, setup.schedule
    state = last_state(directory, method)
    keep_parts(directory, setup)
    directory.forget_after(state.round)
    observer.begin(state.round, schedule.rounds)
    measured = None
    for state, done in rounds(state):
        save_round(directory, method, state, done)
        observer.round_done(done)
        measured = done.evaluation
    if state.round < schedule.rounds:
        return None
    measured = measured or setup.measure(engine, state)
    summary = summarize(method, state.round, directory.read_metrics(), measured)
    directory.write_summary(summary)
    return summary


def save_round(directory: RunDirectory, method: Method[Any], state: Any, done: Round) -> None:
    """Save a round: the metrics before the checkpoint; on resuming, metrics without one are dropped."""
    directory.append_metrics(record_of(done))
    directory.write_checkpoint(method.pack(state))


def summarize(
    method: Method[Any], rounds: int, records: Sequence[RoundRecord], evaluation: Evaluation
) -> Summary:
    """Return the summary of some rounds, given the evaluation of the model after them."""
    clients = sum(len(record.clients) for record in records) or 1
    return Summary(
        rounds=rounds,
        evaluation=evaluation,
        sent=Traffic(
            sum(record.upload_bytes for record in records) / clients,
            sum(record.download_bytes for record in records) / clients,
        ),
        paper_traffic=paper_traffic(method),
        wall_seconds=sum(record.wall_seconds for record in records),
    )


def evaluate(directory: RunDirectory, setup: RunSetup, *, workers: int, device: str) -> Summary:
    """Evaluate the model of the last checkpoint."""
    method, federation = setup.method, setup.federation
    state = last_state(directory, method)
    check_data(directory, federation)
    if state.round == 0:
        raise RunError(f"{directory.path}: no completed round yet, so there is no model to evaluate")
    begin = time.perf_counter()
    with local_engine(method, federation, workers=workers, device=device) as engine:
        measured = setup.measure(engine, state)
    seconds = time.perf_counter() - begin
    summary = summarize(method, state.round, directory.read_metrics(), measured)
    return summary.model_copy(update={"wall_seconds": seconds})


def rehearse(directory: RunDirectory, setup: RunSetup, *, workers: int, device: str) -> Round:
    """Run the round after the last checkpoint and keep its ballots, but save nothing."""
    method = setup.method
    if not isinstance(method, FRL):
        raise RunError(f"{directory.path}: this method does not vote on edges")
    keeping = replace(method, vote="mean") if method.vote == BORDA else method
    state = last_state(directory, method)
    check_data(directory, setup.federation)
    schedule = replace(setup.schedule, rounds=state.round + 1, evaluate_every=state.round + 2)
    once = replace(setup, method=keeping, schedule=schedule)
    with local_engine(keeping, setup.federation, workers=workers, device=device) as engine:
        _, done = next(run_rounds(once, engine, state))
    return done


def last_state(directory: RunDirectory, method: Method[Any]) -> Any:
    """Return the state of the last checkpoint, or the initial one."""
    check_network(directory, method)
    arrays = directory.read_checkpoint()
    return method.init() if arrays is None else method.unpack(arrays)


def record_of(done: Round) -> RoundRecord:
    """Return the metrics line of a round; only the summary has the accuracies of single clients."""
    return RoundRecord(
        round=done.number,
        train_loss=done.train_loss,
        refused=done.refused,
        evaluation=done.evaluation and replace(done.evaluation, accuracies={}, samples={}),
        upload_bytes=round(done.sent.upload_bytes * len(done.clients)),
        download_bytes=round(done.sent.download_bytes * len(done.clients)),
        wall_seconds=done.wall_seconds,
        clients=done.clients,
        malicious=done.malicious,
        vote=done.vote,
        measured=done.measured,
    )


def round_of(record: RoundRecord) -> Round:
    """Return the round of a metrics line; it does not know the accuracies of single clients."""
    return Round(
        number=record.round,
        clients=record.clients,
        malicious=record.malicious,
        train_loss=record.train_loss,
        refused=record.refused,
        sent=record.sent,
        evaluation=record.evaluation,
        vote=record.vote,
        measured=record.measured,
        wall_seconds=record.wall_seconds,
    )
