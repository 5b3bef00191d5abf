"""Engines for one machine: this process alone, or several worker processes of one thread each."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from fedrank.data import Federation
from fedrank.engine.process import Failure, Handout, WorkerProcess
from fedrank.engine.task import EVALUATION_BATCH, Outcome, Predictions, Worker, one_thread
from fedrank.errors import ConfigError
from fedrank.methods import Collector, Method


@dataclass(frozen=True)
class Collected:
    """What the clients of a round have sent, and how each fared."""

    messages: Collector
    outcomes: dict[int, Outcome]

    @property
    def losses(self) -> list[float]:
        """The mean training loss of each client."""
        return [outcome.loss for outcome in self.outcomes.values()]

    @property
    def refused(self) -> dict[int, str]:
        """The clients whose message did not count, with the reason."""
        return {
            client: outcome.refusal
            for client, outcome in self.outcomes.items()
            if outcome.refusal is not None
        }


class Engine(Protocol):
    """Decides where clients train and models are tested."""

    def collect(self, state: Any, clients: Sequence[int]) -> Collected: ...

    def predict(self, state: Any, samples: NDArray[np.int64]) -> Predictions: ...

    def cpu_seconds(self) -> float: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def local_engine(method: Method[Any], federation: Federation, *, workers: int, device: str = "cpu") -> Engine:
    """Return an engine with this many workers. One worker is this process itself."""
    if workers < 1:
        raise ConfigError(f"workers is {workers}: there must be at least one")
    if workers == 1:
        return InProcessEngine(method, federation, device)
    return ProcessEngine(method, federation, workers, device)


class _Closing:
    def close(self) -> None:
        """Release what the engine holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class InProcessEngine(_Closing):
    """Does everything in the calling process, one client after the other."""

    def __init__(self, method: Method[Any], federation: Federation, device: str) -> None:
        self.worker = Worker(method, federation, device)

    def collect(self, state: Any, clients: Sequence[int]) -> Collected:
        """Train the clients on the state of a round and gather what they send."""
        outcomes = {}
        with one_thread():
            self.worker.begin(state)
            for client in clients:
                with _reported(_training(client, state)):
                    outcomes[client] = self.worker.train(client)
        return Collected(self.worker.collected(), outcomes)

    def predict(self, state: Any, samples: NDArray[np.int64]) -> Predictions:
        """Test the model of a state on these samples."""
        with one_thread(), _reported(_testing(state)):
            self.worker.load(state)
            return _join(self.worker.predict(batch) for batch in _batches(samples))

    def cpu_seconds(self) -> float:
        """Return the CPU time used so far."""
        return self.worker.cpu_seconds()


class ProcessEngine(_Closing):
    """Spreads clients over persistent worker processes; each tallies its own and the tallies merge."""

    def __init__(self, method: Method[Any], federation: Federation, workers: int, device: str) -> None:
        self.federation = federation
        self.workers: list[WorkerProcess] = []
        handout = Handout(method, federation, device)
        try:
            with handout.file:
                while len(self.workers) < workers:
                    self.workers.append(WorkerProcess(handout))
        except BaseException:
            self.close()
            raise

    def collect(self, state: Any, clients: Sequence[int]) -> Collected:
        """Train the clients on the state of a round and gather what they send."""
        self._all(f"starting round {state.round + 1}", "begin", state)
        largest_first = sorted(clients, key=lambda c: -self.federation.clients[c].train.size)
        tasks = [(_training(client, state), client) for client in largest_first]
        outcomes = {largest_first[number]: outcome for number, outcome in self._spread("train", tasks)}
        first, *others = self._all(f"counting the votes of round {state.round + 1}", "collected")
        for other in others:
            first.merge(other)
        return Collected(first, {client: outcomes[client] for client in clients})

    def predict(self, state: Any, samples: NDArray[np.int64]) -> Predictions:
        """Test the model of a state on these samples."""
        self._all(_testing(state), "load", state)
        tasks = [(_testing(state), batch) for batch in _batches(samples)]
        parts = dict(self._spread("predict", tasks))
        return _join(parts[number] for number in range(len(tasks)))

    def cpu_seconds(self) -> float:
        """Return the CPU time used so far, by this process and by its workers."""
        return time.process_time() + float(sum(self._all("asking for the time", "cpu_seconds")))

    def close(self) -> None:
        """End all worker processes."""
        for worker in self.workers:
            worker.close()

    def _all(self, doing: str, name: str, *arguments: Any) -> list[Any]:
        for worker in self.workers:
            worker.call(doing, name, *arguments)
        return [worker.result() for worker in self.workers]

    def _spread(self, name: str, tasks: Iterable[tuple[str, Any]]) -> Iterator[tuple[int, Any]]:
        """Give each free worker the next task; yield (number of the task, result) as they come."""
        waiting = deque(enumerate(tasks))
        idle = list(self.workers)
        busy: dict[Any, tuple[WorkerProcess, int]] = {}
        while waiting or busy:
            while idle and waiting:
                worker = idle.pop()
                number, (doing, argument) = waiting.popleft()
                worker.call(doing, name, argument)
                busy[worker.connection] = (worker, number)
            for connection in wait(list(busy)):
                worker, number = busy.pop(connection)
                yield number, worker.result()
                idle.append(worker)


def _training(client: int, state: Any) -> str:
    return f"training client {client} in round {state.round + 1}"


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
