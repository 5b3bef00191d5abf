"""Tables and heat maps of many runs."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from fedrank.paper.recipes import Recipe
from fedrank.report.charts import load_altair

if TYPE_CHECKING:
    import altair

SMOOTHED = 3
"""The accuracy of a cell is the mean of so many last measurements: single ones are noisy on small data."""

Row = dict[str, Any]


def accuracy_of(row: Row) -> float | None:
    """Return the accuracy on all test data at the end of a run, or None while it is not finished."""
    if not row["finished"]:
        return None
    return statistics.fmean(accuracy for _, accuracy in row["curve"][-SMOOTHED:])


def matrix_table(recipe: Recipe, rows: list[Row]) -> str:
    """Return results as a table in Markdown; what is not finished is shown as such."""
    columns = _in_order(_heading(row, recipe.columns) for row in rows)
    lines = [
        "| " + " | ".join([*recipe.rows, *columns]) + " |",
        "|" + "---|" * (len(recipe.rows) + len(columns)),
    ]
    for place in _in_order(tuple(row["place"][key] for key in recipe.rows) for row in rows):
        cells = dict.fromkeys(columns, "")
        for row in rows:
            if tuple(row["place"][key] for key in recipe.rows) == place:
                cells[_heading(row, recipe.columns)] = shown(row)
        lines.append("| " + " | ".join([*place, *cells.values()]) + " |")
    return "\n".join(lines)


def shown(row: Row) -> str:
    """Return a cell: the accuracy in percent, and beside it the published one and what a backdoor reached."""
    accuracy = accuracy_of(row)
    if accuracy is None:
        return "unfinished"
    text = f"{100 * accuracy:.1f}"
    if row["evaluation"].get("backdoor") is not None:
        text += f" (backdoor {100 * row['evaluation']['backdoor']:.0f})"
    if row["published"] is not None:
        text += f" (published {row['published']})"
    return text


def heat_map(recipe: Recipe, rows: list[Row], data: str) -> altair.FacetChart:
    """Draw the accuracies of one data set: attacks downwards, shares across, a panel for each vote."""
    alt = load_altair()
    points = [
        {**row["place"], "accuracy": accuracy_of(row)}
        for row in rows
        if row["finished"] and row["place"]["data"] == data
    ]
    names = {"x": recipe.columns[-1], "y": recipe.rows[-1], "panel": recipe.columns[0]}
    base = alt.Chart().encode(
        x=alt.X(f"{names['x']}:N", title="malicious clients"),
        y=alt.Y(f"{names['y']}:N", title=None, sort=None),
    )
    rectangles = base.mark_rect().encode(
        color=alt.Color(
            "accuracy:Q",
            scale=alt.Scale(scheme="viridis", domain=[0, 1]),
            legend=alt.Legend(format="%", title="accuracy"),
        )
    )
    numbers = base.mark_text(fontSize=9).encode(
        text=alt.Text("accuracy:Q", format=".0%"),
        color=alt.condition("datum.accuracy > 0.6", alt.value("black"), alt.value("white")),
    )
    chart: altair.FacetChart = (
        alt.layer(rectangles, numbers, data=alt.Data(values=points))
        .properties(width=170)
        .facet(alt.Column(f"{names['panel']}:N", title=None, sort=None))
        .properties(title=f"{data}: accuracy after {rows[0].get('rounds', '?')} rounds")
    )
    return chart


def _heading(row: Row, keys: tuple[str, ...]) -> str:
    return " ".join(row["place"][key] for key in keys)


def _in_order(values: Any) -> list[Any]:
    return list(dict.fromkeys(values))
