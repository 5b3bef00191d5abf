"""Recipes: every table and figure of the paper, and three of our own, with the runs behind them."""

from __future__ import annotations

import difflib
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedrank.errors import ConfigError
from fedrank.experiment.grid import with_seeds
from fedrank.experiment.sweep import SEED, Cell
from fedrank.paper import published, runs, votes
from fedrank.parameters import did_you_mean

SCALES = {
    "smoke": "one round of a few clients on the digits, in seconds",
    "laptop": "30 rounds",
    "night": "200 rounds, CIFAR10 60: two cores make about 40 runs on MNIST, or 10 on CIFAR10, in a night",
    "paper": "2000 rounds, as published",
}
FEMNIST_CLIENTS = 3400
BEYOND = "beyond the paper"


class Shows(enum.Enum):
    """Which numbers of a run a table shows."""

    CLIENTS = "mean (standard deviation) of the clients' accuracies, in percent"
    SPREAD = "mean, standard deviation, least and greatest of the clients' accuracies, in percent"
    TRAFFIC = (
        "mean (standard deviation) of the clients' accuracies in percent; "
        "MiB that a client sends and receives with the paper's network"
    )
    SENT = "accuracy on all test data in percent; KiB that a client really sends and receives in a round"
    SMOOTHED = "accuracy on all test data in percent"
    WORST = (
        "accuracy on all test data in percent, the mean of the last three measurements; in brackets the "
        "worst measurement of the second half, and the worst class in the last three"
    )


def _none(scale: str) -> list[Cell]:  # noqa: ARG001
    return []


@dataclass(frozen=True)
class Recipe:
    """A table or figure: its runs at each scale, and which of their coordinates make rows and columns.

    A recipe without runs is computed.
    """

    name: str
    title: str
    source: str
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    cells: Callable[[str], list[Cell]] = _none
    numbers: published.Published = field(default_factory=dict)
    """The published numbers, by the coordinates of the runs."""
    shows: Shows = Shows.CLIENTS
    note: str = ""

    @property
    def published(self) -> bool:
        """Whether the paper has such a table."""
        return self.source != BEYOND

    @property
    def has_seeds(self) -> bool:
        """Whether seeds are rows or columns; otherwise the table shows the mean over several."""
        return SEED in (*self.rows, *self.columns)

    @property
    def origin(self) -> str:
        """The scale that others are compared with."""
        return "paper" if self.published else "laptop"


RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            name="robustness",
            title="Accuracy of six algorithms with 0, 10 and 20% malicious clients",
            source="Table 1",
            rows=("data", "algorithm"),
            columns=("malicious",),
            cells=runs.robustness,
            numbers=published.ROBUSTNESS,
            note="Each algorithm faces the attack made for it; aggregators know the number of attackers.",
        ),
        Recipe(
            name="traffic",
            title="Accuracy and communication of every algorithm",
            source="Table 2",
            rows=("data", "algorithm"),
            cells=runs.traffic,
            numbers=published.TRAFFIC,
            shows=Shows.TRAFFIC,
        ),
        Recipe(
            name="non-iid",
            title="Two non-iid partitions of the data",
            source="Table 3",
            rows=("data", "distribution"),
            columns=("algorithm",),
            cells=runs.non_iid,
            numbers=published.NON_IID,
            shows=Shows.SPREAD,
        ),
        Recipe(
            name="weights",
            title="Three initializations of the random weights, and FedAvg",
            source="Table 4",
            rows=("data",),
            columns=("weights",),
            cells=runs.weights,
            numbers=published.WEIGHTS,
            shows=Shows.SPREAD,
        ),
        Recipe(
            name="networks",
            title="The layers of the networks and their parameters",
            source="Table 5",
        ),
        Recipe(
            name="hyperparameters",
            title="Batch sizes, local epochs and learning rates on CIFAR10, with 10% malicious clients",
            source="Table 6",
            rows=("algorithm", "setting", "value"),
            cells=runs.hyperparameters,
            numbers=published.HYPERPARAMETERS,
        ),
        Recipe(
            name="settings",
            title="Participants, local epochs and degrees of non-iid data on CIFAR10",
            source="Table 7",
            rows=("setting", "value"),
            cells=runs.other_settings,
            numbers=published.OTHER_SETTINGS,
            note="The paper heads this column '10% malicious', but its numbers are those without attack.",
        ),
        Recipe(
            name="bound",
            title="The probability that a vote fails: the paper's upper bound and the exact value",
            source="Figure 3",
        ),
        Recipe(
            name="communication",
            title="Traffic of one client in one round against the size of the network",
            source="Figure 4",
        ),
        Recipe(
            name="subnetworks",
            title="Subnetworks of 10 to 100% of the edges",
            source="Figure 5",
            rows=("data",),
            columns=("k",),
            cells=runs.subnetworks,
            note="100% is the whole random network; 0% has no edges and is not run.",
        ),
        Recipe(
            name="curves",
            title="Learning curves with different numbers of local epochs on CIFAR10",
            source="Figure 6",
            rows=("local epochs",),
            cells=runs.curves,
        ),
        Recipe(
            name="votes",
            title="Attacks on rankings against votes, for growing shares of malicious clients",
            source=BEYOND,
            rows=("data", "vote", "attack"),
            columns=("malicious",),
            cells=votes.cells,
            shows=Shows.SMOOTHED,
        ),
        Recipe(
            name="planned",
            title="Votes against an attacker who simulates them, over several seeds",
            source=BEYOND,
            rows=("data", "vote", "attack", "malicious"),
            columns=("seed",),
            cells=votes.planned_cells,
            shows=Shows.WORST,
            note="Malicious validators lie. The seed decides the network, the clients' data and all draws.",
        ),
        Recipe(
            name="ballots",
            title="Ballot formats: accuracy against traffic",
            source=BEYOND,
            rows=("ballots", "broadcasts"),
            columns=("malicious",),
            cells=runs.ballots,
            shows=Shows.SENT,
            note="Malicious clients reverse their rankings.",
        ),
    )
}


def recipe_named(name: str) -> Recipe:
    """Return a recipe by its name."""
    if name not in RECIPES:
        close = difflib.get_close_matches(name, RECIPES, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(RECIPES)}"
        raise ConfigError(f"unknown table {name!r}; {hint}")
    return RECIPES[name]


def runs_of(
    recipe: Recipe, scale: str = "laptop", only: Sequence[str] = (), seeds: int | None = None
) -> list[Cell]:
    """Return the runs behind a table at a scale, those that `only` selects, each with so many seeds."""
    if scale not in SCALES:
        raise ConfigError(f"unknown scale {scale!r}{did_you_mean(scale, SCALES)}")
    cells = chosen(recipe.cells(scale), only)
    if seeds is None:
        return cells
    if recipe.has_seeds:
        raise ConfigError(f"--seeds {seeds}: the table {recipe.name!r} has its own seeds already")
    return with_seeds(cells, seeds)


def chosen(cells: Sequence[Cell], only: Sequence[str]) -> list[Cell]:
    """Return the runs whose coordinates include the words of `only`.

    Words for the same coordinate are alternatives: mnist, FRL and FedAvg are two algorithms on one data set.
    """
    words = {word.lower() for word in only}
    known = dict.fromkeys((key, value.lower()) for cell in cells for key, value in cell.coordinates.items())
    if unknown := sorted(words - {value for _, value in known}):
        raise ConfigError(
            f"--only {', '.join(unknown)}: no run matches; choose from: "
            + "; ".join(dict.fromkeys(value for _, value in known))
        )
    wanted = {key: {value for each, value in known if each == key} & words for key, _ in known}
    found = [
        cell
        for cell in cells
        if all(not wanted[key] or value.lower() in wanted[key] for key, value in cell.coordinates.items())
    ]
    if cells and not found:
        raise ConfigError(f"--only {', '.join(only)}: no run matches all of these")
    return found


def differences(recipe: Recipe, cells: Sequence[Cell]) -> list[str]:
    """List the settings that differ from the published ones, or from `laptop` for tables beyond the paper."""
    origin = recipe.origin
    originals = {cell.place: cell for cell in recipe.cells(origin)}
    everyone = {_whom(cell) for cell in cells}
    found: dict[str, list[tuple[str, str, str]]] = {}
    for cell in cells:
        original = originals.get(cell.place)
        if original is None:
            continue
        theirs, ours = original.experiment.flat() | _printed(original), cell.experiment.flat()
        for key in ours.keys() - {"name", "evaluate_every"} - ({SEED} & cell.coordinates.keys()):
            if ours[key] != theirs.get(key):
                unsaid = key == "network.weights" and theirs["method.name"] != "frl"
                values = _told(ours[key]), "does not say" if unsaid else _told(theirs.get(key))
                found.setdefault(key, []).append((_whom(cell), *values))
    return [_sentence(key, told, everyone, origin) for key, told in sorted(found.items())]


def _printed(cell: Cell) -> dict[str, Any]:
    """Return what the paper prints for a run where the preset is different, unless the run varies it."""
    varied = {setting.partition("=")[0] for setting in cell.settings}
    return {key: value for key, value in runs.PRINTED.get(cell.preset, {}).items() if key not in varied}


def _whom(cell: Cell) -> str:
    """Return whose run it is: the algorithm, or the initialization of the weights."""
    return cell.coordinates.get("algorithm") or cell.coordinates.get("weights", "")


def _sentence(key: str, told: Sequence[tuple[str, str, str]], everyone: set[str], origin: str) -> str:
    """Say what a setting is, for whom if not for everyone, and what it was originally."""
    names = dict.fromkeys(name for name, _, _ in told)
    some = f" for {', '.join(names)}" if names.keys() != everyone else ""
    ours, theirs = (", ".join(sorted({each[column] for each in told})) for column in (1, 2))
    return f"{key} {ours}{some} ({origin}: {theirs})"


def caption(recipe: Recipe, cells: Sequence[Cell]) -> list[str]:
    """Say in one sentence what differs from the paper, for each data set separately if they disagree."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.coordinates.get("data", ""), []).append(cell)
    other = "the paper" if recipe.published else f"the scale {recipe.origin}"
    told = {name: "; ".join(differences(recipe, some)) for name, some in groups.items()}
    if len(set(told.values())) > 1:
        return [f"Different from {other}: {'. '.join(f'{name}: {what}' for name, what in told.items())}."]
    return [f"Different from {other}: {what}." for what in set(told.values()) if what]


def assumptions(cells: Sequence[Cell]) -> list[str]:
    """Say what the presets assume where the paper is silent; it is the same at every scale."""
    if not cells:
        return []
    decays = ", ".join(sorted({str(cell.experiment.local.rate_decay) for cell in cells}))
    kept = {cell.experiment.data.test_share for cell in cells if not cell.experiment.data.test_shards}
    words = [
        f"the learning rate is multiplied by {decays} every round, with a cosine schedule within a round"
    ]
    words += [f"clients share the training set, and each keeps {share:.0%} for testing" for share in kept]
    if any(cell.experiment.data.test_shards for cell in cells):
        words.append("with shards, clients are tested on shards of the test set with the same classes")
    return [f"Not stated in the paper: {'; '.join(words)}."]


def _told(value: object) -> str:
    """Return a setting in words; without a number of clients, every writer is a client."""
    return "one client per writer" if value is None else str(value)
