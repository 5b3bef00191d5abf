"""Runs that are done once: what is finished is not done again, what was interrupted is resumed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FEDRANK = [sys.executable, "-c", "from fedrank.cli import main; main()"]


def finished(directory: Path, preset: str, settings: dict[str, Any], data_dir: Path) -> dict[str, Any]:
    """Return the summary of an ordinary `fedrank run` with these settings in this directory."""
    if not (directory / "summary.json").exists():
        if directory.exists():
            command = ["resume", str(directory)]
        else:
            chosen = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
            command = ["run", "--preset", preset, *chosen, "--out", str(directory)]
        subprocess.run([*FEDRANK, *command, "--data-dir", str(data_dir)], check=True)
    summary: dict[str, Any] = json.loads((directory / "summary.json").read_text())
    return summary
