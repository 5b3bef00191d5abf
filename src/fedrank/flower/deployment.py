"""A Flower deployment on this machine: real processes on loopback, all their files in one folder.

For demos, tests and benchmarks; leaves no process running.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from fedrank.errors import RunError
from fedrank.flower.certificates import Credentials
from fedrank.flower.settings import Settings

CONNECTION = "deployment"
START_LIMIT = 120.0
STOP_LIMIT = 20.0


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_app(
    folder: Path,
    clientapp: str = "fedrank.flower.client_app:app",
    serverapp: str = "fedrank.flower.server_app:app",
) -> Path:
    """Write fedrank's own app, with all its settings, to a folder for `flwr run`."""
    from fedrank import __version__

    folder.mkdir(parents=True, exist_ok=True)
    defaults = Settings.model_validate({}).model_dump(by_alias=True)
    lines = [
        "[project]",
        'name = "fedrank-app"',
        f'version = "{__version__}"',
        'description = "Federated Rank Learning"',
        'license = "Apache-2.0"',
        f'dependencies = ["fedrank[flower]>={__version__}"]',
        "",
        "[tool.flwr.app]",
        'publisher = "fedrank"',
        "",
        "[tool.flwr.app.components]",
        f'serverapp = "{serverapp}"',
        f'clientapp = "{clientapp}"',
        "",
        "[tool.flwr.app.config]",
        *(f"{key} = {json.dumps(value)}" for key, value in defaults.items()),
    ]
    (folder / "pyproject.toml").write_text("\n".join(lines) + "\n")
    return folder


@dataclass
class Deployment:
    """A SuperLink and its SuperNodes.

    Parameters
    ----------
    folder : directory for logs and Flower's own files.
    credentials : certificates and keys; without them, nothing is encrypted and anyone may join.
    simulation : simulate the nodes with Ray in the SuperLink.
    options : extra arguments of `flower-superlink`.
    """

    folder: Path
    credentials: Credentials | None = None
    simulation: bool = False
    options: Sequence[str] = ()
    port: int = field(default_factory=free_port)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._write_connection()
            self.start_superlink()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def environment(self) -> dict[str, str]:
        """The environment of Flower's processes: they stay in their folder and send no telemetry."""
        programs = str(Path(sys.executable).parent)
        return os.environ | {
            "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
            "FLWR_HOME": str(self.folder.resolve() / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
            "RAY_USAGE_STATS_ENABLED": "0",
            "OMP_NUM_THREADS": "1",
            "MALLOC_ARENA_MAX": "2",  # Flower keeps starting threads; each would get its own memory arena
        }

    @property
    def address(self) -> str:
        """The address of the SuperLink."""
        return f"127.0.0.1:{self.port}"

    def _write_connection(self) -> None:
        home = Path(self.environment["FLWR_HOME"])
        home.mkdir(parents=True, exist_ok=True)
        trust = (
            f'root-certificates = "{self.credentials.authority.resolve()}"'
            if self.credentials
            else "insecure = true"
        )
        lines = ("[superlink]", f'default = "{CONNECTION}"', f"[superlink.{CONNECTION}]")
        (home / "config.toml").write_text("\n".join((*lines, f'address = "{self.address}"', trust, "")))

    def start(self, name: str, words: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a process that stops with the deployment; its output goes to NAME.log."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                words,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=self.environment,
                cwd=self.folder,
                start_new_session=True,
            )
        self.processes[name] = process
        return process

    def start_superlink(self) -> None:
        """Start the SuperLink and wait until it listens."""
        words = ["flower-superlink", "--port", str(self.port), "--disable-runtime-dependency-installation"]
        if self.credentials:
            words += ["--ssl-certfile", str(self.credentials.certificate.resolve())]
            words += ["--ssl-keyfile", str(self.credentials.key.resolve())]
            words += ["--ssl-ca-certfile", str(self.credentials.authority.resolve())]
            words += ["--enable-supernode-auth"]
        else:
            words += ["--insecure"]
        if self.simulation:
            words += ["--simulation"]
        process = self.start("superlink", [*words, *self.options])
        end = time.monotonic() + START_LIMIT
        while not self._listens():
            if process.poll() is not None or time.monotonic() > end:
                raise RunError(f"the SuperLink did not start: {self.last_words('superlink')}")
            time.sleep(0.1)

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def start_node(
        self, number: int, config: Mapping[str, Any] | None = None, *, register: bool = True
    ) -> str:
        """Start the SuperNode of a client, registered first if there are credentials; return its name."""
        name = f"node-{number}"
        own = {"partition-id": number, **(config or {})}
        words = ["flower-supernode", "--superlink", self.address, "--port", str(free_port())]
        words += ["--node-config", " ".join(f"{key}={json.dumps(value)}" for key, value in own.items())]
        if self.credentials:
            if register:
                self.flwr(
                    "supernode", "register", str(self.credentials.node_public(number).resolve()), CONNECTION
                )
            words += ["--root-certificates", str(self.credentials.authority.resolve())]
            words += ["--auth-supernode-private-key", str(self.credentials.node_key(number).resolve())]
        else:
            words += ["--insecure"]
        self.start(name, words)
        return name

    def flwr(self, *words: str, limit: float = 120.0) -> str:
        """Run a `flwr` command and return its output."""
        done = subprocess.run(
            ["flwr", *words],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
        if done.returncode:
            raise RunError(f"flwr {' '.join(words)}: {(done.stderr or done.stdout).strip()[-500:]}")
        return done.stdout

    def submit(self, app: Path, config: Mapping[str, Any], federation: str = "") -> str:
        """Submit a run of the app in a folder; return its id."""
        pairs = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        words = ["run", str(app.resolve()), CONNECTION, "--format", "json", "--run-config", pairs]
        if federation:
            words += ["--federation-config", federation]
        reply = json.loads(self.flwr(*words))
        return str(reply["run-id"])

    def status(self, run: str) -> str:
        """Return the status of a run: 'running', 'finished:completed', 'finished:failed', ..."""
        reply = json.loads(self.flwr("list", CONNECTION, "--run-id", run, "--format", "json"))
        return str(reply["runs"][0]["status"])

    def wait_for(self, run: str, limit: float, hear: Callable[[str], None] = lambda _: None) -> str:
        """Wait until a run ends and return its status; the ServerApp's output goes to RUN.log."""
        watcher = self.start(run, ["flwr", "log", run, CONNECTION, "--stream"])
        end, heard = time.monotonic() + limit, 0
        while watcher.poll() is None:
            if time.monotonic() > end:
                raise RunError(f"the run did not end within {limit:g} seconds: {self.last_words(run)}")
            time.sleep(0.2)
            said = (self.folder / f"{run}.log").read_text("utf-8", "replace").splitlines()
            for line in said[heard:]:
                hear(line)
            heard = len(said)
        return self.status(run)

    def last_words(self, name: str, lines: int = 15) -> str:
        """Return the last lines of a process's output."""
        text = (self.folder / f"{name}.log").read_text("utf-8", "replace")
        return "\n".join(text.strip().splitlines()[-lines:])

    def kill(self, name: str) -> None:
        """Kill a process and all its children immediately."""
        process = self.processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        """Stop all processes with SIGTERM, then kill those that remain."""
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        end = time.monotonic() + STOP_LIMIT
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, end - time.monotonic()))
        for name in list(self.processes):
            self.kill(name)
