"""Charts of comparisons: heat maps, and learning curves with the deviation over seeds as a band."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fedrank.experiment.records import Curve
from fedrank.report.charts import color, dash, load_altair

if TYPE_CHECKING:
    import altair

PANELS_IN_A_ROW = 4
LONG = 14
"""Longer labels of columns are slanted."""
Point = dict[str, Any]


def heat_map(
    points: Sequence[Point],
    *,
    titles: tuple[str | None, str | None],
    title: str,
    domain: tuple[float, float] | None = None,
    digits: int = 1,
) -> altair.TopLevelMixin:
    """Draw the `value` of points by `column` and `row`; one panel for each `panel`, if points have one.

    `titles` are those of the columns and rows; colors span the `domain`, or all values.
    """
    alt = load_altair()
    points = [point for point in points if math.isfinite(point["value"])]
    values = [point["value"] for point in points]
    low, high = domain or (min(values, default=0), max(values, default=1))
    columns, rows = (list(dict.fromkeys(point[key] for point in points)) for key in ("column", "row"))
    longest = max(map(len, columns), default=0)
    base = alt.Chart().encode(
        x=alt.X(
            "column:N",
            title=titles[0],
            sort=columns,
            axis=alt.Axis(labelAngle=0 if longest <= LONG else -40, labelLimit=0),
        ),
        y=alt.Y("row:N", title=titles[1], sort=rows, axis=alt.Axis(labelLimit=0)),
    )
    rectangles = base.mark_rect().encode(
        color=alt.Color(
            "value:Q",
            title=None,
            scale=alt.Scale(scheme="viridis", domain=[low, high]),
        )
    )
    numbers = base.mark_text(fontSize=9).encode(
        text=alt.Text("value:Q", format=f".{digits}f"),
        color=alt.condition(
            f"datum.value > {low + 0.6 * (high - low)}", alt.value("black"), alt.value("white")
        ),
    )
    chart = alt.layer(rectangles, numbers, data=alt.Data(values=points))
    panels = list(dict.fromkeys(point["panel"] for point in points if "panel" in point))
    if panels:
        chart = chart.properties(width=170).facet(alt.Column("panel:N", title=None, sort=panels))
    else:
        width = 7 * longest if longest <= LONG else 50
        chart = chart.properties(width=max(240, max(50, width) * len(columns)), height=28 * len(rows))
    found: altair.TopLevelMixin = chart.properties(
        title=title, padding={"left": 25, "right": 25, "top": 5, "bottom": 5}
    )
    return found


def learning_curves(
    curves: Sequence[tuple[str, str, Sequence[Curve]]], *, title: str, panels: str | None
) -> altair.TopLevelMixin:
    """Draw accuracy over rounds: a line for each name and panel, the mean of the curves of several seeds.

    `panels` is the title over the panels; without it there is only one. The band is the mean ± the standard
    deviation over the seeds.
    """
    alt = load_altair()
    names = list(dict.fromkeys(name for name, _, _ in curves))
    points = [
        {"name": name, "panel": panel, **point} for name, panel, some in curves for point in _mean(some)
    ]
    scale = alt.Scale(domain=[0, 1])
    base = alt.Chart().encode(
        x=alt.X("round:Q", title="round", axis=alt.Axis(tickMinStep=1)), color=color("name", names)
    )
    lines = base.mark_line(point=alt.OverlayMarkDef(size=12)).encode(
        y=alt.Y("accuracy:Q", title="accuracy", axis=alt.Axis(format="%"), scale=scale),
        strokeDash=dash("name", names),
    )
    layers = [lines]
    heading: Any = title
    if any(len(some) > 1 for _, _, some in curves):
        layers.insert(0, base.mark_area(opacity=0.2).encode(y=alt.Y("low:Q", scale=scale), y2="high:Q"))
        subtitle = "line: mean; band: standard deviation over the seeds"
        heading = alt.Title(title, subtitle=subtitle, anchor="start")
    chart = alt.layer(*layers, data=alt.Data(values=points)).properties(width=240, height=240)
    if panels:
        order = list(dict.fromkeys(panel for _, panel, _ in curves))
        chart = chart.facet(alt.Facet("panel:N", title=panels, sort=order), columns=PANELS_IN_A_ROW)
    else:
        chart = chart.properties(width=420)
    found: altair.TopLevelMixin = chart.properties(title=heading)
    return found


def _mean(curves: Sequence[Curve]) -> Iterator[Point]:
    """Yield the mean and the band of some curves in each round in which one of them was measured."""
    for number in sorted({number for curve in curves for number in curve.round}):
        values = [
            value
            for curve in curves
            for each, value in zip(curve.round, curve.accuracy, strict=True)
            if each == number
        ]
        mean = statistics.fmean(values)
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        yield {
            "round": number,
            "accuracy": mean,
            "low": max(0.0, mean - deviation),
            "high": min(1.0, mean + deviation),
        }
