"""How far the runs behind tables are: what is done, what is begun, and what the rest takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedrank.experiment.progress import Progress, TimeLeft
from fedrank.paper.recipes import Recipe
from fedrank.report.text_table import TextTable
from fedrank.report.words import duration, plural

UNKNOWN = "unknown"


def status_table(recipe: Recipe, runs: Sequence[Progress], where: str, *, jobs: int, cells: int) -> TextTable:
    """Return a line for each run behind so many cells: whether it is done, and what it still takes."""
    keys = list(runs[0].cell.coordinates)
    lines = [[*run.cell.coordinates.values(), state_of(run), _takes(run)] for run in runs]
    notes = [f"{_count(runs)} {left_of(runs, jobs)}".strip(), f"Runs: {where}"]
    notes += [f"{state_of(run).capitalize()}: {run.path.name}" for run in runs if _is_begun(run)]
    notes += [f"Unusable: {run.problem}" for run in runs if run.problem]
    if cells > len(runs):
        notes.append(f"Runs that several cells of the table show are listed once ({cells} cells).")
    headings = [*keys, "state", "still takes"]
    title = f"{recipe.source}: {recipe.title}"
    return TextTable(title, headings, lines, notes, keys=len(keys), together=2)


def overview_table(tables: Mapping[str, Sequence[Progress]], where: str, jobs: int) -> TextTable:
    """Return a line for each table that has runs."""
    lines = []
    for name, runs in tables.items():
        done, begun = sum(run.finished for run in runs), sum(map(_is_begun, runs))
        counts = [len(runs), done, begun, sum(not run.begun for run in runs)]
        lines.append([name, *map(str, counts), _time(TimeLeft.of(runs, jobs))])
    headings = ["table", "runs", "done", "begun", "not begun", "still takes"]
    notes = [
        f"Times: as measured on this machine, {plural(jobs, 'run')} at a time. Tables share equal runs.",
        f"Runs: {where}",
    ]
    return TextTable("The runs behind each table", headings, lines, notes, together=5)


def state_of(run: Progress) -> str:
    """Return how far a run is, in words."""
    if run.problem:
        return "unusable"
    if run.finished:
        return "done"
    return f"round {run.completed} of {run.cell.experiment.rounds}" if run.begun else "not begun"


def work_done(before: Sequence[Progress], after: Sequence[Progress], seconds: float, jobs: int) -> str:
    """Say what a limited time was used for, and what is left."""
    then = {run.cell.name: run for run in before}
    finished = [run for run in after if run.finished and not then[run.cell.name].finished]
    further = [run for run in after if _is_begun(run) and run.completed > then[run.cell.name].completed]
    made = [f"{plural(len(finished), 'run')} finished"] if finished else []
    if further:
        made.append(f"{len(further)} begun or continued (now at {', '.join(map(state_of, further))})")
    told = f"{duration(seconds)} of work: {' and '.join(made) or 'no round was completed'}."
    if all(run.finished for run in after):
        return f"{told} {_count(after)}"
    return f"{told} {_count(after)} {left_of(after, jobs)} Repeat the command to continue."


def left_of(runs: Sequence[Progress], jobs: int) -> str:
    """Say how many runs are missing, and how long they take; nothing if all are done."""
    missing = [run for run in runs if not run.finished]
    if not missing:
        return ""
    left = TimeLeft.of(missing, jobs)
    how = f", {plural(min(jobs, len(missing)), 'run')} at a time" if left.estimated else ""
    return f"Left: {plural(len(missing), 'run')}; time on this machine: {_time(left)}{how}."


def _count(runs: Sequence[Progress]) -> str:
    done, begun = sum(run.finished for run in runs), sum(map(_is_begun, runs))
    if done == len(runs):
        return f"All {plural(done, 'run')} are done." if done > 1 else "The run is done."
    some = f", {begun} begun" if begun else ""
    return f"{done} of {plural(len(runs), 'run')} done{some}."


def _time(left: TimeLeft) -> str:
    """Return what runs still take together.

    >>> _time(TimeLeft(5400, 3, 0)), _time(TimeLeft(60, 1, 4)), _time(TimeLeft(0, 0, 4))
    ('1 h 30 min', '1 min for 1 run, unknown for 4', 'unknown')
    """
    if not left.estimated:
        return UNKNOWN if left.unknown else ""
    if not left.unknown:
        return duration(left.seconds)
    return f"{duration(left.seconds)} for {plural(left.estimated, 'run')}, {UNKNOWN} for {left.unknown}"


def _takes(run: Progress) -> str:
    if run.finished:
        return ""
    return UNKNOWN if run.seconds_left is None else duration(run.seconds_left)


def _is_begun(run: Progress) -> bool:
    return run.begun and not run.finished and not run.problem
