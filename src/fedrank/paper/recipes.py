"""Recipes: every table that is made of runs, and how it is laid out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedrank.errors import ConfigError
from fedrank.paper import votes
from fedrank.paper.sweep import Cell

SCALES = ("smoke", "laptop")


@dataclass(frozen=True)
class Recipe:
    """A table: its runs at each scale, and which part of a run's place makes its rows and columns."""

    name: str
    title: str
    cells: Callable[[str], list[Cell]]
    rows: tuple[str, ...]
    columns: tuple[str, ...]


RECIPES = {
    "votes": Recipe(
        name="votes",
        title="Attacks on rankings against votes, for growing shares of malicious clients (not in the paper)",
        cells=votes.cells,
        rows=("data", "attack"),
        columns=("vote", "malicious"),
    )
}


def recipe_named(name: str) -> Recipe:
    """Return a recipe by its name."""
    if name not in RECIPES:
        raise ConfigError(f"there is no table {name!r}; there are: {', '.join(RECIPES)}")
    return RECIPES[name]


def chosen_cells(recipe: Recipe, scale: str, only: Sequence[str]) -> list[Cell]:
    """Return the runs of a recipe; of those, the ones whose place names every word of `only`."""
    if scale not in SCALES:
        raise ConfigError(f"--scale {scale}: there are {', '.join(SCALES)}")
    cells = recipe.cells(scale)
    words = {word.lower() for word in only}
    chosen = [c for c in cells if words <= {value.lower() for value in c.place.values()}]
    if not chosen:
        known = sorted({value for cell in cells for value in cell.place.values()})
        wanted = " --only ".join(only)
        raise ConfigError(f"--only {wanted}: no run has all of that; there are: {'; '.join(known)}")
    return chosen
