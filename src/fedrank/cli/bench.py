"""The command that measures fedrank itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedrank.cli.base import DataDir, app, out
from fedrank.errors import ConfigError


@app.command(rich_help_panel="Measurements")
def bench(
    quick: Annotated[bool, typer.Option("--quick", help="Measure less, in about half a minute.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="step, round, vote, ballot, start or fuzz; can be repeated."),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the numbers here too.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Measure how fast fedrank is on this machine, and how far from what the machine could do."""
    from fedrank.bench import ALL_SECTIONS, SECTIONS, run
    from fedrank.data import default_data_dir
    from fedrank.report.terminal import print_measurements

    unknown = set(only or ()) - set(ALL_SECTIONS)
    if unknown:
        raise ConfigError(f"--only {unknown.pop()}: there are {', '.join(ALL_SECTIONS)}")
    rows = run(data_dir or default_data_dir(), only=only or SECTIONS, quick=quick)
    measured = print_measurements(out, rows)
    if json_file is not None:
        from dataclasses import asdict

        try:
            json_file.write_text(json.dumps([asdict(row) for row in measured], indent=2) + "\n")
        except OSError as error:
            raise ConfigError(f"{json_file}: cannot be written ({error.strerror})") from error
