"""Recipes: every table and figure of the paper, and two of our own, with the runs that it is made of."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedrank.errors import ConfigError
from fedrank.paper import tables, votes
from fedrank.paper.sweep import Cell

SCALES = ("smoke", "laptop", "paper")
FEMNIST_CLIENTS = 3400
BEYOND = "beyond the paper"


class Shows(enum.Enum):
    """What of a run stands in a table."""

    CLIENTS = "mean (standard deviation) of the clients' accuracies, in percent"
    SPREAD = "mean, standard deviation, least and greatest of the clients' accuracies, in percent"
    TRAFFIC = (
        "mean (standard deviation) of the clients' accuracies in percent; "
        "MiB that a client sends and receives with the paper's network"
    )
    SENT = "accuracy on all test data in percent; KiB that a client really sends and receives in a round"
    SMOOTHED = "accuracy on all test data in percent"


def _none(scale: str) -> list[Cell]:  # noqa: ARG001
    return []


@dataclass(frozen=True)
class Recipe:
    """A table or figure: its runs at each scale, and which parts of a run's place make rows and columns.

    One without runs is computed.
    """

    name: str
    title: str
    source: str
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    cells: Callable[[str], list[Cell]] = _none
    shows: Shows = Shows.CLIENTS
    note: str = ""

    @property
    def published(self) -> bool:
        """Whether the paper has such a table."""
        return self.source != BEYOND

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
            cells=tables.robustness,
            note="Each algorithm meets the attack that was made for it; rules are told how many attack.",
        ),
        Recipe(
            name="traffic",
            title="Accuracy and communication of every algorithm",
            source="Table 2",
            rows=("data", "algorithm"),
            cells=tables.traffic,
            shows=Shows.TRAFFIC,
        ),
        Recipe(
            name="non-iid",
            title="Two ways of dealing data unevenly",
            source="Table 3",
            rows=("data", "distribution"),
            columns=("algorithm",),
            cells=tables.non_iid,
            shows=Shows.SPREAD,
        ),
        Recipe(
            name="weights",
            title="Three ways of drawing the random weights, and FedAvg",
            source="Table 4",
            rows=("data",),
            columns=("weights",),
            cells=tables.weights,
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
            cells=tables.hyperparameters,
        ),
        Recipe(
            name="settings",
            title="Participants, local epochs and degrees of non-iid data on CIFAR10",
            source="Table 7",
            rows=("setting", "value"),
            cells=tables.other_settings,
            note="The paper heads this column '10% malicious', but its numbers are those without attack.",
        ),
        Recipe(
            name="bound",
            title="The chance that a vote fails: the paper's upper bound, and the probability that it bounds",
            source="Figure 3",
        ),
        Recipe(
            name="communication",
            title="Bytes of one client in one round against the parameters of a network",
            source="Figure 4",
        ),
        Recipe(
            name="subnetworks",
            title="Subnetworks of 10 to 100% of the edges",
            source="Figure 5",
            rows=("data",),
            columns=("k",),
            cells=tables.subnetworks,
            note="100% is the random network as it is; 0% has no edge and is not run.",
        ),
        Recipe(
            name="curves",
            title="Learning curves with different numbers of local epochs on CIFAR10",
            source="Figure 6",
            rows=("local epochs",),
            cells=tables.curves,
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
            name="ballots",
            title="What a ballot costs and what it is worth: accuracy against bytes",
            source=BEYOND,
            rows=("ballots", "broadcasts"),
            columns=("malicious",),
            cells=tables.ballots,
            shows=Shows.SENT,
            note="Malicious clients reverse their rankings.",
        ),
    )
}


def recipe_named(name: str) -> Recipe:
    """Return a recipe by its name."""
    if name not in RECIPES:
        raise ConfigError(f"there is no table {name!r}; there are: {', '.join(RECIPES)}")
    return RECIPES[name]


def chosen(cells: Sequence[Cell], only: Sequence[str]) -> list[Cell]:
    """Return the runs that have the words of `only` in their place.

    Words for the same thing choose each of them: mnist, FRL and FedAvg are two algorithms on one data set.
    """
    words = {word.lower() for word in only}
    known = dict.fromkeys((key, value.lower()) for cell in cells for key, value in cell.place.items())
    if unknown := sorted(words - {value for _, value in known}):
        raise ConfigError(
            f"--only {', '.join(unknown)}: no run has that; there are: "
            + "; ".join(dict.fromkeys(value for _, value in known))
        )
    wanted = {key: {value for each, value in known if each == key} & words for key, _ in known}
    found = [
        cell
        for cell in cells
        if all(not wanted[key] or value.lower() in wanted[key] for key, value in cell.place.items())
    ]
    if cells and not found:
        raise ConfigError(f"--only {', '.join(only)}: no run has all of that together")
    return found


def differences(recipe: Recipe, cells: Sequence[Cell]) -> list[str]:
    """Say which settings of some runs are not the published ones; beyond the paper, not those of `laptop`."""
    origin = recipe.origin
    published = {tuple(cell.place.values()): cell for cell in recipe.cells(origin)}
    everyone = {_whom(cell) for cell in cells}
    found: dict[str, list[tuple[str, str, str]]] = {}
    for cell in cells:
        original = published.get(tuple(cell.place.values()))
        if original is None or original.experiment == cell.experiment:
            continue
        theirs, ours = original.experiment.flat(), cell.experiment.flat()
        for key in ours.keys() - {"name", "evaluate_every"}:
            if ours[key] != theirs.get(key):
                unsaid = key == "network.weights" and theirs["method.name"] != "frl"
                values = _told(ours[key]), "does not say" if unsaid else _told(theirs.get(key))
                found.setdefault(key, []).append((_whom(cell), *values))
    return [_sentence(key, told, everyone, origin) for key, told in sorted(found.items())]


def _whom(cell: Cell) -> str:
    """Return whose run it is: one of several algorithms, or of several ways to draw weights."""
    return cell.place.get("algorithm") or cell.place.get("weights", "")


def _sentence(key: str, told: Sequence[tuple[str, str, str]], everyone: set[str], origin: str) -> str:
    """Say what a setting is, for whom if not for everyone, and what it is originally."""
    names = dict.fromkeys(name for name, _, _ in told)
    some = f" for {', '.join(names)}" if names.keys() != everyone else ""
    ours, theirs = (", ".join(sorted({each[place] for each in told})) for place in (1, 2))
    return f"{key} {ours}{some} ({origin}: {theirs})"


def caption(recipe: Recipe, cells: Sequence[Cell]) -> list[str]:
    """Say in a sentence what is not as published; for each data set by itself, if they are different."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.place.get("data", ""), []).append(cell)
    other = "the paper" if recipe.published else f"the scale {recipe.origin}"
    told = {name: "; ".join(differences(recipe, some)) for name, some in groups.items()}
    if len(set(told.values())) > 1:
        return [f"Different from {other}: {'. '.join(f'{name}: {what}' for name, what in told.items())}."]
    return [f"Different from {other}: {what}." for what in set(told.values()) if what]


def assumptions(cells: Sequence[Cell]) -> list[str]:
    """Say what the presets decide that the paper does not say; it is the same at every scale."""
    if not cells:
        return []
    decays = ", ".join(sorted({str(cell.experiment.local.rate_decay) for cell in cells}))
    kept = {cell.experiment.data.test_share for cell in cells if not cell.experiment.data.test_shards}
    words = [f"the learning rate is multiplied by {decays} every round, and falls by a cosine within one"]
    words += [f"clients are dealt the training set, and each keeps {share:.0%} to test on" for share in kept]
    if any(cell.experiment.data.test_shards for cell in cells):
        words.append("with shards they are tested on shards of the test set, of the same classes")
    return [f"Not said in the paper: {'; '.join(words)}."]


def _told(value: object) -> str:
    """Return a setting in words; without a number of clients every writer is one."""
    return "a client for each writer" if value is None else str(value)
