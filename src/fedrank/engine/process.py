"""A worker in a process of its own, and the parent's handle on it.

The process is started afresh, not as a copy of the caller's program: a script needs no
`__main__` guard, and a model class defined in a notebook cell travels by value (cloudpickle).
Messages between the two are pickled; they never leave the machine.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

import cloudpickle
import numpy as np
import torch

from fedrank.data import Federation
from fedrank.data.federation import with_inputs
from fedrank.engine.task import Worker
from fedrank.errors import FedrankError, TrainingError
from fedrank.methods import Method


@dataclass(frozen=True)
class Failure:
    """An exception that a worker process met."""

    message: str
    traceback: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        if isinstance(error, FedrankError):
            return cls(str(error), "")
        return cls(f"{type(error).__name__}: {error}", traceback.format_exc())

    def error(self, during: str) -> TrainingError:
        """Return the exception to raise in the parent."""
        error = TrainingError(f"{during} failed: {self.message}")
        if self.traceback:
            error.add_note(self.traceback)
        return error


class SharedInputs:
    """The federation's inputs in a nameless file that all worker processes map into their memory."""

    def __init__(self, federation: Federation) -> None:
        inputs = np.ascontiguousarray(federation.dataset.inputs)
        self.shape, self.dtype = inputs.shape, inputs.dtype.str
        self.file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed by the engine)
        inputs.tofile(self.file)
        self.file.flush()

    @staticmethod
    def attach(descriptor: int, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
        """Map the file of this descriptor."""
        with os.fdopen(descriptor, "rb") as file:
            return np.memmap(file, dtype=dtype, mode="r", shape=shape)


class WorkerProcess:
    """The parent's handle: send it one call at a time and receive the result."""

    def __init__(
        self, method: Method[Any], federation: Federation, shared: SharedInputs, device: str
    ) -> None:
        ours, theirs = socket.socketpair()
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path),
            "OMP_NUM_THREADS": "1",
        }
        descriptors = (theirs.fileno(), shared.file.fileno())
        program = "from fedrank.engine.process import main; main()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, descriptors)],
            env=environment,
            stdin=subprocess.DEVNULL,
            pass_fds=descriptors,
            process_group=0,  # Ctrl-C is the parent's to handle
        )
        theirs.close()
        self.connection = Connection(ours.detach())
        placeholder = np.empty((shared.shape[0], 0), np.uint8)
        without_inputs = with_inputs(federation, placeholder, federation.dataset.labels)
        outline = cloudpickle.dumps((method, without_inputs, shared.shape, shared.dtype, device))
        self.doing = "starting a worker process"
        self.connection.send_bytes(outline)

    def call(self, doing: str, name: str, *arguments: Any) -> None:
        """Ask for a method of the worker; `doing` says what for, should it fail."""
        self.doing = doing
        try:
            self.connection.send((name, arguments))
        except OSError as error:
            raise self._died() from error

    def result(self) -> Any:
        """Wait for the result of the last call."""
        try:
            value = self.connection.recv()
        except (EOFError, OSError) as error:
            raise self._died() from error
        if isinstance(value, Failure):
            raise value.error(self.doing)
        return value

    def _died(self) -> TrainingError:
        code = self.process.wait()
        if code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
            hint = " (out of memory?)" if -code == signal.SIGKILL else ""
            return TrainingError(f"{self.doing} failed: the worker process {how}{hint}")
        return TrainingError(f"{self.doing} failed: the worker process ended with exit code {code}")

    def close(self) -> None:
        """End the process; it needs no time to say goodbye."""
        self.connection.close()
        self.process.kill()
        self.process.wait()


def serve(connection: Connection, inputs_descriptor: int) -> None:
    """Answer the parent's calls until it hangs up."""
    torch.set_num_threads(1)
    outline = connection.recv_bytes()
    worker: Worker | None = None
    while True:
        try:
            name, arguments = connection.recv()
            if worker is None:
                worker = _unpack(outline, inputs_descriptor)
            value = getattr(worker, name)(*arguments)
        except EOFError:
            return
        except Exception as error:
            value = Failure.of(error)
        connection.send(value)


def _unpack(outline: bytes, inputs_descriptor: int) -> Worker:
    method, federation, shape, dtype, device = cloudpickle.loads(outline)
    inputs = SharedInputs.attach(inputs_descriptor, shape, dtype)
    return Worker(method, with_inputs(federation, inputs, federation.dataset.labels), device)


def main() -> None:
    """Run a worker process: the descriptors of its socket and of the shared inputs are its arguments."""
    connection, inputs = map(int, sys.argv[1:])
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the parent is gone
        serve(Connection(connection), inputs)
