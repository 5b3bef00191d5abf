"""Charts of runs: how they learned, what they sent, how their votes went."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrank.experiment.rundir import RunDirectory
from fedrank.report.charts import colour, hiding, load_altair

if TYPE_CHECKING:
    import altair

Named = Sequence[tuple[str, RunDirectory]]
"""Runs, each with the name that it has in a chart."""
Point = dict[str, Any]
BINS = 20


def short_names(paths: Sequence[Path]) -> list[str]:
    """Return names that tell run directories apart, without what they have in common.

    >>> short_names([Path("runs/mnist_rounds=30_vote=borda"), Path("runs/mnist_rounds=30_vote=median")])
    ['vote=borda', 'vote=median']
    >>> short_names([Path("a/run"), Path("b/run")])
    ['a/run', 'b/run']
    """
    names = [path.name for path in paths]
    if len(set(names)) < len(names):
        return [str(path) for path in paths]
    words = [name.split("_") for name in names]
    common = set(words[0]).intersection(*words[1:]) if len(words) > 1 else set()
    return ["_".join(word for word in each if word not in common) or each[0] for each in words]


def accuracy_chart(runs: Named) -> altair.LayerChart | None:
    """Draw accuracy on all test data as a line, and the clients' mean and deviation as a band."""
    points = []
    for name, record in _measured(runs):
        clients = record["evaluation"]["clients"]
        points.append(
            {
                "run": name,
                "round": record["round"],
                "accuracy": record["evaluation"]["test_accuracy"],
                "low": max(0.0, clients["mean"] - clients["std"]),
                "high": min(1.0, clients["mean"] + clients["std"]),
            }
        )
    if not points:
        return None
    alt = load_altair()
    clicked, shown = hiding("run")
    axis, scale = alt.Axis(format="%", title="accuracy"), alt.Scale(domain=[0, 1])
    base = _over_rounds(points, "run", _names(runs))
    band = base.mark_area().encode(
        y=alt.Y("low:Q", axis=axis, scale=scale),
        y2="high:Q",
        opacity=alt.condition(clicked, alt.value(0), alt.value(0.2)),
    )
    line = base.mark_line(point=alt.OverlayMarkDef(size=12)).encode(
        y=alt.Y("accuracy:Q", axis=axis, scale=scale), opacity=shown
    )
    title = _title(
        "Accuracy over rounds", "line: all test data; band: mean ± standard deviation over clients"
    )
    chart: altair.LayerChart = alt.layer(band, line).add_params(clicked).properties(title=title)
    return chart


def loss_chart(runs: Named) -> altair.Chart | None:
    """Draw the loss on all test data, and that of the clients while they train."""
    points = [
        {"series": f"{name}, {what}" if len(runs) > 1 else what, "round": record["round"], "loss": loss}
        for name, record in _records(runs)
        for what, loss in (
            ("test", record["evaluation"]["test_loss"] if record["evaluation"] else None),
            ("training", record.get("train_loss")),
        )
        if loss is not None
    ]
    return _line_chart(
        points, "series", "loss", _title("Loss over rounds", "cross-entropy; training: honest clients")
    )


def clients_chart(runs: Named) -> altair.Chart | None:
    """Draw how many clients have which accuracy at the end."""
    points = []
    for name, run in runs:
        summary = run.read_summary() or {}
        accuracies = (summary.get("evaluation") or {}).get("accuracies") or {}
        points += [{"run": name, "accuracy": accuracy} for accuracy in accuracies.values()]
    if not points:
        return None
    alt = load_altair()
    clicked, shown = hiding("run")
    percent = alt.Axis(format="%", title="accuracy")
    chart: altair.Chart = (
        alt.Chart(alt.Data(values=points))
        .mark_bar(opacity=0.7)
        .encode(
            x=alt.X("accuracy:Q", bin=alt.Bin(extent=[0, 1], step=1 / BINS), axis=percent),
            y=alt.Y("count():Q", title="clients", stack=None),
            color=colour("run", _names(runs)),
            opacity=shown,
            tooltip=[alt.Tooltip("count():Q", title="clients")],
        )
        .add_params(clicked)
        .properties(
            title=_title("Clients by their accuracy", "each on its own test data, at the end of the run")
        )
    )
    return chart


def traffic_chart(runs: Named) -> altair.Chart | None:
    """Draw what one client sends and receives in each round."""
    points = [
        {
            "series": f"{name}, {way}" if len(runs) > 1 else way,
            "round": record["round"],
            "MiB": record[f"{way}_bytes"] / len(record["clients"]) / 2**20,
        }
        for name, record in _records(runs)
        for way in ("upload", "download")
    ]
    title = _title(
        "Traffic of one client in each round", "bytes really sent, the mean over the round's clients"
    )
    return _line_chart(points, "series", "MiB", title)


def edges_chart(runs: Named) -> altair.Chart | None:
    """Draw which share of the edges has changed sides: by layer for one run, in all for several."""
    points = []
    for name, record in _votes(runs):
        layers = record["vote"]["layers"]
        whole = {
            "name": name,
            "changed": sum(layer["changed"] for layer in layers),
            "edges": sum(layer["edges"] for layer in layers),
        }
        points += [
            {"series": layer["name"], "round": record["round"], "changed": layer["changed"] / layer["edges"]}
            for layer in (layers if len(runs) == 1 else [whole])
        ]
    title = _title("Edges that changed sides", "came into the subnetwork or left it, of all edges of a layer")
    return _line_chart(points, "series", "changed", title, percent=True)


def agreement_chart(runs: Named) -> altair.Chart | None:
    """Draw how far the ballots agree with the vote: by layer for one run, the mean for several."""
    points = []
    for name, record in _votes(runs):
        layers = record["vote"]["layers"]
        mean = {"name": name, "agreement": sum(layer["agreement"] for layer in layers) / len(layers)}
        points += [
            {"series": layer["name"], "round": record["round"], "correlation": layer["agreement"]}
            for layer in (layers if len(runs) == 1 else [mean])
        ]
    title = _title("Agreement of the ballots", "mean rank correlation of a round's ballots with its vote")
    return _line_chart(points, "series", "correlation", title)


def malicious_chart(runs: Named) -> altair.Chart | None:
    """Draw which share of a round's clients was malicious, where there was an attack."""
    points = [
        {
            "series": name,
            "round": record["round"],
            "malicious": len(record["malicious"]) / len(record["clients"]),
        }
        for name, record in _records(runs)
    ]
    if not any(point["malicious"] for point in points):
        return None
    title = _title("Malicious clients in each round", "of those that were asked")
    return _line_chart(points, "series", "malicious", title, percent=True)


def refused_chart(runs: Named) -> altair.Chart | None:
    """Draw how many clients' messages did not count, where there were any."""
    points = [
        {"series": name, "round": record["round"], "refused": len(record.get("refused") or {})}
        for name, record in _records(runs)
    ]
    if not any(point["refused"] for point in points):
        return None
    return _line_chart(
        points, "series", "refused", _title("Votes that did not count", "refused, late or missing")
    )


RUN_CHARTS: dict[str, Callable[[Named], altair.TopLevelMixin | None]] = {
    "accuracy": accuracy_chart,
    "loss": loss_chart,
    "clients": clients_chart,
    "traffic": traffic_chart,
    "edges": edges_chart,
    "agreement": agreement_chart,
    "malicious": malicious_chart,
    "refused": refused_chart,
}
"""All charts of runs; one returns None where a run has nothing for it."""


def _records(runs: Named) -> Iterator[tuple[str, Point]]:
    for name, run in runs:
        for record in run.read_metrics():
            yield name, record


def _measured(runs: Named) -> Iterator[tuple[str, Point]]:
    return ((name, record) for name, record in _records(runs) if record["evaluation"])


def _votes(runs: Named) -> Iterator[tuple[str, Point]]:
    return ((name, record) for name, record in _records(runs) if record.get("vote"))


def _names(runs: Named) -> list[str]:
    return [name for name, _ in runs]


def _title(text: str, subtitle: str) -> Any:
    return load_altair().Title(text, subtitle=subtitle, anchor="start")


def _over_rounds(points: list[Point], field: str, names: Sequence[str]) -> Any:
    alt = load_altair()
    return alt.Chart(alt.Data(values=points)).encode(
        x=alt.X("round:Q", title="round", axis=alt.Axis(tickMinStep=1)), color=colour(field, names)
    )


def _line_chart(
    points: list[Point], field: str, value: str, title: Any, *, percent: bool = False
) -> altair.Chart | None:
    if not points:
        return None
    alt = load_altair()
    clicked, shown = hiding(field)
    names = list(dict.fromkeys(point[field] for point in points))
    axis = alt.Axis(format="%") if percent else alt.Axis()
    chart: altair.Chart = (
        _over_rounds(points, field, names)
        .mark_line(point=alt.OverlayMarkDef(size=12))
        .encode(
            y=alt.Y(f"{value}:Q", axis=axis, scale=alt.Scale(zero=value not in ("correlation", "loss"))),
            strokeDash=alt.StrokeDash(f"{field}:N", sort=names, legend=None),
            opacity=shown,
            tooltip=[f"{field}:N", "round:Q", alt.Tooltip(f"{value}:Q", format=".2%" if percent else ".4g")],
        )
        .add_params(clicked)
        .properties(title=title)
    )
    return chart
