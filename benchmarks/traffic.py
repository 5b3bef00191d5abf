"""Accuracy against bytes: MNIST with every kind of ballot, without and with 20% reversing clients.

python benchmarks/traffic.py --data-dir DATA --runs runs/traffic

Each run is an ordinary `fedrank run` in a directory of its own. What is done is not done again, and what
was interrupted is resumed. At the end the results are written to runs/traffic/results.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

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
