"""What is done, what the rest takes, and what comes first."""

from pathlib import Path

import pytest

from fedrank.experiment.imported import IMPORTED_ROUNDS
from fedrank.experiment.progress import Progress, TimeLeft, most_useful_first, progress_of
from fedrank.experiment.records import RoundRecord
from fedrank.experiment.rundir import RunDirectory
from fedrank.experiment.sweep import Cell


def cell(*settings: str, **coordinates: str) -> Cell:
    return Cell(coordinates, "digits", ("rounds=10", *settings))


def begin(cell: Cell, folder: Path, seconds: list[float], imported: int = 0) -> RunDirectory:
    """A run whose rounds took so long."""
    environment = {"data_dir": "here", "device": "cpu", IMPORTED_ROUNDS: imported}
    run = RunDirectory.create(folder / cell.name, cell.experiment, environment)
    traffic = {"upload_bytes": 1, "download_bytes": 1}
    run.write_metrics(
        RoundRecord(round=number, evaluation=None, wall_seconds=each, clients=(1,), **traffic)
        for number, each in enumerate(seconds, start=1)
    )
    return run


def test_a_begun_run_takes_as_long_as_its_own_rounds_say(tmp_path: Path) -> None:
    begin(cell(), tmp_path, [100.0, 2.0, 4.0])  # the first round waits for compilers
    [run] = progress_of([cell()], tmp_path)
    assert (run.begun, run.finished, run.completed, run.rounds_left) == (True, False, 3, 7)
    assert run.seconds_left == 7 * 3.0


def test_a_run_that_is_not_begun_takes_as_long_as_those_that_are_alike(tmp_path: Path) -> None:
    """Whatever their seed, number of rounds and share of malicious clients; another attack is not alike."""
    begin(cell("seed=8", "rounds=50"), tmp_path, [2.0, 2.0])
    begin(cell("attack.name=mirror", "attack.share=0.2"), tmp_path, [5.0])
    asked = [
        cell(),
        cell("attack.name=mirror", "attack.share=0.1"),
        cell("attack.name=mirror", "attack.share=0.1", "attack.alone=true"),
        cell("attack.name=reverse", "attack.share=0.1"),
        cell("local.epochs=7"),
        cell("clients_per_round=5"),
    ]
    runs = progress_of(asked, tmp_path)
    assert [run.seconds_left for run in runs] == [20.0, 50.0, None, None, None, None]
    assert not any(run.begun for run in runs)


def test_rounds_of_another_machine_measure_nothing_here(tmp_path: Path) -> None:
    begin(cell(), tmp_path, [9.0, 9.0, 9.0], imported=3)
    assert [run.seconds_left for run in progress_of([cell(), cell("seed=8")], tmp_path)] == [None, None]
    begin(cell("seed=9"), tmp_path, [9.0, 9.0, 9.0, 2.0], imported=3)
    assert [run.seconds_left for run in progress_of([cell("seed=9"), cell("seed=8")], tmp_path)] == [
        12.0,
        20.0,
    ]


def test_a_line_that_a_crash_cut_off_and_a_foreign_directory_are_no_rounds(tmp_path: Path) -> None:
    run = begin(cell(), tmp_path, [1.0, 1.0])
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"round": 3, "wall')
    begin(cell("seed=8"), tmp_path, [1.0]).path.rename(tmp_path / cell("seed=9").name)
    good, foreign = progress_of([cell(), cell("seed=9")], tmp_path)
    assert good.completed == 2
    assert "contains a run with other settings" in foreign.problem


def test_begun_runs_come_first_then_one_seed_of_everything_then_cheap_ones() -> None:
    def run(name: str, seed: int, **more: object) -> Progress:
        coordinates = {"vote": name, "seed": str(seed)}
        each = cell(f"method.vote={name}", f"seed={seed}", **coordinates)
        return Progress(each, Path(name), **more)  # type: ignore[arg-type]

    runs = [
        run("median", 7, seconds_per_round=9.0),
        run("median", 8, seconds_per_round=9.0),
        run("borda", 7, finished=True, begun=True),
        run("borda", 8, seconds_per_round=1.0),
        run("mean", 7, seconds_per_round=2.0),
        run("mean", 8, seconds_per_round=2.0, begun=True, completed=9),
        run("krum", 7, seconds_per_round=20.0, begun=True, completed=9),
    ]
    order = [tuple(each.coordinates.values()) for each in most_useful_first(runs)]
    order.remove(("borda", "7"))
    assert order == [
        ("mean", "8"), ("krum", "7"), ("mean", "7"), ("median", "7"), ("borda", "8"), ("median", "8")
    ]  # fmt: skip


def test_small_data_comes_before_large_data_if_nothing_is_measured() -> None:
    runs = [Progress(Cell({"data": name}, name, ()), Path(name)) for name in ("cifar10", "femnist", "mnist")]
    assert [each.preset for each in most_useful_first(runs)] == ["mnist", "femnist", "cifar10"]
    assert all(run.seconds_left is None for run in runs)


@pytest.mark.parametrize(("jobs", "seconds"), [(1, 90.0), (2, 50.0), (9, 50.0)])
def test_the_time_left_is_shared_by_runs_at_a_time_but_no_run_is_divided(jobs: int, seconds: float) -> None:
    speeds = (5.0, 3.0, 1.0, None)
    runs = [Progress(cell(f"seed={n}"), Path(), seconds_per_round=each) for n, each in enumerate(speeds)]
    assert TimeLeft.of(runs, jobs) == TimeLeft(seconds, estimated=3, unknown=1)
