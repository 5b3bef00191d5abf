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


def accuracy_points(runs: Sequence[RunDirectory], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the accuracy of every measured round of every run."""
    points = []
    for run, name in zip(runs, names, strict=True):
        measured_rounds = [record for record in run.read_metrics() if record["evaluation"]]
        if not measured_rounds:
            raise RunError(f"{run.path}: there is no measured round to draw yet")
        for record in measured_rounds:
            clients = record["evaluation"]["clients"]
            points.append(
                {
                    "run": name,
                    "round": record["round"],
                    "test": record["evaluation"]["test_accuracy"],
                    "low": max(0.0, clients["mean"] - clients["std"]),
                    "high": min(1.0, clients["mean"] + clients["std"]),
                }
            )
    return points


def accuracy_chart(runs: Sequence[RunDirectory], names: Sequence[str] | None = None) -> altair.LayerChart:
    """Draw accuracy on all test data as a line, and the clients' mean and deviation as a band."""
    alt = load_altair()
    names = [str(run.path) for run in runs] if names is None else names
    base = alt.Chart(alt.Data(values=accuracy_points(runs, names))).encode(
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


def traffic_chart() -> altair.HConcatChart:
    """Draw what a client and round cost against the number of parameters: the paper's figure, ours added."""
    from fedrank.paper.traffic import traffic_by_size

    alt = load_altair()
    shown = [
        *("FedAvg", "TopK 10%", "SignSGD", "FRL", "Sparse-FRL, top 50%", "Sparse-FRL, top 10%"),
        *("FRL, levels=16 dithered coded", "FRL, levels=4 dithered coded"),
    ]
    points = [
        {
            "parameters": size,
            "method": row.name,
            "upload": row.upload / 2**20,
            "download": row.download / 2**20,
        }
        for size, row in traffic_by_size([10**4, 10**5, 10**6, 10**7, 10**8])
        if row.name in shown
    ]
    base = alt.Chart(alt.Data(values=points)).mark_line(point=True)
    ticks = alt.Axis(format="~s", values=[10**power for power in range(4, 9)])
    panels = [
        base.encode(
            x=alt.X("parameters:Q", scale=alt.Scale(type="log"), axis=ticks),
            y=alt.Y(f"{way}:Q", scale=alt.Scale(type="log"), title=f"{way}, MiB", axis=alt.Axis(format="~g")),
            color=alt.Color(
                "method:N", title=None, sort=shown, scale=alt.Scale(domain=shown, range=list(COLOURS))
            ),
            strokeDash=alt.StrokeDash("method:N", sort=shown, legend=None),
        ).properties(width=300, height=300)
        for way in ("upload", "download")
    ]
    title = alt.Title(
        "Communication of one client in one round",
        subtitle="one layer of so many parameters; coded ballots: bits per edge as measured on MNIST",
        anchor="start",
    )
    chart: altair.HConcatChart = alt.hconcat(*panels).properties(title=title)
    return chart


def save(chart: altair.TopLevelMixin, path: Path) -> None:
    """Write a chart as the kind of file that its name asks for."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"{path}: a chart can be written as {', '.join(SUFFIXES)}")
    options = {"inline": True} if path.suffix.lower() == ".html" else {"scale_factor": 2}
    try:
        chart.save(path, format=path.suffix.lower()[1:], **options)  # type: ignore[arg-type]
    except OSError as error:
        raise RunError(f"{path}: cannot be written ({error.strerror})") from error


def load_altair() -> Any:
    try:
        import altair
        import vl_convert  # noqa: F401  (writes the pictures)
    except ImportError:
        raise ConfigError("charts need an extra: pip install 'fedrank[plot]'") from None
    return altair
