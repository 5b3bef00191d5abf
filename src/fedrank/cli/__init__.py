"""The command line. Commands import heavy modules only when they run."""

from __future__ import annotations

import sys

from rich.console import Console

from fedrank.cli import (  # noqa: F401  (registers commands)
    bench,
    data,
    flower,
    lists,
    models,
    paper,
    paper_runs,
    runs,
    sweep,
)
from fedrank.cli.base import app
from fedrank.errors import FedrankError, TrainingError


def main() -> None:
    """Run the command line. Errors that the user can fix print one sentence, not a traceback."""
    try:
        app()
    except FedrankError as error:
        console = Console(stderr=True)
        console.print("[red]error:[/]", end=" ")
        console.print(str(error), markup=False, highlight=False, soft_wrap=True)
        for note in getattr(error, "__notes__", ()):
            console.print(note, markup=False, highlight=False, soft_wrap=True)
        sys.exit(1 if isinstance(error, TrainingError) else 2)
    except KeyboardInterrupt:
        sys.exit(130)
