"""Charts of runs: how they learned, what they sent, how their votes went."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fedrank.ballots.audit import Audit
from fedrank.experiment.metrics import Evaluation
from fedrank.experiment.records import RoundRecord, Summary
from fedrank.experiment.rundir import RunDirectory
from fedrank.report.charts import color, dash, hiding, load_altair, opacity
from fedrank.report.words import loss_text

if TYPE_CHECKING:
    import altair

Point = dict[str, Any]
BINS = 20
MOST_BANDS = 4
"""More bands than this are unreadable."""
CEILING = 4
"""A chart of losses ends at this multiple of the largest loss without attack."""


@dataclass(frozen=True)
class RunView:
    """A run as reports see it: its name there, its records and its summary."""

    name: str
    directory: RunDirectory
    records: list[RoundRecord]
    summary: Summary | None

    @classmethod
    def read(cls, name: str, directory: RunDirectory) -> Self:
        """Read the records and the summary of a run."""
        return cls(name, directory, directory.read_metrics(), directory.read_summary())

    @property
    def evaluation(self) -> Evaluation | None:
        """What was measured at the end of the run, if it has ended; it may have been extended since."""
        if self.summary is None or not self.records or self.summary.rounds != self.records[-1].round:
            return None
        return self.summary.evaluation

    @property
    def accuracies(self) -> dict[int | str, float]:
        """The clients' accuracies at the end of the run, by name or number, if it has ended."""
        return self.evaluation.accuracies if self.evaluation else {}


Runs = Sequence[RunView]


def short_names(paths: Sequence[Path]) -> list[str]:
    """Return names that tell run directories apart, without what they have in common.

    >>> short_names([Path("runs/mnist_rounds=30_vote=borda"), Path("runs/mnist_rounds=30_vote=median")])
    ['vote=borda', 'vote=median']
    >>> short_names([Path("a/run"), Path("b/run")])
    ['a/run', 'b/run']
    >>> short_names([Path("keep_0.5_beta_1"), Path("keep_1_beta_0.5")])
    ['keep_0.5_beta_1', 'keep_1_beta_0.5']
    """
    names = [path.name for path in paths]
    if len(set(names)) < len(names):
        return [str(path) for path in paths]
    words = [name.split("_") for name in names]
    common = set(words[0]).intersection(*words[1:]) if len(words) > 1 else set()
    short = ["_".join(word for word in each if word not in common) or each[0] for each in words]
    return short if len(set(short)) == len(short) else names


def accuracy_chart(runs: Runs) -> altair.LayerChart | None:
    """Draw accuracy on all test data as a line, and the clients' mean and deviation as a band."""
    points: list[Point] = []
    for name, record in _records(runs):
        if record.evaluation:
            clients = record.evaluation.clients
            point = {"run": name, "round": record.round, "accuracy": record.evaluation.test_accuracy}
            if clients:
                low, high = max(0.0, clients.mean - clients.std), min(1.0, clients.mean + clients.std)
                point |= {"low": low, "high": high}
            points.append(point)
    if not points:
        return None
    alt = load_altair()
    shown = hiding("run", _names(runs))
    axis, scale = alt.Axis(format="%", title="accuracy"), alt.Scale(domain=[0, 1])
    base = _over_rounds(points, "run", _names(runs))
    line = base.mark_line(point=alt.OverlayMarkDef(size=12)).encode(
        y=alt.Y("accuracy:Q", axis=axis, scale=scale),
        strokeDash=dash("run", _names(runs)),
        opacity=opacity(shown),
    )
    if len(runs) > MOST_BANDS or not any("low" in point for point in points):
        title, layers = _title("Accuracy over rounds", "on all test data"), [line]
    else:
        band = base.mark_area().encode(
            y=alt.Y("low:Q", axis=axis, scale=scale),
            y2="high:Q",
            opacity=opacity(shown, 0.2),
        )
        title = _title(
            "Accuracy over rounds", "line: all test data; band: mean ± standard deviation over clients"
        )
        layers = [band, line]
    chart: altair.LayerChart = alt.layer(*layers).add_params(shown).properties(title=title)
    return chart


def loss_chart(runs: Runs) -> altair.LayerChart | None:
    """Draw the loss on all test data, and that of the clients while they train.

    A model that an attack destroys can have a loss of any size. Losses above a multiple of those without
    attack are marked at the upper edge, so that the others remain readable.
    """
    points: list[Point] = [
        {"run": name, "kind": kind, "round": record.round, "loss": loss}
        for name, record in _records(runs)
        for kind, loss in (
            ("test", record.evaluation.test_loss if record.evaluation else None),
            ("training", record.train_loss),
        )
        if loss is not None
    ]
    ceiling = _loss_ceiling(runs, points)
    beyond = [point for point in points if not point["loss"] <= ceiling]
    drawn = [{**point, "loss": point["loss"] if point["loss"] <= ceiling else ceiling} for point in points]
    marks = f"; triangles: beyond {ceiling:.3g}, or diverged" if beyond else ""
    title = _title("Loss over rounds", f"cross-entropy; training: honest clients{marks}")
    marked = [{**point, "loss": ceiling, "value": loss_text(point["loss"])} for point in beyond]
    return _line_chart(runs, drawn, "loss", title, kinds=("test", "training"), beyond=marked)


def _loss_ceiling(runs: Runs, points: Sequence[Point]) -> float:
    """Return a multiple of the largest loss without attack; if all runs are attacked, of the first loss."""
    honest = {each.name for each in runs if each.directory.experiment.attack.name == "none"}
    finite = [point for point in points if math.isfinite(point["loss"])]
    known = [point["loss"] for point in finite if point["run"] in honest]
    known = known or [point["loss"] for point in finite[:1]]
    return CEILING * max(known, default=1.0)


def clients_chart(runs: Runs) -> altair.Chart | None:
    """Draw a histogram of the clients' accuracies at the end."""
    points = []
    for each in runs:
        if each.accuracies:
            heights = histogram(each.accuracies.values())
            points += [
                {"run": each.name, "accuracy": number / BINS, "clients": height}
                for number, height in enumerate([*heights, heights[-1]])
            ]
    if not points:
        return None
    alt = load_altair()
    shown = hiding("run", _names(runs))
    chart: altair.Chart = (
        alt.Chart(alt.Data(values=points))
        .mark_area(interpolate="step-after", line=True, fillOpacity=0.25)
        .encode(
            x=alt.X(
                "accuracy:Q", axis=alt.Axis(format="%", title="accuracy"), scale=alt.Scale(domain=[0, 1])
            ),
            y=alt.Y("clients:Q", title="clients", stack=None),
            color=color("run", _names(runs)),
            opacity=opacity(shown),
        )
        .add_params(shown)
        .properties(
            title=_title("Clients by their accuracy", "each on its own test data, at the end of the run")
        )
    )
    return chart


def histogram(accuracies: Iterable[float]) -> list[int]:
    """Return how many accuracies fall into each of `BINS` bins; a value on an edge is in the upper bin.

    >>> histogram([0.6, 0.6, 0.59, 1.0])[11:13], histogram([1.0])[-1]
    ([1, 2], 1)
    """
    bins = np.floor(np.fromiter(accuracies, float) * BINS + 1e-9).astype(int)
    return [int(count) for count in np.bincount(np.minimum(bins, BINS - 1), minlength=BINS)]


def traffic_chart(runs: Runs) -> altair.LayerChart | None:
    """Draw what one client sends and receives in each round; for a single run, also as the paper counts."""
    kinds = ("upload", "download", "upload, as the paper counts", "download, as the paper counts")
    points = []
    for run in runs:
        paper = run.summary.paper_traffic if run.summary and len(runs) == 1 else None
        for record in run.records:
            counted = [record.sent, *([paper] if paper else [])]
            sizes = [size for each in counted for size in (each.upload_bytes, each.download_bytes)]
            points += [
                {"run": run.name, "round": record.round, "kind": kind, "MiB": size / 2**20}
                for kind, size in zip(kinds, sizes, strict=False)
            ]
    title = _title("Traffic of one client in each round", "actual bytes, the mean over the round's clients")
    return _line_chart(runs, points, "MiB", title, kinds=kinds)


def edges_chart(runs: Runs) -> altair.LayerChart | None:
    """Draw the share of edges that changed sides: by layer for one run, in total for several."""
    points = []
    for name, number, audit in _votes(runs):
        shares = {layer.name: layer.changed / layer.edges for layer in audit.layers}
        if len(runs) > 1:
            changed = sum(layer.changed for layer in audit.layers)
            shares = {name: changed / sum(layer.edges for layer in audit.layers)}
        points += [
            {"run": name, "kind": kind, "round": number, "changed": share} for kind, share in shares.items()
        ]
    of = "of all edges of a layer" if len(runs) == 1 else "of all edges"
    title = _title("Edges that changed sides", f"entered or left the subnetwork, as a share {of}")
    return _line_chart(runs, points, "changed", title, percent=True)


def agreement_chart(runs: Runs) -> altair.LayerChart | None:
    """Draw how well the ballots agree with the vote: by layer for one run, the mean for several."""
    points = []
    for name, number, audit in _votes(runs):
        agreements = {layer.name: layer.agreement for layer in audit.layers}
        if len(runs) > 1:
            agreements = {name: sum(agreements.values()) / len(agreements)}
        points += [
            {"run": name, "kind": kind, "round": number, "correlation": agreement}
            for kind, agreement in agreements.items()
        ]
    title = _title("Agreement of the ballots", "mean rank correlation of a round's ballots with its vote")
    return _line_chart(runs, points, "correlation", title)


def malicious_chart(runs: Runs) -> altair.LayerChart | None:
    """Draw the share of malicious clients in each round, if there was an attack."""
    points = [
        {
            "run": name,
            "kind": name,
            "round": record.round,
            "malicious": len(record.malicious) / len(record.clients),
        }
        for name, record in _records(runs)
    ]
    if not any(point["malicious"] for point in points):
        return None
    title = _title("Malicious clients in each round", "as a share of the round's clients")
    return _line_chart(runs, points, "malicious", title, percent=True)


def refused_chart(runs: Runs) -> altair.LayerChart | None:
    """Draw how many clients' messages did not count, if there were any."""
    points = [
        {"run": name, "kind": name, "round": record.round, "refused": len(record.refused)}
        for name, record in _records(runs)
    ]
    if not any(point["refused"] for point in points):
        return None
    title = _title("Votes that did not count", "clients: refused, late or missing")
    return _line_chart(runs, points, "refused", title)


RUN_CHARTS: dict[str, Callable[[Runs], altair.TopLevelMixin | None]] = {
    "accuracy": accuracy_chart,
    "loss": loss_chart,
    "clients": clients_chart,
    "traffic": traffic_chart,
    "edges": edges_chart,
    "agreement": agreement_chart,
    "malicious": malicious_chart,
    "refused": refused_chart,
}
"""All charts of runs; a chart is None if the runs have nothing to show in it."""


def _records(runs: Runs) -> Iterator[tuple[str, RoundRecord]]:
    return ((each.name, record) for each in runs for record in each.records)


def _votes(runs: Runs) -> Iterator[tuple[str, int, Audit]]:
    return ((name, record.round, record.vote) for name, record in _records(runs) if record.vote)


def _names(runs: Runs) -> list[str]:
    return [each.name for each in runs]


def _title(text: str, subtitle: str) -> Any:
    return load_altair().Title(text, subtitle=subtitle, anchor="start")


def _over_rounds(points: list[Point], field: str, names: Sequence[str]) -> Any:
    alt = load_altair()
    axis = _whole(points, "round")
    return alt.Chart(alt.Data(values=points)).encode(
        x=alt.X("round:Q", title="round", axis=axis),
        color=color(field, names, drawn=[name for name in names if name in {each[field] for each in points}]),
    )


def _whole(points: list[Point], key: str) -> Any:
    """Return an axis without fractions, even of few numbers."""
    low, high = min(point[key] for point in points), max(point[key] for point in points)
    alt = load_altair()
    return alt.Axis(values=list(range(low, high + 1))) if high - low < BINS else alt.Axis(tickMinStep=1)


def _scale(value: str) -> Any:
    alt = load_altair()
    return alt.Scale(type="log") if value == "loss" else alt.Scale(zero=value != "correlation")


def _line_chart(
    runs: Runs,
    points: list[Point],
    value: str,
    title: Any,
    *,
    kinds: Sequence[str] = (),
    percent: bool = False,
    beyond: Sequence[Point] = (),
) -> altair.LayerChart | None:
    """Draw lines over rounds, one color per kind; for several runs one color per run, and kinds are dashed.

    Triangles mark the points `beyond` the chart.
    """
    if not points:
        return None
    alt = load_altair()
    present = {point["kind"] for point in points}
    kinds = [kind for kind in kinds if kind in present]
    if len(runs) == 1:
        field, names = "kind", kinds or list(dict.fromkeys(point["kind"] for point in points))
    else:
        field, names = "run", _names(runs)
    dashes = dash(field, names)
    if kinds and field == "run":
        legend = alt.Legend(orient="top", title=None, symbolType="stroke")
        dashes = alt.StrokeDash("kind:N", sort=kinds, legend=legend)
    shown = hiding(field, names)
    axis = alt.Axis(format="%") if percent else alt.Axis()
    if value == "refused":
        axis = _whole(points, value)
    base = _over_rounds(points, field, names)
    lines = base.mark_line(point=alt.OverlayMarkDef(size=12)).encode(
        y=alt.Y(f"{value}:Q", axis=axis, scale=_scale(value)),
        strokeDash=dashes,
        opacity=opacity(shown),
        tooltip=[f"{field}:N", "round:Q", alt.Tooltip(f"{value}:Q", format=".2%" if percent else ".4g")],
    )
    triangles = (
        alt.Chart(alt.Data(values=list(beyond)))
        .mark_point(shape="triangle-up", filled=True, size=60)
        .encode(
            x="round:Q",
            y=f"{value}:Q",
            color=f"{field}:N",
            opacity=opacity(shown),
            tooltip=[f"{field}:N", "round:Q", alt.Tooltip("value:N", title=value)],
        )
    )
    layers = [lines, triangles] if beyond else [lines]
    chart: altair.LayerChart = alt.layer(*layers).add_params(shown).properties(title=title)
    return chart
