"""The environment of a run: versions, machine, command."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

VERSIONED = ("numpy", "torch")


def describe(data_dir: Path | None, workers: int, device: str) -> dict[str, Any]:
    """Return versions, machine and options, which do not determine the result but help explain it.

    A run with data of the user's own has no data directory.
    """
    from fedrank import __version__

    return {
        "fedrank": __version__,
        "revision": source_revision(),
        "python": platform.python_version(),
        **{package: version(package) for package in VERSIONED},
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "workers": workers,
        "device": device,
        "data_dir": "" if data_dir is None else str(data_dir.resolve()),
        "command": sys.argv,
        "date": datetime.now(UTC).date().isoformat(),
    }


def differences(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """List changes that may alter floating-point rounding."""
    return [
        f"{package} {then.get(package)} then, {now[package]} now"
        for package in ("fedrank", *VERSIONED, "device")
        if then.get(package) != now[package]
    ]


def source_revision() -> str | None:
    """Return the git revision of fedrank's source and whether it is modified; None outside a checkout."""
    source = Path(__file__)
    if not _git(source.parent, "ls-files", "--error-unmatch", source.name):
        return None
    revision = _git(source.parent, "rev-parse", "HEAD")
    changed = _git(source.parents[1], "status", "--porcelain", ".")
    return f"{revision} with changes" if changed else revision


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        reply = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return reply.stdout.strip()
