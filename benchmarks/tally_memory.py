"""The server's memory and time while it tallies 1,000 ballots of 1.6M edges."""

from __future__ import annotations

import argparse
import resource
import time
import tracemalloc

import numpy as np

from fedrank.rank import Ballot, Layout, Tally

LENET = Layout.of(
    [("conv1", (32, 1, 3, 3)), ("conv2", (64, 32, 3, 3)), ("linear1", (128, 12544)), ("linear2", (10, 128))]
)
CHECKPOINTS = (1, 10, 100, 250, 500, 1000)


def random_ballot(rng: np.random.Generator) -> Ballot:
    ranking = np.concatenate([rng.permutation(layer.size) for layer in LENET])
    return Ballot.of(ranking.astype(np.int32), LENET)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ballots", type=int, default=1000)
    count = parser.parse_args().ballots
    rng = np.random.default_rng(0)
    ready = [random_ballot(rng) for _ in range(4)]
    tracemalloc.start()
    tally = Tally(LENET)
    cpu_seconds = 0.0
    print(f"{LENET.size:,} edges; memory of the tally and of adding a ballot to it")
    print(f"{'ballots':>8} {'current MiB':>12} {'peak MiB':>9} {'process MiB':>12} {'CPU ms a ballot':>16}")
    for number in range(1, count + 1):
        begin = time.process_time()
        tally.add(ready[number % len(ready)])
        cpu_seconds += time.process_time() - begin
        if number in CHECKPOINTS or number == count:
            current, peak = tracemalloc.get_traced_memory()
            process = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"{number:8} {current / 2**20:12.1f} {peak / 2**20:9.1f} {process:12.1f} "
                f"{1000 * cpu_seconds / number:16.1f}"
            )
    begin = time.process_time()
    tally.vote()
    print(f"vote: {1000 * (time.process_time() - begin):.0f} ms of CPU time")


if __name__ == "__main__":
    main()
