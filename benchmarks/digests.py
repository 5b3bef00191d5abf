"""Digests of short runs: whether a change of the code changes what comes out, to the byte.

    python benchmarks/digests.py --out before.json     # then change the code
    python benchmarks/digests.py --check before.json

For each run: the state after three rounds, its broadcast, one client's ballot or update, and of one run the
exported model. Training rounds differently on other processors, so both calls must be made on one machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from fedrank.engine import local_engine
from fedrank.experiment.build import build
from fedrank.experiment.config import load_preset
from fedrank.experiment.rounds import run_rounds
from fedrank.export import compact_bytes
from fedrank.methods import FRL
from fedrank.nn import Workspace
from fedrank.processor import processor_name
from fedrank.randomness import Purpose, keyed_generator

SHORT = ("rounds=3", "evaluate_every=3", "local.epochs=2", "data.clients=40", "clients_per_round=11")
BALLOTS = (
    *("exact packed", "exact coded", "levels=256 coded", "levels=16 packed", "levels=16 dithered coded"),
    *("levels=4 dithered coded", "levels=2 coded", "top=50% packed", "top=50% coded", "top=10% packed"),
)
RULES = (
    *("mean", "trimmed-mean", "median", "krum", "multi-krum", "geometric-median", "centred-clipping"),
    *("screened-mean", "nnm+trimmed-mean", "bucketing+median", "bucketing+nnm+krum"),
)
ON_RANKINGS = (
    *("random", "mirror-alone", "reverse", "mirror", "mirror-shallow", "mirror-tuned", "mirror-omniscient"),
    *("band", "vem", "lie", "min-max", "label-flip", "backdoor"),
)
ON_WEIGHTS = ("scaled", "sign-flip", "noise", "ipm", "min-sum", "dyn-trimmed-mean", "dyn-multi-krum")


def grid() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield a preset and settings for each run."""
    for scores in ("signed", "magnitude", "authors"):
        yield "digits", (f"network.scores={scores}", "method.vote=borda")
    for ballots in BALLOTS:
        for vote in ("borda", "screened-mean"):
            yield "digits", (f"wire.ballots={ballots}", f"method.vote={vote}")
    for broadcasts in ("exact coded", "levels=256 coded"):
        yield "digits", (f"wire.broadcasts={broadcasts}", "method.vote=borda")
    for rule in RULES:
        yield "digits", (f"method.vote={rule}",)
        yield "digits-weights", (f"method.aggregator={rule}",)
    yield "digits-weights", ("method.name=signsgd",)
    yield "digits-weights", ("method.name=topk",)
    for attack in ON_RANKINGS:
        for vote in ("borda", "screened-mean"):
            yield "digits", (f"attack.name={attack}", "attack.share=0.25", f"method.vote={vote}")
    for attack in ON_WEIGHTS:
        for rule in ("mean", "multi-krum"):
            yield (
                "digits-weights",
                (f"attack.name={attack}", "attack.share=0.25", f"method.aggregator={rule}"),
            )
    yield "digits-weights", ("attack.name=sign-reverse", "attack.share=0.25", "method.name=signsgd")
    told = ("method.told=false", "method.expected=0.3", "attack.name=min-max", "attack.share=0.25")
    yield "digits-weights", ("method.aggregator=trimmed-mean", *told)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def digests_of(preset: str, settings: tuple[str, ...]) -> dict[str, str]:
    """Play a run and return the digests of what it leaves behind."""
    experiment = load_preset(preset, (*SHORT, *settings))
    run = build(experiment, Path(tempfile.gettempdir()))
    method, state = run.method, run.method.init()
    with local_engine(method, run.federation, workers=1) as engine:
        for state, last in run_rounds(run, engine, state):
            pass
    client = int(run.federation.voters[0])
    broadcast = method.broadcast(state)
    rng = keyed_generator(method.network.seed, Purpose.LOCAL_TRAINING, state.round, client)
    received, samples = method.receive(broadcast), run.federation.train_samples(client)
    learned = method.client_update(received, samples, rng, Workspace(method.network))
    found = {
        "state": digest(
            b"".join(np.ascontiguousarray(each).tobytes() for each in method.pack(state).values())
        ),
        "broadcast": digest(broadcast),
        "message": digest(method.encode(received, learned.update, client)),
        "loss": repr(last.evaluation.test_loss if last.evaluation else None),
    }
    if isinstance(method, FRL) and preset == "digits":
        found["export"] = digest(compact_bytes(experiment, method, state))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the digests to this file")
    parser.add_argument("--check", type=Path, help="compare with the digests in this file")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, dict[str, str]] = {"": {"processor": processor_name()}}
    for preset, settings in grid():
        name = " ".join((preset, *settings))
        found[name] = digests_of(preset, settings)
        print(found[name]["state"], name, file=sys.stderr, flush=True)
    if chosen.out:
        chosen.out.write_text(json.dumps(found, indent=1) + "\n")
    if chosen.check:
        before = json.loads(chosen.check.read_text())
        different = [name for name in before.keys() | found.keys() if before.get(name) != found.get(name)]
        print(f"{len(found) - 1} runs, {len(different)} different")
        for name in sorted(different):
            print(f"  {name}: {before.get(name)} -> {found.get(name)}")
        sys.exit(bool(different))


if __name__ == "__main__":
    main()
