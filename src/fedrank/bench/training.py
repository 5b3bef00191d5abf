"""Benchmarks of a client's training step, a round, and an evaluation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from fedrank.bench.measure import Limits, Row, cpu_seconds
from fedrank.data import Dirichlet, Federation, load, partition, split
from fedrank.engine import Engine, local_engine
from fedrank.engine.task import one_thread
from fedrank.errors import DataError
from fedrank.experiment.metrics import test_samples
from fedrank.experiment.rounds import RunSetup, Schedule, run_rounds, select
from fedrank.methods import FRL, FedAvg, Method
from fedrank.nn import (
    NETWORKS,
    LocalTraining,
    MaskedNetwork,
    Precision,
    Supernetwork,
    channels_last,
    supernetwork,
)
from fedrank.processor import has_bfloat16

CPU = torch.device("cpu")
BATCH = 8
WHOLE = "whole step"
SHAPES = {"lenet": (1, 28, 28), "conv8": (3, 32, 32)}


def step_flop(network: Supernetwork, shape: tuple[int, ...], batch: int) -> int:
    """Count the multiplications and additions of one forward and backward pass."""
    masked = MaskedNetwork(network, CPU)
    masked.begin(network.initial_scores)
    with FlopCounterMode(display=False) as counter:
        logits = masked.forward(torch.rand(batch, *shape))
        masked.backward(logits.sum())
    return int(counter.get_total_flops())


def steps(limits: Limits, *, quick: bool) -> Iterator[Row]:
    """Measure a client's step and its parts; in bfloat16 only where the processor has instructions for it."""
    for name, shape in SHAPES.items():
        network = supernetwork(NETWORKS[name](), seed=7, keep=0.5)
        section, repeat = f"step of {name}, batch {BATCH}", 3 if quick else 20
        limit = step_flop(network, shape, BATCH) / limits.flop_per_second
        yield Row(section, "limit: its matrix multiplications", 1e3 * limit, "ms", 1.0)
        wholes = []
        for precision in Precision if has_bfloat16() else [Precision.FLOAT32]:
            with one_thread():
                parts = _step_parts(network, shape, repeat, precision)
            for part, seconds in parts.items():
                yield Row(section, f"{part}, {precision}", 1e3 * seconds, "ms", seconds / limit)
            wholes.append(parts[WHOLE])
        if len(wholes) > 1:
            yield Row(section, "bfloat16 by float32", wholes[1] / wholes[0], "")
        ranked = cpu_seconds(lambda net=network: net.rank(net.initial_scores), repeat=2)  # type: ignore[misc]
        yield Row(section, "ranking, once a round", 1e3 * ranked, "ms", ranked / limit)


def _step_parts(
    network: Supernetwork, shape: tuple[int, ...], repeat: int, precision: Precision
) -> dict[str, float]:
    """Train on changing batches, so that the gradients are realistic."""
    masked = MaskedNetwork(network, CPU, precision)
    rng = np.random.default_rng(0)
    batches = torch.from_numpy(rng.normal(size=(repeat, BATCH, *shape)).astype(np.float32))
    labels = torch.from_numpy(rng.integers(0, 10, (repeat, BATCH)))
    parts: dict[str, list[float]] = {"forward and backward": [], "descent and mask": []}
    for _ in range(3):
        masked.begin(network.initial_scores)
        for images, targets in zip(batches, labels, strict=True):
            times = [time.process_time()]
            masked.backward(cross_entropy(masked.forward(images), targets))
            times.append(time.process_time())
            masked.descend(0.4, 0.9, 1e-4)
            times.append(time.process_time())
            for part, seconds in zip(parts.values(), np.diff(times), strict=True):
                part.append(float(seconds))
    medians = {name: float(np.median(seconds)) for name, seconds in parts.items()}
    return {**medians, WHOLE: sum(medians.values())}


def mnist(data_dir: Path) -> tuple[str, Federation]:
    """Return MNIST partitioned among 1000 clients, or noise of the same shape if MNIST is missing."""
    try:
        loaded = load("mnist", data_dir)
    except DataError:
        rng = np.random.default_rng(0)
        images = rng.integers(0, 256, (60_000, 1, 28, 28), dtype=np.uint8)
        labels = rng.integers(0, 10, 60_000)
        test = (images[:10_000], labels[:10_000])
        noise = split(images, labels, by=Dirichlet(1.0), clients=1000, seed=7, test=test, preprocess=None)
        return "noise in MNIST's shape", noise
    federation = partition(loaded.dataset, loaded.train_count, by=Dirichlet(1.0), clients=1000, seed=7)
    return "MNIST", federation


def rounds(limits: Limits, data_dir: Path, *, quick: bool) -> Iterator[Row]:
    """Measure a round of MNIST without evaluation, and an evaluation of all clients."""
    what, federation = mnist(data_dir)
    network = supernetwork(NETWORKS["lenet"](), seed=7, keep=0.5)
    frl: Method[Any] = FRL(network, local := LocalTraining(epochs=2, balanced=False), vote="screened-mean")
    clients = select(federation.voters, 4 if quick else 25, 7, 0)
    samples = sum(federation.clients[client].train.size for client in clients) * local.epochs
    limit = samples * step_flop(network, (1, 28, 28), BATCH) / BATCH / limits.flop_per_second
    section = f"round of {what}, {len(clients)} clients"
    yield Row(section, "limit: its matrix multiplications", limit, "CPU s", 1.0)
    costs: dict[int, tuple[float, float]] = {}
    evaluated: list[Row] = []
    for workers in (1, 2):
        with local_engine(frl, federation, workers=workers) as engine:
            state, cpu, wall = _run_round(frl, engine, clients, workers)
            costs[workers] = (cpu, wall)
            yield Row(section, f"FRL with {workers} worker(s)", cpu, "CPU s", cpu / limit)
            yield Row(section, f"FRL with {workers} worker(s)", wall, "wall s")
            if workers == 1:
                evaluated += _evaluation(frl, federation, engine, state, quick=quick)
            else:
                evaluated += _parallel_evaluation(federation, engine, state, quick=quick)
    yield Row(section, "wall time of 2 workers by that of 1", costs[2][1] / costs[1][1], "")
    yield from _measured_rounds(section, FRL(network, local), federation, len(clients))
    fedavg: Method[Any] = FedAvg(network, local)
    with local_engine(fedavg, federation, workers=2) as engine:
        _, cpu, _ = _run_round(fedavg, engine, clients, 2)
        yield Row(section, "FedAvg with 2 worker(s)", cpu, "CPU s", cpu / limit)
        yield Row(section, "FedAvg by FRL, CPU", cpu / costs[2][0], "")
    if has_bfloat16():
        faster: Method[Any] = FRL(network, replace(local, precision=Precision.BFLOAT16), vote="screened-mean")
        with local_engine(faster, federation, workers=2) as engine:
            _, cpu, wall = _run_round(faster, engine, clients, 2)
            yield Row(section, "FRL with 2 worker(s), bfloat16", cpu, "CPU s", cpu / limit)
            yield Row(section, "FRL with 2 worker(s), bfloat16", wall, "wall s")
    yield from evaluated


def _run_round(
    method: Method[Any], engine: Engine, clients: tuple[int, ...], workers: int
) -> tuple[Any, float, float]:
    """Run one round. Return the state, CPU seconds and wall seconds."""
    state = method.init()
    engine.collect(method.broadcast(state), clients[:workers])  # warm-up: loads and compiles everything
    cpu, wall = engine.cpu_seconds(), time.perf_counter()
    collected = engine.collect(method.broadcast(state), clients)
    state = method.aggregate(state, collected.messages)
    return state, engine.cpu_seconds() - cpu, time.perf_counter() - wall


def _measured_rounds(
    section: str, measured: FRL, federation: Federation, clients_per_round: int
) -> Iterator[Row]:
    """Measure rounds by the default vote, whose validators measure, beside rounds without measuring.

    The first round is left out: it loads and compiles everything.
    """
    walls = {}
    for vote in ("borda", "screened-mean", measured.vote):
        method: Method[Any] = replace(measured, vote=vote)
        setup = RunSetup.of(method, federation, Schedule(4, clients_per_round, evaluate_every=4))
        with local_engine(method, federation, workers=2) as engine:
            rounds = run_rounds(setup, engine, method.init())
            next(rounds)
            begin = time.perf_counter()
            for _ in range(2):
                next(rounds)
            walls[str(vote)] = (time.perf_counter() - begin) / 2
        yield Row(section, f"FRL with 2 worker(s), vote {vote}, rounds 2 and 3", walls[str(vote)], "wall s")
    for vote, other in (
        ("screened-mean", "borda"),
        *((str(measured.vote), each) for each in list(walls)[:2]),
    ):
        yield Row(section, f"{vote} by {other}, wall", walls[vote] / walls[other], "")


def _evaluation(
    method: Method[Any], federation: Federation, engine: Engine, state: Any, *, quick: bool
) -> Iterator[Row]:
    """Measure the evaluation of all clients on one core, beside a plain pass over the samples."""
    section, samples = _evaluated(federation, quick=quick)
    dataset, model = federation.dataset, method.model(state)

    def plain_pass() -> None:
        with torch.inference_mode(), one_thread():
            for begin in range(0, samples.size, 1000):
                chosen = samples[begin : begin + 1000]
                model(channels_last(torch.from_numpy(dataset.preprocess(dataset.inputs[chosen]))))

    plain = cpu_seconds(plain_pass, repeat=1, times=1)
    ours = cpu_seconds(lambda: engine.predict(state, samples), repeat=1, times=1)
    yield Row(section, "one plain pass in batches of 1000", plain, "CPU s", 1.0)
    yield Row(section, "every client's accuracy", ours, "CPU s", ours / plain)


def _parallel_evaluation(federation: Federation, engine: Engine, state: Any, *, quick: bool) -> Iterator[Row]:
    """Measure how long the workers wait for each other at the end of an evaluation."""
    section, samples = _evaluated(federation, quick=quick)
    engine.predict(state, samples)
    cpu, wall = engine.cpu_seconds(), time.perf_counter()
    engine.predict(state, samples)
    wall, cpu = time.perf_counter() - wall, engine.cpu_seconds() - cpu
    yield Row(section, "every client's accuracy, 2 workers", wall, "wall s")
    yield Row(section, "share of that time in which a core is idle", 1 - cpu / 2 / wall, "")


def _evaluated(federation: Federation, *, quick: bool) -> tuple[str, NDArray[np.int64]]:
    samples = test_samples(federation)[: 1000 if quick else None]
    return f"evaluation of {samples.size:,} test samples", samples
