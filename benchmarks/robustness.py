"""The first block of the paper's robustness table: MNIST, all algorithms, 0, 10 and 20% malicious clients.

python benchmarks/robustness.py --data-dir DATA --runs runs/robustness

Each run is an ordinary `fedrank run` in a directory of its own. What is done is not done again, and what
was interrupted is resumed. At the end the results are written to runs/robustness/results.json, drawn in
robustness.svg beside it, and printed as the table of docs/results/robustness.md with the published numbers.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import altair as alt
from runs import finished

from fedrank.report.charts import COLOURS, save

WEIGHTS, RANKS = "mnist-weights", "mnist"
ROWS: list[tuple[str, str, dict[str, Any], str, tuple[float, float, float] | None]] = [
    ("FedAvg", WEIGHTS, {}, "scaled", (98.8, 10.0, 10.0)),
    ("Trimmed-mean", WEIGHTS, {"method.aggregator": "trimmed-mean"}, "dyn-trimmed-mean", (98.8, 95.1, 87.6)),
    ("Multi-Krum", WEIGHTS, {"method.aggregator": "multi-krum"}, "dyn-multi-krum", (98.8, 98.6, 97.9)),
    ("SignSGD", WEIGHTS, {"method.name": "signsgd"}, "sign-reverse", (97.2, 96.6, 96.2)),
    ("FRL", RANKS, {}, "reverse", (98.8, 98.8, 98.7)),
    ("FRL, magnitude", RANKS, {"network.scores": "magnitude"}, "reverse", None),
    ("FRL, authors", RANKS, {"network.scores": "authors"}, "reverse", None),
    ("Sparse-FRL, top 50%", RANKS, {"wire.ballots": "top=50%"}, "reverse", (98.2, 97.04, 95.1)),
]
"""Name, preset, settings, attack, and the published mean accuracy over clients after 2000 rounds."""
SHARES = (0.0, 0.1, 0.2)


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs/robustness"))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--only", action="append", help="a row by its name; can be repeated")
    options = parser.parse_args()
    results = []
    for name, preset, settings, attack, published in ROWS:
        if options.only and name not in options.only:
            continue
        for number, share in enumerate(SHARES):
            chosen = {
                "rounds": options.rounds,
                "evaluate_every": 5,
                "attack.name": attack if share else "none",
                "attack.share": share,
                **settings,
            }
            directory = options.runs / f"{name}-{share:.0%}".replace(" ", "_").replace("%", "")
            summary = finished(directory, preset, chosen, options.data_dir)
            clients = summary["evaluation"]["clients"]
            results.append(
                {
                    "name": name,
                    "attack": attack,
                    "malicious": share,
                    "rounds": summary["rounds"],
                    "test_accuracy": summary["evaluation"]["test_accuracy"],
                    "clients_mean": clients["mean"],
                    "clients_std": clients["std"],
                    "published": published[number] if published else None,
                    "curve": curve(directory),
                }
            )
            print({key: value for key, value in results[-1].items() if key != "curve"}, flush=True)
    (options.runs / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    print_table(results)
    draw(results, options.runs / "robustness.svg")


def curve(directory: Path) -> list[tuple[int, float]]:
    """Return the accuracy on the official test set of every measured round."""
    records = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [(r["round"], r["evaluation"]["test_accuracy"]) for r in records if r["evaluation"]]


def print_table(results: list[dict[str, Any]]) -> None:
    """Print a row for each algorithm: the mean over clients, its deviation, and the published mean."""
    print("| algorithm | attack | no malicious | 10% | 20% | published: none | 10% | 20% |")
    print("|---|---|---|---|---|---|---|---|")
    for begin in range(0, len(results), len(SHARES)):
        row = results[begin : begin + len(SHARES)]
        ours = (f"{100 * r['clients_mean']:.1f} ({100 * r['clients_std']:.1f})" for r in row)
        theirs = ("" if r["published"] is None else str(r["published"]) for r in row)
        print("|", " | ".join((row[0]["name"], row[0]["attack"], *ours, *theirs)), "|")


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """Draw accuracy over rounds, a panel for each share of malicious clients."""
    names = list(dict.fromkeys(result["name"] for result in results))
    panels = []
    for share in SHARES:
        points = [
            {"name": result["name"], "round": number, "accuracy": accuracy}
            for result in results
            if result["malicious"] == share
            for number, accuracy in result["curve"]
        ]
        colours = alt.Scale(domain=names, range=list(COLOURS))
        panels.append(
            alt.Chart(alt.Data(values=points), title=f"{share:.0%} malicious")
            .mark_line(point=True)
            .encode(
                x=alt.X("round:Q", title="round"),
                y=alt.Y("accuracy:Q", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%")),
                color=alt.Color("name:N", title=None, scale=colours),
            )
            .properties(width=230, height=260)
        )
    title = "MNIST: accuracy on the official test set, each algorithm under the attack made for it"
    save(alt.hconcat(*panels).properties(title=title), path)


if __name__ == "__main__":
    main()
