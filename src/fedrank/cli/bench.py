"""The command that benchmarks fedrank."""

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
    quick: Annotated[bool, typer.Option("--quick", help="Shorter benchmark, about half a minute.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Run one section: step, client, round, vote, ballot, start or fuzz; repeatable."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the results to this file.")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Benchmark fedrank on this machine, relative to the machine's own limits."""
    from fedrank.bench import ALL_SECTIONS, SECTIONS, run
    from fedrank.data import default_data_dir
    from fedrank.parameters import did_you_mean

    for section in only or ():
        if section not in ALL_SECTIONS:
            raise ConfigError(f"unknown section {section!r}{did_you_mean(section, ALL_SECTIONS)}")
    rows = run(data_dir or default_data_dir(), only=only or SECTIONS, quick=quick)
    measured = _print(rows)
    if json_file is not None:
        from dataclasses import asdict

        try:
            json_file.write_text(json.dumps([asdict(row) for row in measured], indent=2) + "\n")
        except OSError as error:
            raise ConfigError(f"{json_file}: cannot be written ({error.strerror})") from error


def _print(rows: Iterable[Row]) -> list[Row]:
    """Print measurements as they arrive, grouped by section; return all of them."""
    printed: list[Row] = []
    for row in rows:
        if not printed or printed[-1].section != row.section:
            out.print(f"\n[bold]{row.section}[/]")
        multiple = f"{row.of_limit:6.2f} x" if row.of_limit is not None else ""
        out.print(f"  {row.name:40} {row.value:10.3f} {row.unit:8} {multiple}", highlight=False)
        printed.append(row)
    return printed
