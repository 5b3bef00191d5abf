"""The command line in a process of its own."""

import os
import subprocess
import sys


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-c", "from fedrank.cli import main; main()", *map(str, arguments)]


def fedrank(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"COLUMNS": "200", "NO_COLOR": "1"}
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=550,
        env=environment,
        **options,  # type: ignore[call-overload]
    )
