"""Engines for one machine: this process, or several worker processes with one thread each."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from fedrank.data import Federation
from fedrank.engine.pool import rest, take_workers
from fedrank.engine.process import Failure, WorkerPayload, WorkerProcess
from fedrank.engine.task import EVALUATION_BATCH, Outcome, Predictions, Worker, one_thread
from fedrank.errors import BallotError, ConfigError, FedrankWarning
from fedrank.methods import ClientUpdate, Collector, Method
from fedrank.nn import Precision
from fedrank.processor import has_bfloat16, processor_name


@dataclass(frozen=True)
class EngineRound:
    """The messages of a round's clients, and the outcome for each client."""

    messages: Collector
    outcomes: dict[int, Outcome]
    learned: dict[int, ClientUpdate]
    """The updates of colluding clients, which have sent nothing yet."""
    download_bytes: int
    """Bytes that each client received."""

    def add(self, client: int, message: bytes, loss: float | None = None) -> None:
        """Add the message of a client that has not sent one yet."""
        refusal = None
        try:
            self.messages.add(client, message)
        except BallotError as error:
            refusal = str(error)
        self.outcomes[client] = Outcome(loss, len(message), refusal)

    @property
    def upload_bytes(self) -> int:
        """Bytes sent by all clients together."""
        return sum(outcome.sent for outcome in self.outcomes.values())

    @property
    def refused(self) -> dict[int, str]:
        """The clients whose message was rejected, with the reason."""
        return {
            client: outcome.refusal
            for client, outcome in self.outcomes.items()
            if outcome.refusal is not None
        }

    def mean_loss(self, clients: Collection[int]) -> float | None:
        """Return the mean training loss of some clients, or None if none is known."""
        losses = [self.outcomes[client].loss for client in clients]
        known = [loss for loss in losses if loss is not None]
        return float(np.mean(known)) if known else None


class Engine(Protocol):
    """Trains clients and tests models."""

    def collect(self, broadcast: bytes, honest: Sequence[int], colluding: Sequence[int] = ()) -> EngineRound:
        """Train the clients of a round and collect the messages of the honest ones."""
        ...

    def measure(self, questions: Mapping[int, bytes]) -> dict[int, bytes]:
        """Return the validators' answers to their questions."""
        ...

    def predict(self, state: Any, samples: NDArray[np.int64]) -> Predictions: ...

    def cpu_seconds(self) -> float: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def local_engine(method: Method[Any], federation: Federation, *, workers: int, device: str = "cpu") -> Engine:
    """Return an engine with this many workers. A single worker runs in this process."""
    if workers < 1:
        raise ConfigError(f"workers must be at least 1, got {workers}")
    _check_precision(method, device)
    if workers == 1:
        return InProcessEngine(method, federation, device)
    return ProcessEngine(method, federation, workers, device)


def _check_precision(method: Method[Any], device: str) -> None:
    """Warn if the processor has to emulate the precision of local training."""
    local = getattr(method, "local", None)
    if device == "cpu" and getattr(local, "precision", None) is Precision.BFLOAT16 and not has_bfloat16():
        warnings.warn(
            f"{processor_name()} has no instructions for bfloat16: emulating it is slower than float32",
            FedrankWarning,
            stacklevel=3,
        )


class _Closing:
    def close(self) -> None:
        """Release the engine's resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class InProcessEngine(_Closing):
    """Runs everything in the calling process, one client at a time."""

    def __init__(self, method: Method[Any], federation: Federation, device: str) -> None:
        self.worker = Worker(method, federation, device)

    def collect(self, broadcast: bytes, honest: Sequence[int], colluding: Sequence[int] = ()) -> EngineRound:
        """Train the clients of a round and collect the messages of the honest ones."""
        federation = self.worker.federation
        with one_thread():
            self.worker.begin(broadcast, frozenset((*honest, *colluding)))
            outcomes, learned = {}, {}
            round_number = self.worker.received.round
            for client in honest:
                with _reported(_training(federation, client, round_number)):
                    outcomes[client] = self.worker.train(client)
            for client in colluding:
                with _reported(_training(federation, client, round_number)):
                    learned[client] = self.worker.learn(client)
        return EngineRound(self.worker.collected(), outcomes, learned, len(broadcast))

    def measure(self, questions: Mapping[int, bytes]) -> dict[int, bytes]:
        """Return the validators' answers to their questions."""
        answers = {}
        with one_thread():
            for validator, question in questions.items():
                with _reported(_measuring(self.worker.federation, validator)):
                    answers[validator] = self.worker.measure((validator, question))
        return answers

    def predict(self, state: Any, samples: NDArray[np.int64]) -> Predictions:
        """Test the model of a state on these samples."""
        with one_thread(), _reported(_testing(state)):
            self.worker.load(state)
            return _join(self.worker.predict(batch) for batch in _batches(samples))

    def cpu_seconds(self) -> float:
        """Return the CPU time used so far."""
        return self.worker.cpu_seconds()


class ProcessEngine(_Closing):
    """Distributes clients over persistent worker processes; each keeps a tally, and the tallies merge."""

    def __init__(self, method: Method[Any], federation: Federation, workers: int, device: str) -> None:
        self.method = method
        self.federation = federation
        self.device = device
        payload = WorkerPayload(method, federation, device)
        self.workers = take_workers(workers)
        try:
            with payload.file:
                for worker in self.workers:
                    worker.open(payload)
                for worker in self.workers:
                    worker.result()  # start-up is not part of the first round
        except BaseException:
            self.close()
            raise

    def collect(self, broadcast: bytes, honest: Sequence[int], colluding: Sequence[int] = ()) -> EngineRound:
        """Train the clients of a round and collect the messages of the honest ones."""
        asked = frozenset((*honest, *colluding))
        received = self.method.receive(broadcast)
        round_number = received.round
        self._all(f"starting round {round_number + 1}", "begin", broadcast, asked)
        jobs = [("train", client) for client in honest] + [("learn", client) for client in colluding]
        jobs.sort(
            key=lambda job: -self.federation.clients[job[1]].train.size
        )  # longest first, for an even load
        tasks = [(_training(self.federation, client, round_number), name, client) for name, client in jobs]
        done = {jobs[number]: result for number, result in self._spread(tasks)}
        messages = self.method.collector(received, asked)
        for part in self._all(f"counting the votes of round {round_number + 1}", "collected"):
            messages.merge(part)
        outcomes = {client: done["train", client] for client in honest}
        learned = {client: done["learn", client] for client in colluding}
        return EngineRound(messages, outcomes, learned, len(broadcast))

    def measure(self, questions: Mapping[int, bytes]) -> dict[int, bytes]:
        """Return the validators' answers to their questions."""
        asked = list(questions.items())
        tasks = [(_measuring(self.federation, each[0]), "measure", each) for each in asked]
        answers = dict(self._spread(tasks))
        return {validator: answers[number] for number, (validator, _) in enumerate(asked)}

    def predict(self, state: Any, samples: NDArray[np.int64]) -> Predictions:
        """Test the model of a state on these samples."""
        self._all(_testing(state), "load", state)
        tasks = [(_testing(state), "predict", batch) for batch in _batches(samples)]
        parts = dict(self._spread(tasks))
        return _join(parts[number] for number in range(len(tasks)))

    def cpu_seconds(self) -> float:
        """Return the CPU time used so far by this process and its workers."""
        return time.process_time() + float(sum(self._all("reading the CPU time", "cpu_seconds")))

    def close(self) -> None:
        """Let the worker processes go. On a CPU they wait for the next run."""
        while self.workers:
            worker = self.workers.pop()
            worker.close() if self.device != "cpu" else rest(worker)

    def _all(self, doing: str, name: str, *arguments: Any) -> list[Any]:
        for worker in self.workers:
            worker.call(doing, name, *arguments)
        return [worker.result() for worker in self.workers]

    def _spread(self, tasks: Iterable[tuple[str, str, Any]]) -> Iterator[tuple[int, Any]]:
        """Give each idle worker the next task; yield (task number, result) as results arrive."""
        waiting = deque(enumerate(tasks))
        idle = list(self.workers)
        busy: dict[Any, tuple[WorkerProcess, int]] = {}
        while waiting or busy:
            while idle and waiting:
                worker = idle.pop()
                number, (doing, name, argument) = waiting.popleft()
                worker.call(doing, name, argument)
                busy[worker.connection] = (worker, number)
            for connection in wait(list(busy)):
                worker, number = busy.pop(connection)
                yield number, worker.result()
                idle.append(worker)


def _training(federation: Federation, client: int, round_number: int) -> str:
    return f"training client {federation.name_of(client)} in round {round_number + 1}"


def _measuring(federation: Federation, validator: int) -> str:
    return f"measuring candidates by client {federation.name_of(validator)}"


def _testing(state: Any) -> str:
    return f"testing the model of round {state.round}"


@contextlib.contextmanager
def _reported(doing: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise Failure.of(error).error(doing) from error


def default_workers() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _batches(samples: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    return [samples[begin : begin + EVALUATION_BATCH] for begin in range(0, samples.size, EVALUATION_BATCH)]


def _join(parts: Iterable[Predictions]) -> Predictions:
    collected = list(parts)
    return Predictions(
        np.concatenate([part.correct for part in collected]),
        np.concatenate([part.losses for part in collected]),
    )
