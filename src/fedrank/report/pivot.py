"""Results of runs in rows and columns, by their coordinates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from fedrank.experiment.records import CellResult

R = TypeVar("R", bound=CellResult)


@dataclass(frozen=True)
class Pivot(Generic[R]):
    """Runs in rows and columns; runs that differ only in other coordinates, such as the seed, are together.

    Rows and columns come in the order in which the runs name them first.
    """

    rows: tuple[tuple[str, ...], ...]
    columns: tuple[tuple[str, ...], ...]
    cells: Mapping[tuple[tuple[str, ...], tuple[str, ...]], Sequence[R]]

    @classmethod
    def of(cls, results: Iterable[R], rows: Sequence[str], columns: Sequence[str]) -> Pivot[R]:
        """Arrange runs by the coordinates that make rows and those that make columns."""
        cells: dict[tuple[tuple[str, ...], tuple[str, ...]], list[R]] = {}
        for result in results:
            row, column = (tuple(result.coordinates[key] for key in keys) for keys in (rows, columns))
            cells.setdefault((row, column), []).append(result)
        in_rows, in_columns = (tuple(dict.fromkeys(key[side] for key in cells)) for side in (0, 1))
        return cls(in_rows, in_columns, cells)
