"""Lists of what there is, for commands that must not wait for torch."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table


def listing(rows: Iterable[tuple[str, str, str]]) -> Table:
    """Return names with what they are and where they come from."""
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_column(no_wrap=True, style="bold")
    for name, summary, source in rows:
        table.add_row(name, f"{summary} [dim]{source}[/]")
    return table
