"""A comparison of runs: mean ± standard deviation over seeds, as a table, files and charts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrank.errors import ConfigError, RunError
from fedrank.experiment.records import CellResult, FinishedCell, UnfinishedCell
from fedrank.experiment.results import to_record, write_csv, write_results
from fedrank.experiment.rundir import write_output
from fedrank.experiment.sweep import make_folder
from fedrank.parameters import did_you_mean
from fedrank.report.charts import save
from fedrank.report.comparison_charts import heat_map, learning_curves
from fedrank.report.pivot import Pivot
from fedrank.report.text_table import TextTable
from fedrank.report.words import plural


@dataclass(frozen=True)
class Metric:
    """A number of `to_records`, as tables show it."""

    title: str
    factor: float = 100
    digits: int = 1

    def text(self, values: Sequence[float]) -> str:
        """Return the mean, and the sample standard deviation if there are several values.

        >>> Metric("accuracy").text([0.90, 0.92]), Metric("accuracy").text([0.90])
        ('91.0 ± 1.4', '90.0')
        >>> Metric("loss").text([0.4, float("inf")])
        'diverged'
        """
        if not all(map(math.isfinite, values)):
            return "diverged"
        scaled = [self.factor * value for value in values]
        mean = f"{statistics.fmean(scaled):,.{self.digits}f}"
        return f"{mean} ± {statistics.stdev(scaled):,.{self.digits}f}" if len(values) > 1 else mean


METRICS = {
    "test_accuracy": Metric("accuracy on all test data in percent"),
    "worst_class": Metric("accuracy of the worst class in percent"),
    "backdoor": Metric("success of the backdoor in percent"),
    "clients_mean": Metric("mean accuracy of the clients in percent"),
    "clients_min": Metric("accuracy of the worst client in percent"),
    "test_loss": Metric("loss on all test data", factor=1, digits=3),
    "upload_bytes": Metric("KiB that a client sends in a round", factor=1 / 2**10),
    "download_bytes": Metric("KiB that a client receives in a round", factor=1 / 2**10),
}
DEFAULT = "test_accuracy"


def metric_named(name: str) -> Metric:
    """Return a metric by its name."""
    if name not in METRICS:
        raise ConfigError(f"unknown metric {name!r}{did_you_mean(name, METRICS)}")
    return METRICS[name]


@dataclass(frozen=True, repr=False)
class Comparison:
    """Runs by their coordinates. Print it, save it, or take its records into a data frame.

    Parameters
    ----------
    name : the title of tables and charts.
    results : one for each run, finished or not.
    rows, columns : the coordinates that make the rows and the columns of the table. Runs that differ only in
        others, such as the seed, are averaged.
    interrupted : whether Ctrl-C ended the comparison before its last run.
    """

    name: str
    results: tuple[CellResult, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def finished(self) -> list[FinishedCell]:
        """The results of finished runs."""
        return [each for each in self.results if isinstance(each, FinishedCell)]

    def to_records(self) -> list[dict[str, Any]]:
        """Return a dictionary for each run: `pandas.DataFrame(comparison.to_records())`."""
        return [to_record(each) for each in self.results]

    def to_csv(self, path: str | Path) -> None:
        """Write a line for each run: its coordinates, its state and its numbers."""
        write_csv(self.results, Path(path))

    def to_latex(self, metric: str = DEFAULT) -> str:
        """Return the table for LaTeX, which needs the package booktabs."""
        return self.table(metric).latex()

    def table(self, metric: str = DEFAULT) -> TextTable:
        """Return the table of a metric: mean ± standard deviation over the seeds."""
        shown, pivot = metric_named(metric), Pivot.of(self.results, self.rows, self.columns)
        runs = max((len(cell) for cell in pivot.cells.values()), default=0)
        headings = [*self.rows, *(", ".join(column) or metric for column in pivot.columns)]
        lines = [
            [*row, *(_text(shown, metric, pivot.cells.get((row, column), ())) for column in pivot.columns)]
            for row in pivot.rows
        ]
        over = f", mean ± standard deviation over {plural(runs, 'seed')}" if runs > 1 else ""
        by = f" Columns: {', '.join(self.columns)}." if self.columns else ""
        notes = [f"Numbers: {shown.title}{over}.{by}", *self._remarks()]
        return TextTable(self.name, headings, lines, notes, keys=len(self.rows))

    def _remarks(self) -> Iterator[str]:
        """Say which runs have no result, and why."""
        if self.interrupted:
            yield "Interrupted: repeat the comparison to continue."
        for each in self.results:
            if isinstance(each, UnfinishedCell) and (why := each.problem or each.failure):
                place = ", ".join(f"{key} {value}" for key, value in each.coordinates.items())
                yield f"{each.state.capitalize()}: {place}: {why}"

    def heatmap(self, path: str | Path, metric: str = DEFAULT) -> None:
        """Draw the means of a metric in colors, as .svg, .png or .html."""
        save(self._heat_map(metric), Path(path))

    def curves(self, path: str | Path) -> None:
        """Draw accuracy over rounds, as .svg, .png or .html: the mean over the seeds, and a band."""
        save(self._curves(), Path(path))

    def save(self, folder: str | Path, metric: str = DEFAULT) -> str:
        """Write the table, all numbers and the charts into a folder; return a sentence that says so.

        Without `pip install 'fedrank[plot]'` there are no charts.
        """
        folder = Path(folder)
        make_folder(folder)
        table = self.table(metric)
        write_output(folder / "table.md", f"{table.markdown()}\n".encode())
        write_output(folder / "table.tex", f"{table.latex()}\n".encode())
        self.to_csv(folder / "results.csv")
        write_results(self.results, folder / "results.json")
        names, missing = ["table.md", "table.tex", "results.csv", "results.json"], ""
        try:
            if self.finished:
                self.curves(folder / "curves.svg")
                names.append("curves.svg")
            if self.rows and self.columns and _values(metric, self.finished):
                self.heatmap(folder / "heatmap.svg", metric)
                names.append("heatmap.svg")
        except ConfigError as error:
            missing = f" (no charts: {error})"
        return f"Wrote {folder}: {', '.join(names)}{missing}"

    def _heat_map(self, metric: str) -> Any:
        shown, pivot = metric_named(metric), Pivot.of(self.finished, self.rows, self.columns)
        points = [
            {
                "row": ", ".join(row),
                "column": ", ".join(column),
                "value": shown.factor * statistics.fmean(values),
            }
            for (row, column), cell in pivot.cells.items()
            if (values := _values(metric, cell))
        ]
        if not points:
            raise RunError(f"no finished run has the metric {metric!r}")
        titles = (", ".join(self.columns), ", ".join(self.rows))
        return heat_map(points, titles=titles, title=f"{self.name}: {shown.title}", digits=shown.digits)

    def _curves(self) -> Any:
        pivot = Pivot.of(self.finished, self.rows, self.columns)
        if not pivot.cells:
            raise RunError("no run is finished")
        curves = [
            (", ".join(row), ", ".join(column), [each.curve for each in cell])
            for (row, column), cell in pivot.cells.items()
        ]
        panels = ", ".join(self.columns) or None
        return learning_curves(curves, title=f"{self.name}: accuracy on all test data", panels=panels)

    def __str__(self) -> str:
        return str(self.table())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.table().html()


def _values(metric: str, cell: Sequence[FinishedCell]) -> list[float]:
    values = [to_record(each)[metric] for each in cell]
    return [value for value in values if value is not None]


def _text(shown: Metric, metric: str, cell: Sequence[CellResult]) -> str:
    """Return the mean of some runs, and how many have a result if not all; else why there is none."""
    finished = [each for each in cell if isinstance(each, FinishedCell)]
    if not finished:
        return ", ".join(dict.fromkeys(each.state for each in cell))
    values = _values(metric, finished)
    some = f" ({len(finished)} of {len(cell)})" if len(finished) < len(cell) else ""
    return f"{shown.text(values)}{some}" if values else "none"
