"""A run that was begun on one machine goes on on another; results count there as well."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fedrank.errors import RunError
from fedrank.experiment.build import build
from fedrank.experiment.environment import describe
from fedrank.experiment.records import FinishedCell, Summary
from fedrank.experiment.results import read_rows, results
from fedrank.experiment.rundir import RunDirectory
from fedrank.experiment.runner import Observers, run
from fedrank.experiment.sweep import Cell, is_finished, run_cells
from fedrank.experiment.transfer import Imported, export_runs, import_runs

TINY = ("rounds=3", "clients_per_round=4", "local.epochs=1", "data.clients=20")
FRL = Cell({"method": "FRL"}, "digits", (*TINY, "method.vote=borda"))
FEDAVG = Cell({"method": "FedAvg"}, "digits-weights", TINY)


def go_on(cell: Cell, folder: Path, rounds: int | None = None) -> Summary | None:
    """Run so many rounds, one call each, or to the end."""
    path = folder / cell.name
    if not path.exists():
        RunDirectory.create(path, cell.experiment, describe(folder, 1, "cpu"))
    setup, result = build(cell.experiment, folder), None
    for until in [0.0] * rounds if rounds else [None]:
        options = {"workers": 1, "device": "cpu", "observer": Observers(()), "until": until}
        result = run(RunDirectory.open(path), setup, **options)  # type: ignore[arg-type]
    return result


def export(cells: list[Cell], folder: Path, path: Path, *, checkpoints: bool = True) -> Path:
    export_runs(results(cells, folder), folder, path, checkpoints=checkpoints)
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs, never interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    for cell in (FRL, FEDAVG):
        go_on(cell, folder)
    return folder


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of both runs after two of their three rounds."""
    folder = tmp_path_factory.mktemp("begun")
    for cell in (FRL, FEDAVG):
        assert go_on(cell, folder, rounds=2) is None
    return export([FRL, FEDAVG], folder, folder / "begun.zip")


def test_an_imported_run_ends_in_the_same_bytes(whole: Path, begun: Path, tmp_path: Path) -> None:
    found = import_runs(begun, tmp_path, tmp_path)
    assert found == Imported(results=0, checkpoints=2, farther=0, different=0)
    for cell in (FRL, FEDAVG):
        summary = go_on(cell, tmp_path)
        expected = RunDirectory.open(whole / cell.name)
        ours = RunDirectory.open(tmp_path / cell.name)
        assert (ours.path / "checkpoint.npz").read_bytes() == (expected.path / "checkpoint.npz").read_bytes()
        assert summary is not None
        uninterrupted = expected.read_summary()
        assert uninterrupted is not None
        assert summary.evaluation == uninterrupted.evaluation
        assert summary.sent == uninterrupted.sent
        assert [(each.round, each.evaluation, each.clients) for each in ours.read_metrics()] == [
            (each.round, each.evaluation, each.clients) for each in expected.read_metrics()
        ]


def test_a_ranking_in_an_archive_is_at_most_its_packed_size(begun: Path) -> None:
    with zipfile.ZipFile(begun) as archive:
        size = archive.getinfo(f"{FRL.name}/checkpoint.npz").compress_size
    arrays = np.load(begun.parent / FRL.name / "checkpoint.npz")
    edges = arrays["ranking"].size
    assert size < edges * np.ceil(np.log2(edges)) / 8 < arrays["ranking"].nbytes


def test_an_archive_tells_nothing_about_folders(begun: Path) -> None:
    with zipfile.ZipFile(begun) as archive:
        environment = json.loads(archive.read(f"{FRL.name}/environment.json"))
    assert not {"data_dir", "command"} & environment.keys()
    assert environment["torch"]


def test_finished_runs_count_as_done_and_are_not_run_again(whole: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    path = export([FRL, FEDAVG], whole, tmp_path / "results.json", checkpoints=False)
    assert import_runs(path, there, tmp_path) == Imported(2, 0, 0, 0)
    assert is_finished(FRL, there)
    assert results([FRL, FEDAVG], there) == results([FRL, FEDAVG], whole)
    before = sorted(there.rglob("*"))
    assert run_cells([FRL, FEDAVG], there, tmp_path, jobs=1) == {}
    assert sorted(there.rglob("*")) == before
    assert import_runs(path, there, tmp_path) == Imported(0, 0, farther=2, different=0)


def test_a_result_belongs_to_every_table_that_has_the_run(whole: Path, tmp_path: Path) -> None:
    import_runs(export([FRL], whole, tmp_path / "results.json"), tmp_path, tmp_path)
    other = Cell({"vote": "borda", "attack": "none"}, FRL.preset, FRL.settings)
    [row] = results([other], tmp_path, published={("borda", "none"): {"mean": 98.8}})
    assert isinstance(row, FinishedCell)
    assert (row.coordinates, row.published) == (other.coordinates, {"mean": 98.8})


def test_results_of_other_settings_are_left_out(whole: Path, tmp_path: Path) -> None:
    path = export([FRL], whole, tmp_path / "results.json", checkpoints=False)
    [row] = json.loads(path.read_text())
    path.write_text(json.dumps([row | {"digest": "0" * 64}]))
    assert import_runs(path, tmp_path / "there", tmp_path) == Imported(0, 0, 0, different=1)
    assert not is_finished(FRL, tmp_path / "there")
    kept = (
        tmp_path / "there" / f"{FRL.name}.json"
    )  # imported before this version gave the name another meaning
    kept.write_text(json.dumps(row | {"digest": "0" * 64}))
    assert not is_finished(FRL, tmp_path / "there")
    kept.write_text("{")
    with pytest.raises(RunError, match=r"damaged .* Delete it, or import it again"):
        is_finished(FRL, tmp_path / "there")


def test_an_import_never_overwrites_a_run_that_is_as_far(begun: Path, tmp_path: Path) -> None:
    go_on(FRL, tmp_path, rounds=1)
    assert import_runs(begun, tmp_path, tmp_path).checkpoints == 2
    assert len(RunDirectory.open(tmp_path / FRL.name).read_metrics()) == 2
    for rounds in (1, 2):
        before = {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()}
        assert import_runs(begun, tmp_path, tmp_path) == Imported(0, 0, farther=2, different=0)
        assert {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()} == before
        go_on(FRL, tmp_path)


def test_a_run_that_another_process_works_on_is_left_alone(begun: Path, tmp_path: Path) -> None:
    go_on(FRL, tmp_path, rounds=1)
    directory = RunDirectory.open(tmp_path / FRL.name)
    with directory.locked(), pytest.raises(RunError, match="another process is working on this run"):
        import_runs(begun, tmp_path, tmp_path)
    assert len(directory.read_metrics()) == 1


def rewritten(archive: Path, path: Path, name: str, content: bytes | None) -> Path:
    """An archive with one file changed or left out."""
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(path, "w") as target:
        for each in source.namelist():
            text = content if each == name else source.read(each)
            if text is not None:
                target.writestr(each, text)
    return path


@pytest.mark.parametrize("name", ["results.json", "checkpoint.npz", "metrics.jsonl", "environment.json"])
@pytest.mark.parametrize(
    "content", [b"", b"\0" * 100, b"[]", b"{}", None], ids=["empty", "zeros", "list", "table", "missing"]
)
def test_a_damaged_archive_gives_one_sentence_and_writes_nothing(
    begun: Path, tmp_path: Path, name: str, content: bytes | None
) -> None:
    member = name if name == "results.json" else f"{FRL.name}/{name}"
    path = rewritten(begun, tmp_path / "damaged.zip", member, content)
    if name == "checkpoint.npz" and content is None:  # a run without a checkpoint is no run
        assert import_runs(path, tmp_path / "there", tmp_path).checkpoints == 1
        return
    with pytest.raises(RunError, match=r"damaged\.zip: ") as complaint:
        import_runs(path, tmp_path / "there", tmp_path)
    assert len(str(complaint.value).splitlines()) == 1
    assert not (tmp_path / "there").exists()


def test_every_changed_byte_of_a_ranking_is_noticed(begun: Path, tmp_path: Path) -> None:
    name = f"{FRL.name}/checkpoint.npz"
    with zipfile.ZipFile(begun) as archive:
        content = bytearray(archive.read(name))
    content[len(content) // 2] ^= 1
    path = rewritten(begun, tmp_path / "damaged.zip", name, bytes(content))
    with pytest.raises(RunError, match="a checkpoint in it is damaged or foreign"):
        import_runs(path, tmp_path / "there", tmp_path)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"preset": "/etc/mine.toml"}, "unknown preset"),
        ({"settings": ["rounds=three", "seed=none"]}, "that this version does not know"),
        ({"settings": ['imports=["os"]']}, "code of its own, which is not imported"),
        ({"settings": ["network=mine:Net"]}, "code of its own, which is not imported"),
        ({"settings": ["data=mine.npz"]}, "code of its own, which is not imported"),
        ({"digest": None}, "does not say with which settings"),
        ({"curve": 3}, "not a results file"),
    ],
)
def test_a_foreign_results_file_gives_one_sentence(
    whole: Path, tmp_path: Path, change: dict, complaint: str
) -> None:
    path = export([FRL], whole, tmp_path / "results.json", checkpoints=False)
    [row] = json.loads(path.read_text())
    path.write_text(json.dumps([row | change]))
    with pytest.raises(RunError, match=complaint) as error:
        import_runs(path, tmp_path / "there", tmp_path)
    assert str(error.value).startswith(str(path))
    assert len(str(error.value).splitlines()) == 1
    assert not (tmp_path / "there").exists()


def test_the_results_of_an_archive_are_a_results_file(begun: Path, whole: Path, tmp_path: Path) -> None:
    assert [row.finished for row in read_rows(begun)] == [False, False]
    rows = results([FRL, FEDAVG], whole)
    assert read_rows(export([FRL, FEDAVG], whole, tmp_path / "some.json", checkpoints=False)) == rows
    assert read_rows(export([FRL, FEDAVG], whole, tmp_path / "some.zip")) == rows
