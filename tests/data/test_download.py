"""Downloads against a local stand-in for the hub."""

import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fedrank.data.download import fetch, list_files
from fedrank.data.sources import SOURCES
from fedrank.errors import DataError

SOURCE = SOURCES["mnist"]
CONTENT = bytes(range(256)) * 20_000


@dataclass
class Hub:
    """What the stand-in serves, how it misbehaves, and what it was asked."""

    content: bytes = CONTENT
    announced_sha256: str = hashlib.sha256(CONTENT).hexdigest()
    break_off_after: int | None = None
    understands_ranges: bool = True
    listing: bytes | None = None
    status: int = 200
    ranges: list[str | None] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    hub: Hub

    def do_GET(self) -> None:
        hub = self.hub
        if hub.status != 200:
            self.send_error(hub.status)
        elif self.path == "/api/datasets/ylecun/mnist/tree/main/mnist":
            lfs = {"oid": hub.announced_sha256, "size": len(CONTENT)}
            files = [
                {
                    "type": "file",
                    "path": "mnist/train-00000-of-00001.parquet",
                    "size": len(CONTENT),
                    "lfs": lfs,
                },
                {"type": "file", "path": "mnist/README.md", "size": 3},
            ]
            self.reply(hub.listing if hub.listing is not None else json.dumps(files).encode())
        elif self.path == "/datasets/ylecun/mnist/resolve/main/mnist/train-00000-of-00001.parquet":
            self.send_response(302)  # the hub redirects to its storage
            self.send_header("Location", "/storage")
            self.end_headers()
        elif self.path == "/storage":
            self.serve_file()
        else:
            self.send_error(404)

    def serve_file(self) -> None:
        asked = self.headers.get("Range")
        self.hub.ranges.append(asked)
        begin = (
            int(asked.removeprefix("bytes=").removesuffix("-"))
            if asked and self.hub.understands_ranges
            else 0
        )
        body = self.hub.content[begin:]
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.hub.break_off_after])

    def reply(self, body: bytes) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    state = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": state}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}/")
    yield state
    server.shutdown()
    server.server_close()


def get(folder: Path) -> tuple[Path, list[int]]:
    progress: list[int] = []
    (remote,) = list_files(SOURCE)
    return fetch(remote, folder, progress.append), progress


def test_a_download_arrives_whole_and_reports_progress(hub: Hub, tmp_path: Path) -> None:
    path, progress = get(tmp_path / "mnist")
    assert path == tmp_path / "mnist/train-00000-of-00001.parquet"
    assert path.read_bytes() == CONTENT
    assert progress == sorted(progress)
    assert progress[-1] == len(CONTENT)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_download_that_broke_off_goes_on_where_it_stopped(hub: Hub, tmp_path: Path) -> None:
    hub.break_off_after = 2_000_000
    with pytest.raises(DataError, match="Run the command again"):
        get(tmp_path)
    assert not (tmp_path / "train-00000-of-00001.parquet").exists()
    hub.break_off_after = None
    path, _ = get(tmp_path)
    assert path.read_bytes() == CONTENT
    assert hub.ranges == [None, "bytes=2000000-"]


def test_a_server_without_ranges_sends_everything_again(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "train-00000-of-00001.parquet.part").write_bytes(b"old" * 100)
    hub.understands_ranges = False
    assert get(tmp_path)[0].read_bytes() == CONTENT


def test_content_with_another_checksum_is_not_kept(hub: Hub, tmp_path: Path) -> None:
    hub.content = b"x" * len(CONTENT)
    with pytest.raises(DataError, match="SHA-256"):
        get(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_complete_file_is_not_fetched_again(hub: Hub, tmp_path: Path) -> None:
    get(tmp_path)
    get(tmp_path)
    assert hub.ranges == [None]


def test_a_damaged_file_is_fetched_again(hub: Hub, tmp_path: Path) -> None:
    path, _ = get(tmp_path)
    path.write_bytes(b"y" + CONTENT[1:])
    assert get(tmp_path)[0].read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("misbehavior", "complaint"),
    [
        ({"status": 503}, "cannot be reached"),
        ({"listing": b"<html>"}, "did not return a list of files"),
        ({"listing": b"[]"}, "lists no Parquet file"),
        ({"listing": b'[{"path": "a.parquet"}]'}, "did not return a list"),
    ],
)
def test_a_hub_that_answers_nonsense_is_reported(
    hub: Hub, tmp_path: Path, misbehavior: dict[str, object], complaint: str
) -> None:
    for name, value in misbehavior.items():
        setattr(hub, name, value)
    with pytest.raises(DataError, match=complaint):
        get(tmp_path)


def test_no_network_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DataError, match="cannot be reached"):
        get(tmp_path)
