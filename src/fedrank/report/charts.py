"""What all charts share: colours, legends, and how they are written to files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrank.errors import ConfigError
from fedrank.experiment.rundir import write_output

if TYPE_CHECKING:
    import altair

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#888888")
"""Okabe and Ito (2008): colours that colour-blind people can tell apart; grey for their yellow."""
LONG = 24
"""Of names longer than this a legend has one in a line."""
SUFFIXES = (".svg", ".png", ".html")


def load_altair() -> Any:
    """Return altair, or say what is missing."""
    try:
        import altair
        import vl_convert  # noqa: F401  (writes the pictures)
    except ImportError:
        raise ConfigError("charts need an extra: pip install 'fedrank[plot]'") from None
    return altair


def colour(field: str, names: Sequence[str], title: str | None = None) -> Any:
    """Return the colours of a series for each name, with a legend below where there is more than one."""
    alt = load_altair()
    legend = alt.Legend(
        orient="bottom",
        labelLimit=300,
        columns=2 if max(map(len, names), default=0) <= LONG else 1,
        symbolOpacity=1,
    )
    return alt.Color(
        f"{field}:N",
        title=title,
        sort=list(names),
        scale=alt.Scale(domain=list(names), range=list(COLOURS)),
        legend=legend if len(names) > 1 else None,
    )


def hiding(field: str) -> tuple[Any, Any]:
    """Return a parameter that a click on the legend sets, and the opacity that hides what was clicked on."""
    alt = load_altair()
    clicked = alt.selection_point(fields=[field], bind="legend", toggle="true", empty=False)
    return clicked, alt.condition(clicked, alt.value(0), alt.value(1))


def save(chart: altair.TopLevelMixin, path: Path) -> None:
    """Write a chart as the kind of file that its name asks for."""
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
