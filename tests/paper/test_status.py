"""How far tables are, in words."""

from pathlib import Path

import pytest

from fedrank.experiment.progress import Progress
from fedrank.experiment.sweep import Cell
from fedrank.paper.recipes import RECIPES
from fedrank.paper.status import overview_table, status_table, work_done

RECIPE = RECIPES["subnetworks"]
CELLS = [cell for cell in RECIPE.cells("laptop") if cell.coordinates["data"] == "mnist"][:4]


def progress(cell: Cell, **more: object) -> Progress:
    return Progress(cell, Path("runs") / cell.name, **more)  # type: ignore[arg-type]


BEFORE = [
    progress(CELLS[0], begun=True, completed=5, seconds_per_round=6.0),
    progress(CELLS[1], begun=True, completed=29, seconds_per_round=6.0),
    progress(CELLS[2], seconds_per_round=60.0),
    progress(CELLS[3]),
]
AFTER = [
    progress(CELLS[0], begun=True, completed=12, seconds_per_round=6.0),
    progress(CELLS[1], begun=True, finished=True, completed=30),
    *BEFORE[2:],
]


def test_the_status_of_a_table_tells_every_run_and_where_begun_ones_are() -> None:
    table = status_table(RECIPE, AFTER, "runs", jobs=1, cells=6)
    assert table.rows == [
        ["mnist", "10%", "round 12 of 30", "2 min"],
        ["mnist", "20%", "done", ""],
        ["mnist", "30%", "not begun", "30 min"],
        ["mnist", "40%", "not begun", "unknown"],
    ]
    assert table.notes == [
        "1 of 4 runs done, 1 begun. Left: 3 runs; time on this machine: 32 min for 2 runs, unknown for 1, "
        "1 run at a time.",
        "Runs: runs",
        f"Round 12 of 30: {CELLS[0].name}",
        "Runs that several cells of the table show are listed once (6 cells).",
    ]


def test_an_unusable_run_is_marked_with_the_reason() -> None:
    runs = [progress(CELLS[0], begun=True, problem="runs/x: damaged"), progress(CELLS[1], finished=True)]
    table = status_table(RECIPE, runs, "runs", jobs=1, cells=2)
    assert [row[2] for row in table.rows] == ["unusable", "done"]
    assert table.notes[-1] == "Unusable: runs/x: damaged"


def test_the_overview_counts_the_runs_of_each_table() -> None:
    table = overview_table({"subnetworks": AFTER, "curves": BEFORE[3:]}, "runs", jobs=2)
    assert table.rows == [
        ["subnetworks", "4", "1", "1", "2", "30 min for 2 runs, unknown for 1"],
        ["curves", "1", "0", "0", "1", "unknown"],
    ]


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (
            AFTER,
            "2 h of work: 1 run finished and 1 begun or continued (now at round 12 of 30). "
            "1 of 4 runs done, 1 begun. Left: 3 runs; time on this machine: 30 min for 2 runs, "
            "unknown for 1, 2 runs at a time. "
            "Repeat the command to continue.",
        ),
        (
            [progress(cell, finished=True) for cell in CELLS],
            "2 h of work: 4 runs finished. All 4 runs are done.",
        ),
        (BEFORE, "2 h of work: no round was completed. 0 of 4 runs done, 2 begun. Left: 4 runs; "),
    ],
)
def test_a_sentence_says_what_was_done_and_what_is_left(after: list[Progress], words: str) -> None:
    assert work_done(BEFORE, after, 7200, jobs=2).startswith(words)
