"""The runs behind the paper's tables and figures.

Every run is a shipped preset with some settings. `paper` is the published setting, `laptop` and `night` have
fewer rounds and the rates that these take, and `smoke` a few clients and one round on the digits, to see that
everything works.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fedrank.experiment.sweep import Cell
from fedrank.paper import published

DATA = ("mnist", "cifar10", "femnist")
ROUNDS = {
    "laptop": {"mnist": 30, "cifar10": 30, "femnist": 30},
    "night": {"mnist": 200, "cifar10": 60, "femnist": 200},
}
"""How many rounds are run at the scales between `smoke` and `paper`."""
MEASUREMENTS = 6
"""How often these runs are evaluated, at least; the presets evaluate every tenth round."""
QUICK_START = {"femnist": ("local.learning_rate=0.02",)}
"""For training weights at these scales: the published rate gets nowhere in the first rounds."""
PRINTED = {"cifar10-weights": {"local.learning_rate": 0.1}}
"""Settings that the paper prints where a preset has others, as these did not learn (docs/decisions.md)."""
SMOKE = ("rounds=1", "local.epochs=1", "data.clients=60", "clients_per_round=6", "evaluate_every=1")


@dataclass(frozen=True)
class Algorithm:
    """A row of the paper's tables: what it sends, how it is set up, and the attack that was made for it."""

    name: str
    weights: bool
    settings: tuple[str, ...] = ()
    attack: str = "reverse"


def _ranks(name: str, *settings: str) -> Algorithm:
    return Algorithm(name, weights=False, settings=("method.vote=borda", *settings))


FEDAVG = Algorithm("FedAvg", weights=True, attack="scaled")
TRIMMED_MEAN = Algorithm("Trimmed-mean", True, ("method.aggregator=trimmed-mean",), "dyn-trimmed-mean")
MULTI_KRUM = Algorithm("Multi-Krum", True, ("method.aggregator=multi-krum",), "dyn-multi-krum")
SIGNSGD = Algorithm("SignSGD", True, ("method.name=signsgd",), "sign-reverse")
TOPK_50 = Algorithm("TopK 50%", True, ("method.name=topk", "method.share=0.5"), "scaled")
TOPK_10 = Algorithm("TopK 10%", True, ("method.name=topk", "method.share=0.1"), "scaled")
FRL = _ranks("FRL")
SPARSE_50 = _ranks("Sparse-FRL, top 50%", "wire.ballots=top=50%")
SPARSE_10 = _ranks("Sparse-FRL, top 10%", "wire.ballots=top=10%")
MAGNITUDE = _ranks("FRL, magnitude scores", "network.scores=magnitude")
AUTHORS = _ranks("FRL, authors' scores", "network.scores=authors")


def run_of(
    algorithm: Algorithm,
    data: str,
    scale: str,
    coordinates: dict[str, str],
    settings: Iterable[str] = (),
    share: float = 0.0,
) -> Cell:
    """Return one run: an algorithm on a data set at a scale, with what makes this run different."""
    attacked = (f"attack.name={algorithm.attack}", f"attack.share={share}") if share else ()
    chosen = (*algorithm.settings, *settings, *attacked)
    suffix = "-weights" if algorithm.weights else ""
    match scale:
        case "smoke":
            return Cell(coordinates, f"digits{suffix}", (*SMOKE, *chosen))
        case "laptop" | "night":
            rounds = ROUNDS[scale][data]
            size = (f"rounds={rounds}", f"evaluate_every={min(10, rounds // MEASUREMENTS)}")
            start = QUICK_START.get(data, ()) if algorithm.weights else ()
            return Cell(coordinates, f"{data}{suffix}", (*start, *chosen, *size))
        case _:
            return Cell(coordinates, f"{data}{suffix}", chosen)


def robustness(scale: str) -> list[Cell]:
    """Return six algorithms and two further score modes, with 0, 10 and 20% malicious clients."""
    rows = (FEDAVG, TRIMMED_MEAN, MULTI_KRUM, SIGNSGD, FRL, MAGNITUDE, AUTHORS, SPARSE_50)
    return [
        run_of(
            algorithm,
            data,
            scale,
            {"data": data, "algorithm": algorithm.name, "malicious": f"{share:.0%}"},
            share=share,
        )
        for data in DATA
        for algorithm in rows
        for share in (0.0, 0.1, 0.2)
    ]


def traffic(scale: str) -> list[Cell]:
    """Return what each algorithm reaches for its bytes."""
    rows = (FEDAVG, FRL, SPARSE_50, SPARSE_10, SIGNSGD, TOPK_50, TOPK_10)
    return [
        run_of(algorithm, data, scale, {"data": data, "algorithm": algorithm.name})
        for data in DATA
        for algorithm in rows
    ]


def non_iid(scale: str) -> list[Cell]:
    """Return two ways of dealing data unevenly. The digits of `smoke` have no test set to cut into shards."""
    dealt = {
        "dirichlet": ("data.partition=dirichlet",),
        "shards": ("data.partition=shards", *([] if scale == "smoke" else ["data.test_shards=true"])),
    }
    return [
        run_of(
            algorithm,
            data,
            scale,
            {"data": data, "distribution": partition, "algorithm": algorithm.name},
            dealt[partition],
        )
        for data in DATA[:2]
        for partition in ("dirichlet", "shards")
        for algorithm in (FEDAVG, FRL)
    ]


def weights(scale: str) -> list[Cell]:
    """Return three ways of drawing the weights, and FedAvg, which trains them."""
    found = []
    for data in DATA:
        found.append(run_of(FEDAVG, data, scale, {"data": data, "weights": FEDAVG.name}))
        for name in ("glorot-normal", "kaiming-normal", "signed-kaiming-constant"):
            coordinates = {"data": data, "weights": name}
            found.append(run_of(FRL, data, scale, coordinates, (f"network.weights={name}",)))
    return found


def subnetworks(scale: str) -> list[Cell]:
    """Return subnetworks of 10 to 90% of the edges, and the whole random network."""
    return [
        run_of(FRL, data, scale, {"data": data, "k": f"{percent}%"}, (f"network.keep={percent / 100}",))
        for data in DATA
        for percent in range(10, 101, 10)
    ]


KEYS = {
    "batch size": "local.batch_size",
    "local epochs": "local.epochs",
    "learning rate": "local.learning_rate",
    "participants": "clients_per_round",
    "beta": "data.beta",
}
"""The paper's words for settings of ours."""


def hyperparameters(scale: str) -> list[Cell]:
    """Return other batch sizes, epochs and learning rates, with 10% malicious clients."""
    algorithms = {each.name: each for each in (FRL, FEDAVG, TRIMMED_MEAN, MULTI_KRUM, SIGNSGD)}
    algorithms["TopK"] = TOPK_10
    found = []
    for name, key, value in published.HYPERPARAMETERS:
        coordinates = {"algorithm": name, "setting": key, "value": value}
        settings = (f"{KEYS[key]}={value}",) if key in KEYS else ()
        found.append(run_of(algorithms[name], "cifar10", scale, coordinates, settings, 0.1))
    return found


def other_settings(scale: str) -> list[Cell]:
    """Return other numbers of participants and epochs, and other degrees of non-iid data."""
    found = []
    for key, value in published.OTHER_SETTINGS:
        settings = (f"{KEYS[key]}={value}.0",) if key == "beta" else (f"{KEYS[key]}={value}",)
        found.append(run_of(FRL, "cifar10", scale, {"setting": key, "value": value}, settings))
    return found


EXACT, ROUNDED = "exact coded", "levels=256 coded"
BALLOTS = (
    (EXACT, EXACT),
    (EXACT, ROUNDED),
    *(
        (f"levels={count}{dither} coded", ROUNDED)
        for count in (256, 64, 16, 4, 2)
        for dither in ("", " dithered")
    ),
    ("top=50% coded", EXACT),
    ("top=10% coded", EXACT),
)
"""Kinds of ballots, each with the broadcasts that go with it."""


def ballots(scale: str) -> list[Cell]:
    """Return every kind of ballot, without and with 20% reversing clients. The paper has no such table."""
    return [
        run_of(
            FRL,
            "mnist",
            scale,
            {"ballots": kind, "broadcasts": broadcasts, "malicious": f"{share:.0%}"},
            (f"wire.ballots={kind}", f"wire.broadcasts={broadcasts}"),
            share=share,
        )
        for kind, broadcasts in BALLOTS
        for share in (0.0, 0.2)
    ]


def curves(scale: str) -> list[Cell]:
    """Return runs with different numbers of local epochs."""
    return [
        run_of(FRL, "cifar10", scale, {"local epochs": str(epochs)}, (f"local.epochs={epochs}",))
        for epochs in (1, 2, 5, 10)
    ]
