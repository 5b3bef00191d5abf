"""Downloads Parquet files from the Hugging Face hub, with checksums; interrupted downloads resume."""

from __future__ import annotations

import hashlib
import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fedrank.data.sources import Source
from fedrank.errors import DataError

CHUNK_BYTES = 1 << 20
TIMEOUT_SECONDS = 30

Progress = Callable[[int], None]


@dataclass(frozen=True)
class RemoteFile:
    """A file on the hub, with its expected size and checksum."""

    name: str
    url: str
    size: int
    sha256: str


def endpoint() -> str:
    """Return the hub's address, or HF_ENDPOINT if set, for example to a mirror."""
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def list_files(source: Source) -> list[RemoteFile]:
    """Ask the hub for the Parquet files of a data set."""
    address = f"{endpoint()}/api/datasets/{source.repository}/tree/main/{source.folder}"
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS) as reply:
            entries: list[dict[str, Any]] = json.load(reply)
        files = [
            RemoteFile(
                name=Path(entry["path"]).name,
                url=f"{endpoint()}/datasets/{source.repository}/resolve/main/{quote(entry['path'])}",
                size=entry["lfs"]["size"],
                sha256=entry["lfs"]["oid"],
            )
            for entry in entries
            if entry["path"].endswith(".parquet")
        ]
    except (OSError, HTTPException) as error:
        raise DataError(f"{source.name}: {address} cannot be reached ({error})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{source.name}: {address} did not return a list of files ({error!r})") from error
    if not files:
        raise DataError(f"{source.name}: {address} lists no Parquet files")
    return files


def is_complete(remote: RemoteFile, path: Path) -> bool:
    """Return whether the file exists and has the expected content."""
    return path.exists() and path.stat().st_size == remote.size and _sha256(path) == remote.sha256


def fetch(remote: RemoteFile, folder: Path, progress: Progress) -> Path:
    """Download one file into `folder`; calls `progress` with the number of bytes downloaded so far.

    Data goes to a .part file first, so an interrupted download can resume. The file gets its final name
    only after its size and SHA-256 match.
    """
    target = folder / remote.name
    if is_complete(remote, target):
        progress(remote.size)
        return target
    part = target.with_name(f"{target.name}.part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _append_rest(remote, part, progress)
        if part.stat().st_size < remote.size:
            raise DataError(
                f"{remote.url}: connection closed after {part.stat().st_size:,} of {remote.size:,} bytes. "
                "Run the command again to resume."
            )
        if not is_complete(remote, part):
            part.unlink()
            raise DataError(f"{remote.url}: the SHA-256 does not match; deleted the download")
        part.replace(target)
    except (OSError, HTTPException) as error:
        raise DataError(
            f"{remote.url}: the download failed ({error}). Run the command again to resume."
        ) from error
    return target


def _append_rest(remote: RemoteFile, part: Path, progress: Progress) -> None:
    arrived = part.stat().st_size if part.exists() else 0
    if arrived >= remote.size:
        return
    request = urllib.request.Request(remote.url)
    if arrived:
        request.add_header("Range", f"bytes={arrived}-")
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as reply:
        resumed = reply.status == 206
        arrived = arrived if resumed else 0
        with part.open("ab" if resumed else "wb") as file:
            while arrived < remote.size and (chunk := reply.read(CHUNK_BYTES)):
                file.write(chunk)
                arrived += len(chunk)
                progress(arrived)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
