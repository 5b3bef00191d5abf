"""Commands that take trained models elsewhere."""

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
            help="torch (a state dict), onnx, or fedrank (a seed and one bit for every edge).",
            autocompletion=_complete_kind,
        ),
    ] = "torch",
    out_file: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The file.", show_default="model.* in the run directory"),
    ] = None,
) -> None:
    """Write the model of a run to a file.

    A state dict fits the network of the same name in fedrank.nn.NETWORKS. ONNX takes images as they are
    stored, such as 0 to 255, and holds the preprocessing.
    """
    from fedrank.errors import ConfigError, RunError
    from fedrank.experiment.build import build_method
    from fedrank.experiment.rundir import RunDirectory
    from fedrank.experiment.runner import last_state
    from fedrank.export import SUFFIXES
    from fedrank.export import export as write
    from fedrank.report.terminal import mebibytes

    if to not in SUFFIXES:
        raise ConfigError(f"--to {to}: there are {', '.join(SUFFIXES)}")
    run = RunDirectory.open(run_dir)
    with out.status("building the model"):
        method = build_method(run.experiment)
        state = last_state(run, method)
    if state.round == 0:
        raise RunError(f"{run_dir}: no round is finished yet, there is no model")
    path = out_file or run_dir / f"model{SUFFIXES[to]}"
    write(run, method, state, to, path)
    say(f"{path} is written, {mebibytes(path.stat().st_size)}.")


@app.command(rich_help_panel="Models")
def predict(
    model: Annotated[
        Path, typer.Argument(help="A file that 'fedrank export --to fedrank' or '--to onnx' made.")
    ],
    images: Annotated[
        list[Path], typer.Argument(help="Image files; they are resized to what the model takes.")
    ],
) -> None:
    """Say what is on images, with an exported model.

    Handwritten digits and characters must look as in the model's data set: MNIST is white on black, FEMNIST
    black on white.
    """
    import numpy as np
    from rich.markup import escape
    from rich.table import Table

    from fedrank.errors import RunError
    from fedrank.export import open_model, read_images

    portable = open_model(model)
    logits = portable.predict(read_images(images, portable.source))[:, : portable.source.classes]
    if not np.isfinite(logits).all():
        raise RunError(f"{model}: the model answers with what is no number")
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    table = Table(box=None, padding=(0, 2))
    table.add_column("image", overflow="fold")
    for heading in ("is", "sure", "or else"):
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
