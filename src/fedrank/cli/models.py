"""Commands that export trained models and use them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedrank.cli.base import RunDirArgument, app, out, say


def _complete_kind() -> list[str]:
    return ["torch", "onnx", "fedrank"]


@app.command(rich_help_panel="Models")
def export(
    run_dir: RunDirArgument,
    to: Annotated[
        str,
        typer.Option(
            help="Format: torch (a state dict), onnx, or fedrank (a seed and one bit per edge).",
            autocompletion=_complete_kind,
        ),
    ] = "torch",
    out_file: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Output file.", show_default="model.* in the run directory"),
    ] = None,
) -> None:
    """Export the model of a run.

    A state dict fits the network of the same name in fedrank.nn.NETWORKS, or your own model.
    An ONNX model includes the preprocessing: it takes raw pixel values, such as 0 to 255.
    """
    from fedrank.errors import ConfigError, RunError
    from fedrank.experiment.rundir import RunDirectory
    from fedrank.export import SUFFIXES
    from fedrank.export import export as write
    from fedrank.parameters import did_you_mean
    from fedrank.report.terminal import mebibytes
    from fedrank.run import load

    if to not in SUFFIXES:
        raise ConfigError(f"unknown format {to!r}{did_you_mean(to, SUFFIXES)}")
    directory = RunDirectory.open(run_dir)
    with out.status("building the model"):
        run = load(run_dir)
    if run.state.round == 0:
        raise RunError(f"{run_dir}: no completed round yet, so there is no model to export")
    path = out_file or run_dir / f"model{SUFFIXES[to]}"
    write(directory, run.method, run.state, to, path)
    say(f"Wrote {path} ({mebibytes(path.stat().st_size)})")


@app.command(rich_help_panel="Models")
def predict(
    model: Annotated[Path, typer.Argument(help="A model exported with '--to fedrank' or '--to onnx'.")],
    images: Annotated[list[Path], typer.Argument(help="Image files; resized to the model's input size.")],
) -> None:
    """Classify images with an exported model.

    Images must look like the model's training data: MNIST is white on black, FEMNIST black on white.
    """
    import numpy as np
    from rich.markup import escape
    from rich.table import Table

    from fedrank.errors import RunError
    from fedrank.export import open_model, read_images

    portable = open_model(model)
    logits = portable.predict(read_images(images, portable.source))[:, : portable.source.classes]
    if not np.isfinite(logits).all():
        raise RunError(f"{model}: the model outputs NaN or infinity")
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    table = Table(box=None, padding=(0, 2))
    table.add_column("image", overflow="fold")
    for heading in ("class", "probability", "runner-up"):
        table.add_column(heading, no_wrap=True)
    for path, row in zip(images, shares, strict=True):
        first, second = np.argsort(-row)[:2]
        names = portable.source.names
        table.add_row(
            escape(str(path)),
            f"[bold]{names[first]}[/]",
            f"{row[first]:.1%}",
            f"{names[second]} {row[second]:.1%}",
        )
    out.print(table)
