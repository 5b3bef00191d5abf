"""Accuracy against bytes: MNIST with every kind of ballot, without and with 20% reversing clients.

python benchmarks/traffic.py --data-dir DATA --runs runs/traffic

Each run is an ordinary `fedrank run` in a directory of its own. What is done is not done again, and what
was interrupted is resumed. At the end the results are written to runs/traffic/results.json, drawn in
traffic.svg beside it, and printed as the table of docs/results/traffic.md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import altair as alt
from runs import finished

from fedrank.report.charts import COLOURS, save

LEVELS = (256, 64, 16, 4, 2)
EXACT, ROUNDED = "exact coded", "levels=256 coded"
KINDS = [
    (EXACT, EXACT),
    (EXACT, ROUNDED),
    *((f"levels={count} {dither}coded", ROUNDED) for count in LEVELS for dither in ("", "dithered ")),
    ("top=50% coded", EXACT),
    ("top=10% coded", EXACT),
]
SHARES = (0.0, 0.2)


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs/traffic"))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--preset", default="mnist")
    options = parser.parse_args()
    results = []
    for ballots, broadcasts in KINDS:
        for share in SHARES:
            directory = options.runs / name_of(ballots, broadcasts, share)
            settings = {
                "rounds": options.rounds,
                "evaluate_every": 10,
                "wire.ballots": ballots,
                "wire.broadcasts": broadcasts,
                "attack.name": "reverse" if share else "none",
                "attack.share": share,
            }
            summary = finished(directory, options.preset, settings, options.data_dir)
            results.append(
                {
                    "ballots": ballots,
                    "broadcasts": broadcasts,
                    "malicious": share,
                    "rounds": summary["rounds"],
                    "accuracy": summary["evaluation"]["test_accuracy"],
                    "clients_mean": summary["evaluation"]["clients"]["mean"],
                    "upload_bytes": summary["sent"]["upload_bytes"],
                    "download_bytes": summary["sent"]["download_bytes"],
                }
            )
            print(results[-1], flush=True)
    (options.runs / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    print_table(results)
    draw(results, options.runs / "traffic.svg")


def print_table(results: list[dict[str, Any]]) -> None:
    """Print one row for each pair of kinds: both accuracies, and bytes without malicious clients."""
    print("| ballots | broadcasts | upload | download | no malicious | 20% reversing |")
    print("|---|---|---|---|---|---|")
    for peace, war in zip(results[::2], results[1::2], strict=True):
        sent = (f"{peace[f'{way}_bytes'] / 1024:,.0f} KiB" for way in ("upload", "download"))
        accuracies = (f"{result['accuracy']:.1%}" for result in (peace, war))
        print("|", " | ".join((peace["ballots"], peace["broadcasts"], *sent, *accuracies)), "|")


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """Draw the error against upload, without and with malicious clients."""
    points = []
    for result in results:
        shape, *words = result["ballots"].split()
        family = shape.partition("=")[0] + (", dithered" if "dithered" in words else "")
        points.append(
            {
                "family": family,
                "label": shape.partition("=")[2] or "exact",
                "upload": result["upload_bytes"] / 1024,
                "error": 100 * (1 - result["accuracy"]),
                "malicious": result["malicious"],
            }
        )
    families = ["levels", "levels, dithered", "exact", "top"]
    panels = []
    for share, title in zip(SHARES, ("no malicious client", "20% reversing clients"), strict=True):
        base = alt.Chart(alt.Data(values=[p for p in points if p["malicious"] == share])).encode(
            x=alt.X("upload:Q", scale=alt.Scale(type="log"), title="upload per client and round, KiB"),
            y=alt.Y("error:Q", scale=alt.Scale(type="log", domain=[3, 100]), title="wrong answers, %"),
            color=alt.Color(
                "family:N", title="ballots", scale=alt.Scale(domain=families, range=list(COLOURS[:4]))
            ),
        )
        marks = base.mark_line(point=alt.OverlayMarkDef(size=60))
        labels = base.mark_text(align="left", dx=6, dy=-6).encode(text="label:N")
        panels.append(alt.layer(marks, labels).properties(width=330, height=330, title=title))
    title = f"MNIST after {results[0]['rounds']} rounds: what a ballot costs and what it is worth"
    save(alt.hconcat(*panels).properties(title=title), path)


def name_of(ballots: str, broadcasts: str, share: float) -> str:
    return f"{ballots}-{broadcasts}-{share:.0%}".replace(" ", "_").replace("%", "")


if __name__ == "__main__":
    main()
