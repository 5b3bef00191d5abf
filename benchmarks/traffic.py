"""Accuracy against bytes: MNIST with every kind of ballot, without and with 20% reversing clients.

python benchmarks/traffic.py --data-dir DATA --runs runs/traffic

Each run is an ordinary `fedrank run` in a directory of its own. What is done is not done again, and what
was interrupted is resumed. At the end the results are written to runs/traffic/results.json, drawn in
traffic.svg beside it, and printed as the table of docs/results/traffic.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import altair as alt

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
            if not (directory / "summary.json").exists():
                run(directory, ballots, broadcasts, share, options)
            summary = json.loads((directory / "summary.json").read_text())
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
    """Draw accuracy against upload."""
    points = [
        {
            "kind": result["ballots"].removesuffix(" coded")
            + (", rounded down" if result["ballots"] == EXACT != result["broadcasts"] else ""),
            "upload": result["upload_bytes"] / 1024,
            "accuracy": result["accuracy"],
            "malicious": "20% reversing" if result["malicious"] else "no malicious client",
        }
        for result in results
    ]
    base = alt.Chart(alt.Data(values=points)).encode(
        x=alt.X("upload:Q", scale=alt.Scale(type="log"), title="upload per client and round, KiB"),
        y=alt.Y("accuracy:Q", scale=alt.Scale(zero=False), axis=alt.Axis(format="%"), title="accuracy"),
    )
    shape = alt.Color("malicious:N", title=None, scale=alt.Scale(range=list(COLOURS[:2])))
    marks = base.mark_point(size=60, filled=True).encode(
        color=shape, shape=alt.Shape("malicious:N", title=None)
    )
    names = base.mark_text(align="left", dx=6, dy=-4, fontSize=8, angle=335).encode(text="kind:N")
    title = f"MNIST after {results[0]['rounds']} rounds: accuracy against bytes"
    save(alt.layer(marks, names).properties(width=640, height=380, title=title), path)


def name_of(ballots: str, broadcasts: str, share: float) -> str:
    return f"{ballots}-{broadcasts}-{share:.0%}".replace(" ", "_").replace("%", "")


def run(directory: Path, ballots: str, broadcasts: str, share: float, options: argparse.Namespace) -> None:
    fedrank = [sys.executable, "-c", "from fedrank.cli import main; main()"]
    if directory.exists():
        subprocess.run([*fedrank, "resume", str(directory)], check=True)
        return
    settings = {
        "rounds": options.rounds,
        "evaluate_every": 10,
        "wire.ballots": ballots,
        "wire.broadcasts": broadcasts,
        "attack.name": "reverse" if share else "none",
        "attack.share": share,
    }
    chosen = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    where = ["--data-dir", str(options.data_dir), "--out", str(directory)]
    subprocess.run([*fedrank, "run", "--preset", options.preset, *chosen, *where], check=True)


if __name__ == "__main__":
    main()
