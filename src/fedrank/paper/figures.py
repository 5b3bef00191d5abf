"""The figures of the paper and beyond, one function each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fedrank.ballots.failure import failure_bound, failure_probability, whole_share
from fedrank.experiment.records import CellResult, FinishedCell
from fedrank.experiment.results import cell_of
from fedrank.experiment.sweep import SEED
from fedrank.paper.recipes import Recipe, differences
from fedrank.paper.seeds import seed_means
from fedrank.paper.tables import BOUND_SHARES, accuracy_of, smoothing
from fedrank.paper.traffic import traffic_by_size
from fedrank.report.charts import color, dash, load_altair
from fedrank.report.comparison_charts import heat_map, learning_curves
from fedrank.report.pivot import Pivot
from fedrank.report.words import plural

if TYPE_CHECKING:
    import altair

Charts = dict[str, Any]
"""Altair charts by name."""


def figures(recipe: Recipe, rows: Sequence[CellResult]) -> Charts:
    """Return the charts of a table by name; none if no finished run can be drawn."""
    if recipe.name in COMPUTED:
        return {recipe.name: COMPUTED[recipe.name]()}
    finished = [row for row in rows if isinstance(row, FinishedCell)]
    if recipe.name not in DRAWN or not finished:
        return {}
    charts = DRAWN[recipe.name](finished)
    for name, chart in charts.items():
        drawn = [row for row in finished if name in row.coordinates.values()] or finished
        text = getattr(chart.title, "text", chart.title)
        subtitle = _seeds(drawn, "" if text is chart.title else "; band: standard deviation")
        if differing := differences(recipe, [cell_of(row) for row in drawn]):
            other = "the paper" if recipe.published else f"the scale {recipe.origin}"
            subtitle += [f"different from {other}:", *differing]
        if subtitle:
            chart.title = load_altair().Title(text, subtitle=subtitle, anchor="start")
    return charts


def _seeds(rows: Sequence[FinishedCell], band: str) -> list[str]:
    """Say what is averaged, if there are several seeds."""
    seeds = {row.coordinates[SEED] for row in rows if SEED in row.coordinates}
    return [f"mean over {len(seeds)} seeds{band}"] if len(seeds) > 1 else []


def bound_chart(clients: int = 25) -> altair.FacetChart:
    """Draw the probability that a vote fails against p, for several shares of malicious clients."""
    alt = load_altair()
    shares = {
        share: f"{round(share * clients)} ({share:.0%})"
        for share in (whole_share(clients, share) for share in BOUND_SHARES)
    }
    points = [
        {"p": p / 100, "malicious": name, "which": which, "chance": function(clients, p / 100, share)}
        for share, name in shares.items()
        for which, function in (("upper bound", failure_bound), ("exact", failure_probability))
        for p in range(50, 101)
    ]
    chart: altair.FacetChart = (
        alt.Chart(alt.Data(values=points))
        .mark_line()
        .encode(
            x=alt.X("p:Q", title="p: a benign client favors a good edge", scale=alt.Scale(domain=[0.5, 1])),
            y=alt.Y("chance:Q", title="the vote fails", axis=alt.Axis(format="%")),
            color=color("malicious", list(shares.values()), "malicious clients"),
        )
        .properties(width=260, height=240)
        .facet(alt.Column("which:N", title=None, sort=["upper bound", "exact"]))
        .properties(title=f"The vote on one good edge fails, {clients} clients")
    )
    return chart


def communication_chart() -> altair.HConcatChart:
    """Draw the traffic of one client and round against the number of parameters, with our formats added."""
    alt = load_altair()
    shown = [
        *("FedAvg", "TopK 50%", "TopK 10%", "SignSGD", "FRL", "FRL, lower bound log2(n!)"),
        *("Sparse-FRL, top 50%", "Sparse-FRL, top 10%", "FRL, levels=4 dithered coded"),
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
            color=color("method", shown),
            strokeDash=dash("method", shown),
        ).properties(width=300, height=300)
        for way in ("upload", "download")
    ]
    title = alt.Title(
        "Communication of one client in one round",
        subtitle="one layer of that many parameters; coded ballots: bits per edge as measured on MNIST",
        anchor="start",
    )
    chart: altair.HConcatChart = alt.hconcat(*panels).properties(title=title)
    return chart


def subnetwork_chart(rows: Sequence[FinishedCell]) -> altair.Chart:
    """Draw accuracy against the size of the subnetwork."""
    alt = load_altair()
    points = [
        {
            "data": row.coordinates["data"],
            "k": int(row.coordinates["k"].rstrip("%")),
            "accuracy": row.evaluation.clients.mean if row.evaluation.clients else None,
        }
        for row in rows
    ]
    names = list(dict.fromkeys(row.coordinates["data"] for row in rows))
    chart: altair.Chart = (
        alt.Chart(alt.Data(values=points))
        .mark_line(point=True)
        .encode(
            x=alt.X("k:Q", title="k, % of the edges", scale=alt.Scale(domain=[0, 100])),
            y=alt.Y(
                "accuracy:Q",
                title="accuracy, mean over clients",
                axis=alt.Axis(format="%"),
                scale=alt.Scale(zero=False),
            ),
            color=color("data", names, None),
        )
        .properties(width=420, height=260, title=f"Subnetworks after {_rounds(rows)}")
    )
    return chart


def curve_chart(rows: Sequence[FinishedCell], key: str, title: str) -> altair.HConcatChart:
    """Draw accuracy and loss over rounds, one curve for each value of a coordinate."""
    alt = load_altair()
    points = [{key: row.coordinates[key], **point} for row in rows for point in _points(row)]
    names = list(dict.fromkeys(row.coordinates[key] for row in rows))
    base = alt.Chart(alt.Data(values=points)).mark_line(point=alt.OverlayMarkDef(size=15))
    panels = [
        base.encode(
            x=alt.X("round:Q", title="round", axis=alt.Axis(tickMinStep=1)),
            y=alt.Y(f"{what}:Q", title=f"{what} on all test data", axis=axis),
            color=color(key, names, key),
        ).properties(width=300, height=240)
        for what, axis in (("accuracy", alt.Axis(format="%")), ("loss", alt.Axis()))
    ]
    chart: altair.HConcatChart = alt.hconcat(*panels).properties(title=title)
    return chart


def robustness_charts(rows: Sequence[FinishedCell]) -> Charts:
    """Draw accuracy over rounds for each data set, one panel for each share of malicious clients."""
    charts: Charts = {}
    for data in dict.fromkeys(row.coordinates["data"] for row in rows):
        some = [row for row in rows if row.coordinates["data"] == data]
        pivot = Pivot.of(some, ("algorithm",), ("malicious",))
        curves = [
            (algorithm, share, [row.curve for row in cell])
            for ((algorithm,), (share,)), cell in pivot.cells.items()
        ]
        title = f"{data}: accuracy on all test data"
        charts[data] = learning_curves(curves, title=title, panels="malicious clients")
    return charts


def heat_maps(rows: Sequence[FinishedCell]) -> Charts:
    """Draw accuracies by attack and share of malicious clients, one panel for each vote or method.

    One chart for each data set, and one for the methods that train weights, which face other attacks.
    """
    charts: Charts = {}
    for preset in dict.fromkeys(row.preset for row in rows):
        some = [row for row in rows if row.preset == preset]
        points = [
            {
                "row": row.coordinates["attack"],
                "column": row.coordinates["malicious"],
                "panel": row.coordinates["vote"],
                "value": 100 * accuracy_of(row),
            }
            for row in some
        ]
        title = f"{preset}: accuracy in percent after {_rounds(some)}{smoothing(some)}"
        titles = ("malicious clients", None)
        charts[preset] = heat_map(points, titles=titles, title=title, domain=(0, 100), digits=0)
    return charts


def ballot_chart(rows: Sequence[FinishedCell]) -> altair.FacetChart:
    """Draw the error against the upload of a client, one panel for each share of malicious clients."""
    alt = load_altair()
    points = []
    for row in rows:
        shape, *words = row.coordinates["ballots"].split()
        kind, _, size = shape.partition("=")
        points.append(
            {
                "family": kind + (", dithered" if "dithered" in words else ""),
                "label": size,
                "upload": row.sent.upload_bytes / 2**10,
                "error": 100 * (1 - row.evaluation.test_accuracy),
                "malicious": f"{row.coordinates['malicious']} malicious clients",
            }
        )
    families = ["levels", "levels, dithered", "exact", "top"]
    base = alt.Chart().encode(
        x=alt.X(
            "upload:Q",
            scale=alt.Scale(type="log"),
            title="upload per client and round, KiB",
            axis=alt.Axis(values=[10, 30, 100, 300, 1000, 3000]),
        ),
        y=alt.Y("error:Q", scale=alt.Scale(type="log"), title="test error, %"),
        color=color("family", families, None),
    )
    lines = base.mark_line(point=alt.OverlayMarkDef(size=60))
    above, below = (
        base.mark_text(align="left", dx=6, dy=dy).encode(text="label:N").transform_filter(chosen)
        for dy, chosen in (
            (-8, "datum.family != 'levels, dithered'"),
            (10, "datum.family == 'levels, dithered'"),
        )
    )
    chart: altair.FacetChart = (
        alt.layer(lines, above, below, data=alt.Data(values=points))
        .properties(width=330, height=330)
        .facet(alt.Column("malicious:N", title=None, sort=None))
        .properties(title=f"Ballot formats: test error against upload after {_rounds(rows)}")
    )
    return chart


DRAWN: dict[str, Callable[[Sequence[FinishedCell]], Charts]] = {
    "robustness": robustness_charts,
    "subnetworks": lambda rows: {"subnetworks": subnetwork_chart(seed_means(rows))},
    "curves": lambda rows: {"curves": curve_chart(seed_means(rows), "local epochs", "FRL on CIFAR10")},
    "votes": lambda rows: heat_maps(seed_means(rows)),
    "ballots": lambda rows: {"ballots": ballot_chart(seed_means(rows))},
}
COMPUTED: dict[str, Callable[[], altair.TopLevelMixin]] = {
    "bound": bound_chart,
    "communication": communication_chart,
}


def _points(row: FinishedCell) -> list[dict[str, float]]:
    curve = {name: values for name, values in row.curve if values}
    return [dict(zip(curve, values, strict=True)) for values in zip(*curve.values(), strict=True)]


def _rounds(rows: Sequence[FinishedCell]) -> str:
    return plural(", ".join(str(number) for number in sorted({row.rounds for row in rows})), "round")
