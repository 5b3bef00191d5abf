"""The command that measures fedrank itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrank.cli.base import DataDir, app, out
from fedrank.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fedrank.bench import Row


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

    unknown = set(only or ()) - set(ALL_SECTIONS)
    if unknown:
        raise ConfigError(f"--only {unknown.pop()}: there are {', '.join(ALL_SECTIONS)}")
    rows = run(data_dir or default_data_dir(), only=only or SECTIONS, quick=quick)
    measured = _print(rows)
    if json_file is not None:
        from dataclasses import asdict

        try:
            json_file.write_text(json.dumps([asdict(row) for row in measured], indent=2) + "\n")
        except OSError as error:
            raise ConfigError(f"{json_file}: cannot be written ({error.strerror})") from error


def _print(rows: Iterable[Row]) -> list[Row]:
    """Print measurements as they come, with a heading for each section; return them all."""
    printed: list[Row] = []
    for row in rows:
        if not printed or printed[-1].section != row.section:
            out.print(f"\n[bold]{row.section}[/]")
        multiple = f"{row.of_limit:6.2f} x" if row.of_limit is not None else ""
        out.print(f"  {row.name:40} {row.value:10.3f} {row.unit:8} {multiple}", highlight=False)
        printed.append(row)
    return printed
