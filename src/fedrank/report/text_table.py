"""A table of texts, for the terminal, Markdown, LaTeX and notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_LATEX = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#_{}"},
        "[": "{[}",  # after a line's end it would be an argument
        "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
        "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "±": r"$\pm$",
    }
)  # fmt: skip


@dataclass(frozen=True)
class TextTable:
    """A table of texts with notes below it.

    Parameters
    ----------
    keys : how many columns say what a row is about.
    together : how many of the other columns belong together, and stay together in a narrow terminal.
    reference : columns whose heading starts with this word have another color.
    """

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = field(default=())
    keys: int = 1
    together: int = 1
    reference: str | None = None

    def markdown(self) -> str:
        """Return the table as Markdown."""
        lines = [_line(self.headings), "|" + "---|" * len(self.headings), *(_line(row) for row in self.rows)]
        return "\n".join([*lines, *(f"\n{note}" for note in self.notes)])

    def latex(self) -> str:
        r"""Return the table for LaTeX, which needs the package booktabs. Title and notes are comments.

        >>> print(TextTable("Votes", ["vote", "accuracy"], [["borda", "97.1 ± 0.4"]]).latex())
        % Votes
        \begin{tabular}{lr}
        \toprule
        vote & accuracy \\
        \midrule
        borda & 97.1 $\pm$ 0.4 \\
        \bottomrule
        \end{tabular}
        """
        columns = "l" * self.keys + "r" * (len(self.headings) - self.keys)
        lines = [" & ".join(text.translate(_LATEX) for text in row) + r" \\" for row in self.rows]
        head = " & ".join(text.translate(_LATEX) for text in self.headings) + r" \\"
        body = [r"\toprule", head, r"\midrule", *lines, r"\bottomrule"]
        title, notes = (_comments(texts) for texts in ([self.title], self.notes))
        return "\n".join([*title, f"\\begin{{tabular}}{{{columns}}}", *body, r"\end{tabular}", *notes])

    def html(self) -> str:
        """Return the table for a notebook."""
        rows = "".join(_html_row(row, "td") for row in self.rows)
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        caption = f"<caption>{html.escape(self.title)}</caption>"
        return f"<table>{caption}{_html_row(self.headings, 'th')}{rows}</table>{notes}"

    def __str__(self) -> str:
        return plain_text(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Print the table; columns that do not fit go into a block below, with the rows that have some."""
        yield Text(self.title, style="bold")
        unlimited = options.update(width=sum(map(len, self.headings)) + 1000)
        block: list[int] = []
        for unit in self._units():
            wider = Measurement.get(console, unlimited, self._table([*block, *unit]))
            if block and wider.maximum > options.max_width:
                yield self._table(block)
                block = []
            block += unit
        yield self._table(block)
        yield from (Text(note, style="dim") for note in self.notes)

    def _units(self) -> list[list[int]]:
        """Return the columns that are not keys, those that belong together in one list."""
        every = range(self.keys, len(self.headings))
        return [list(every[begin : begin + self.together]) for begin in range(0, len(every), self.together)]

    def _table(self, columns: Iterable[int]) -> Table:
        """Return the keys and some columns, without rows that are blank in all of these."""
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        shown = [*range(self.keys), *columns]
        for number in shown:
            heading = self.headings[number]
            style = "cyan" if self.reference and heading.startswith(self.reference) else None
            table.add_column(heading, style=style, overflow="fold")
        for row in self.rows:
            if len(shown) == self.keys or any(row[number] for number in shown[self.keys :]):
                table.add_row(*(row[number] for number in shown))
        return table


def plain_text(shown: RenderableType, width: int = 110) -> str:
    """Return what a terminal without colors shows."""
    console = Console(file=StringIO(), width=width, color_system=None)
    with console.capture() as capture:
        console.print(shown)
    return "\n".join(line.rstrip() for line in capture.get().rstrip().splitlines())


def _html_row(cells: Iterable[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def _line(texts: Iterable[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def _comments(texts: Iterable[str]) -> list[str]:
    return [f"% {line}" for text in texts for line in text.splitlines()]
