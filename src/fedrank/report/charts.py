"""What all charts share: colors, legends, and writing to files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrank.errors import ConfigError
from fedrank.experiment.rundir import write_output

if TYPE_CHECKING:
    import altair

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#888888")
"""Okabe and Ito (2008): colors that color-blind people can tell apart; gray replaces their yellow."""
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
"""Further series reuse the colors, dashed."""
LONG = 24
"""A legend lists longer names one per line."""
SUFFIXES = (".svg", ".png", ".html")


def load_altair() -> Any:
    """Return altair, or say what is missing."""
    try:
        import altair
        import vl_convert  # noqa: F401  (writes the pictures)
    except ImportError:
        raise ConfigError("charts need an extra: pip install 'fedrank[plot]'") from None
    return altair


def color(
    field: str, names: Sequence[str], title: str | None = None, drawn: Sequence[str] | None = None
) -> Any:
    """Return a color for each name, with a legend below if there is more than one.

    The legend lists only the names that are drawn; all names keep the colors they have in other charts.
    """
    alt = load_altair()
    return alt.Color(
        f"{field}:N",
        title=title,
        sort=list(names),
        scale=alt.Scale(domain=list(names), range=list(COLORS)),
        legend=_legend(drawn or names) if len(names) > 1 else None,
    )


def _legend(names: Sequence[str]) -> Any:
    columns = 2 if max(map(len, names), default=0) <= LONG else 1
    return load_altair().Legend(
        orient="bottom",
        labelLimit=0,
        columns=columns,
        symbolOpacity=1,
        symbolType="stroke" if len(names) > len(COLORS) else "circle",
        values=list(names),
    )


def dash(field: str, names: Sequence[str]) -> Any:
    """Return the dashes that tell series of the same color apart, in the same legend."""
    alt = load_altair()
    dashes = [DASHES[number // len(COLORS) % len(DASHES)] for number in range(len(names))]
    scale = alt.Scale(domain=list(names), range=dashes)
    if len(names) <= len(COLORS):
        return alt.StrokeDash(f"{field}:N", sort=list(names), scale=scale, legend=None)
    return alt.StrokeDash(f"{field}:N", title=None, sort=list(names), scale=scale, legend=_legend(names))


def hiding(field: str, names: Sequence[str]) -> Any:
    """Return which series are shown: a click in the legend hides one, another shows it."""
    return load_altair().selection_point(
        fields=[field], bind="legend", toggle="true", value=[{field: name} for name in names]
    )


def opacity(shown: Any, value: float = 1.0) -> Any:
    """Return the opacity of a series that is shown, or hidden."""
    alt = load_altair()
    return alt.condition(shown, alt.value(value), alt.value(0))


def save(chart: altair.TopLevelMixin, path: Path) -> None:
    """Write a chart in the format of its file name."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"{path}: a chart can be written as {', '.join(SUFFIXES)}")
    kind = path.suffix.lower()[1:]
    options = {"inline": True} if kind == "html" else {"scale_factor": 2}
    if kind == "png":
        picture = io.BytesIO()
        chart.save(picture, format=kind, **options)  # type: ignore[arg-type]
        write_output(path, picture.getbuffer())
    else:
        text = io.StringIO()
        chart.save(text, format=kind, **options)  # type: ignore[arg-type]
        write_output(path, text.getvalue().encode())
