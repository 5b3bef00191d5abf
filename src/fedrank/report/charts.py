"""Charts of runs, as interactive pages or pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrank.errors import ConfigError, RunError
from fedrank.experiment.rundir import RunDirectory

if TYPE_CHECKING:
    import altair

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442")
"""Okabe and Ito (2008): colours that colour-blind people can tell apart."""
SUFFIXES = (".svg", ".png", ".html")


def accuracy_points(runs: Sequence[RunDirectory]) -> list[dict[str, Any]]:
    """Return the accuracy of every measured round of every run."""
    points = []
    for run in runs:
        measured_rounds = [record for record in run.read_metrics() if record["evaluation"]]
        if not measured_rounds:
            raise RunError(f"{run.path}: there is no measured round to draw yet")
        for record in measured_rounds:
            clients = record["evaluation"]["clients"]
            points.append(
                {
                    "run": str(run.path),
                    "round": record["round"],
                    "test": record["evaluation"]["test_accuracy"],
                    "low": max(0.0, clients["mean"] - clients["std"]),
                    "high": min(1.0, clients["mean"] + clients["std"]),
                }
            )
    return points


def accuracy_chart(runs: Sequence[RunDirectory]) -> altair.LayerChart:
    """Draw accuracy on all test data as a line, and the clients' mean and deviation as a band."""
    alt = _altair()
    base = alt.Chart(alt.Data(values=accuracy_points(runs))).encode(
        x=alt.X("round:Q", title="round", axis=alt.Axis(tickMinStep=1)),
        color=alt.Color(
            "run:N",
            title=None,
            scale=alt.Scale(range=list(COLOURS)),
            legend=alt.Legend(orient="bottom", symbolOpacity=1, symbolType="square", labelLimit=300),
        ),
    )
    accuracy = alt.Scale(domain=[0, 1])
    band = base.mark_area(opacity=0.2).encode(
        y=alt.Y("low:Q", title="accuracy", scale=accuracy, axis=alt.Axis(format="%")), y2="high:Q"
    )
    line = base.mark_line(point=alt.OverlayMarkDef(size=12)).encode(y=alt.Y("test:Q", scale=accuracy))
    chart: altair.LayerChart = alt.layer(band, line).properties(
        width=520,
        height=300,
        title=alt.Title(
            "Accuracy over rounds",
            subtitle="line: all test data; band: mean ± standard deviation over clients",
            anchor="start",
        ),
    )
    return chart


def save(chart: altair.LayerChart, path: Path) -> None:
    """Write a chart as the kind of file that its name asks for."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"{path}: a chart can be written as {', '.join(SUFFIXES)}")
    options = {"inline": True} if path.suffix.lower() == ".html" else {"scale_factor": 2}
    try:
        chart.save(path, format=path.suffix.lower()[1:], **options)  # type: ignore[arg-type]
    except OSError as error:
        raise RunError(f"{path}: cannot be written ({error.strerror})") from error


def _altair() -> Any:
    try:
        import altair
        import vl_convert  # noqa: F401  (writes the pictures)
    except ImportError:
        raise ConfigError("charts need an extra: pip install 'fedrank[plot]'") from None
    return altair
