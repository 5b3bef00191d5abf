"""A worker in its own process, and the parent's handle on it.

The process runs a fresh interpreter, not a copy of the caller's program: scripts need no `__main__` guard,
and a model class defined in a notebook cell is pickled by value (cloudpickle). Messages between the two are
pickled; they never leave the machine.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from typing import IO, Any

import cloudpickle
import numpy as np
import torch

from fedrank.data import Federation
from fedrank.data.federation import with_inputs
from fedrank.engine.task import Worker
from fedrank.errors import FedrankError, ModelError, TrainingError
from fedrank.methods import Method

OPEN, FORGET = "open", "forget"
"""Calls about the payload; all others are methods of the worker."""


@dataclass(frozen=True)
class Failure:
    """An exception raised in a worker process."""

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


class WorkerPayload:
    """The data of a worker process in an unnamed file: the inputs, memory-mapped, and the rest, pickled."""

    def __init__(self, method: Method[Any], federation: Federation, device: str) -> None:
        inputs = np.ascontiguousarray(federation.dataset.inputs)
        placeholder = np.empty((len(inputs), 0), np.uint8)
        outline = (method, with_inputs(federation, placeholder), inputs.shape, inputs.dtype.str, device)
        try:
            pickled = cloudpickle.dumps(outline)
        except Exception as error:
            raise ModelError(f"cannot send the model to worker processes ({error}); use workers=1") from error
        self.file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed by the engine)
        try:
            inputs.tofile(self.file)
            self.file.write(pickled)
            self.file.flush()
        except OSError as error:
            self.file.close()
            raise TrainingError(
                f"{tempfile.gettempdir()}: cannot share the data with workers ({error.strerror}); "
                "set TMPDIR to a directory with more space"
            ) from error
        self.offset = inputs.nbytes

    @staticmethod
    def receive(descriptor: int, offset: int) -> Worker:
        """Create the worker from a payload."""
        # Mapped, not read: all workers share one open file, and reading would move each other's position.
        content = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
        os.close(descriptor)
        method, federation, shape, dtype, device = cloudpickle.loads(content[offset:])
        inputs = np.frombuffer(content[:offset], dtype).reshape(shape)
        return Worker(method, with_inputs(federation, inputs), device)


class WorkerProcess:
    """The parent's handle: sends one call at a time and receives its result.

    A process can serve several payloads, one after the other.
    """

    def __init__(self) -> None:
        self.started, self.path, self.directory = time.time(), list(sys.path), Path.cwd()
        self.imported: list[str] = []
        """The files of what the last payload imported, other than installed packages."""
        ours, theirs = socket.socketpair()
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(entry or str(self.directory) for entry in self.path),
            "OMP_NUM_THREADS": "1",
        }
        program = "from fedrank.engine.process import main; main()"
        self.process = subprocess.Popen(
            # -P: look for modules where the parent does, not in the current directory
            [sys.executable, "-P", "-c", program, str(theirs.fileno())],
            env=environment,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            process_group=0,  # Ctrl-C is the parent's to handle
        )
        theirs.close()
        self.connection = Connection(ours.detach())
        self.doing = ""
        self.busy = False

    def open(self, payload: WorkerPayload) -> None:
        """Send the worker its payload."""
        self.call("starting the workers", OPEN, payload.offset)
        send_handle(self.connection, payload.file.fileno(), self.process.pid)

    def forget(self) -> None:
        """Take its payload away again."""
        self.call("stopping the workers", FORGET)
        self.imported = self.result()

    def call(self, doing: str, name: str, *arguments: Any) -> None:
        """Call a method of the worker; `doing` describes the call in error messages."""
        self.doing = doing
        self.busy = True
        try:
            send(self.connection, (name, arguments))
        except OSError as error:
            raise self._died() from error

    def result(self) -> Any:
        """Wait for the result of the last call."""
        try:
            value = receive(self.connection)
        except (EOFError, OSError) as error:
            raise self._died() from error
        self.busy = False
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
        """Kill the process, which holds nothing to save."""
        self.connection.close()
        self.process.kill()
        self.process.wait()


def serve(connection: Connection) -> None:
    """Serve the parent's calls until it closes the connection."""
    torch.set_num_threads(1)
    worker: Worker | None = None
    while True:
        try:
            name, arguments = receive(connection)
        except EOFError:
            return
        value: Any = None
        try:
            if name == OPEN:
                worker = WorkerPayload.receive(recv_handle(connection), *arguments)
            elif name == FORGET:
                worker, value = None, own_files()
            else:
                value = getattr(worker, name)(*arguments)
        except Exception as error:
            value = Failure.of(error)
        send(connection, value)


def own_files() -> list[str]:
    """Return the files of all modules that are neither built in nor installed."""
    installed = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    files = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    return sorted(file for file in files if Path(file).is_file() and not file.startswith(tuple(installed)))


def send(connection: Connection, value: Any) -> None:
    """Send anything to the other side; classes of a user's script travel by value.

    Arrays are not pickled but sent as they are: a round's ballots are 100 MB and more.
    """
    buffers: list[pickle.PickleBuffer] = []
    content = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    arrays = [buffer.raw() for buffer in buffers]
    connection.send([array.nbytes for array in arrays])
    connection.send_bytes(content)
    for array in arrays:
        sent = 0
        while sent < array.nbytes:
            sent += os.write(connection.fileno(), array[sent:])


def receive(connection: Connection) -> Any:
    """Receive what the other side has sent."""
    sizes = connection.recv()
    content = connection.recv_bytes()
    arrays = [np.empty(size, np.uint8) for size in sizes]
    for array in arrays:
        left = array.data
        while left:
            count = os.readv(connection.fileno(), [left])
            if count == 0:
                raise EOFError
            left = left[count:]
    return pickle.loads(content, buffers=arrays)


def main() -> None:
    """Run a worker process, given the file descriptor of its socket."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the parent is gone
        serve(Connection(int(sys.argv[1])))
