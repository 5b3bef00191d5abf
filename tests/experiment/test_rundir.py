import errno
import json
import os
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrank.errors import RunError
from fedrank.experiment.config import load_preset
from fedrank.experiment.records import RoundRecord
from fedrank.experiment.rundir import RunDirectory, replace_file

EXPERIMENT = load_preset("digits")


def record(number: int) -> RoundRecord:
    return RoundRecord(
        round=number, evaluation=None, upload_bytes=10, download_bytes=10, wall_seconds=1.0, clients=(1,)
    )


STATE = {"round": np.array(3), "ranking": np.arange(100, dtype=np.int32)}


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    environment = {"fedrank": "0.0.9", "data_dir": "here", "device": "cpu"}
    return RunDirectory.create(tmp_path / "run", EXPERIMENT, environment)


def test_what_was_written_is_read_again(run: RunDirectory) -> None:
    again = RunDirectory.open(run.path)
    assert again.experiment == EXPERIMENT
    assert again.environment["fedrank"] == "0.0.9"
    assert again.read_checkpoint() is None
    assert again.read_summary() is None
    run.write_checkpoint(STATE)
    checkpoint = again.read_checkpoint()
    assert checkpoint is not None
    assert checkpoint["ranking"].tolist() == list(range(100))


def test_the_same_state_gives_the_same_bytes(run: RunDirectory) -> None:
    run.write_checkpoint(STATE)
    first = (run.path / "checkpoint.npz").read_bytes()
    run.write_checkpoint(STATE)
    assert (run.path / "checkpoint.npz").read_bytes() == first


def test_a_directory_that_holds_something_is_left_alone(run: RunDirectory) -> None:
    before = sorted(path.read_bytes() for path in run.path.iterdir())
    with pytest.raises(RunError, match=r"nothing was overwritten.*fedrank resume"):
        RunDirectory.create(run.path, EXPERIMENT, {})
    assert sorted(path.read_bytes() for path in run.path.iterdir()) == before


def test_a_file_or_a_forbidden_place_cannot_be_a_run_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(RunError, match=r"cannot be"):
            RunDirectory.create(path, EXPERIMENT, {})
    assert (tmp_path / "file").read_text() == "mine"


def test_another_directory_is_not_taken_for_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a run directory"):
        RunDirectory.open(tmp_path)
    with pytest.raises(RunError, match="not a run directory"):
        RunDirectory.open(tmp_path / "missing")


def test_a_run_of_another_format_is_refused(run: RunDirectory) -> None:
    path = run.path / "environment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    with pytest.raises(RunError, match=r"format 99, written by fedrank 0\.0\.9; this version reads format 3"):
        RunDirectory.open(run.path)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"fedrank": 1}', '{"format": 3}'])
def test_a_damaged_environment_is_refused(run: RunDirectory, content: str) -> None:
    (run.path / "environment.json").write_text(content)
    with pytest.raises(RunError, match=r"environment\.json: damaged"):
        RunDirectory.open(run.path)


def test_a_checkpoint_made_with_other_settings_is_refused(run: RunDirectory) -> None:
    run.write_checkpoint(STATE)
    config = run.path / "config.toml"
    config.write_text(config.read_text().replace("rounds = 60", "rounds = 70"))
    assert RunDirectory.open(run.path).read_checkpoint() is not None
    config.write_text(config.read_text().replace("seed = 7", "seed = 8"))
    with pytest.raises(RunError, match="made with settings other than"):
        RunDirectory.open(run.path).read_checkpoint()


def test_a_checkpoint_that_vanished_is_missed(run: RunDirectory) -> None:
    for number in (1, 2):
        run.append_metrics(record(number))
    with pytest.raises(RunError, match=r"checkpoint\.npz: missing, although metrics\.jsonl has completed"):
        run.read_checkpoint()


def test_what_cannot_be_read_is_named(run: RunDirectory) -> None:
    for name in ("metrics.jsonl", "summary.json"):
        (run.path / name).mkdir()
    for read in (run.read_metrics, run.read_summary):
        with pytest.raises(RunError, match="cannot be read"):
            read()


@pytest.mark.parametrize("content", ["", "nope", "[]", "{}", '{"rounds": 3}'])
def test_a_damaged_summary_is_refused(run: RunDirectory, content: str) -> None:
    (run.path / "summary.json").write_text(content)
    with pytest.raises(RunError, match=r"summary\.json: damaged .*'fedrank resume' writes it again"):
        run.read_summary()


def test_every_flipped_byte_of_a_checkpoint_is_noticed_or_harmless(run: RunDirectory) -> None:
    run.write_checkpoint(STATE)
    path = run.path / "checkpoint.npz"
    content = path.read_bytes()
    for position in range(0, len(content), 7):
        path.write_bytes(content[:position] + bytes([content[position] ^ 0x55]) + content[position + 1 :])
        try:
            arrays = run.read_checkpoint()
        except RunError:
            continue
        assert arrays is not None
        assert arrays["ranking"].tolist() == list(range(100))


def test_an_existing_empty_directory_may_be_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    RunDirectory.create(Path(), EXPERIMENT, {"data_dir": "here", "device": "cpu"})
    assert RunDirectory.open(tmp_path).experiment == EXPERIMENT


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "garbage"])
def test_a_damaged_checkpoint_is_refused(run: RunDirectory, damage: str) -> None:
    run.write_checkpoint(STATE)
    path = run.path / "checkpoint.npz"
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 1
    path.write_bytes(
        {"truncated": content[:200], "flipped": content, "empty": b"", "garbage": b"x" * 500}[damage]
    )
    with pytest.raises(RunError, match="checkpoint is damaged"):
        run.read_checkpoint()


def test_a_pickled_checkpoint_is_never_loaded(run: RunDirectory) -> None:
    np.savez(run.path / "checkpoint.npz", ranking=np.array([object()], dtype=object))
    with pytest.raises(RunError, match="checkpoint is damaged"):
        run.read_checkpoint()


def test_metrics_after_the_checkpoint_are_forgotten(run: RunDirectory) -> None:
    for number in range(1, 5):
        run.append_metrics(record(number))
    with (run.path / "metrics.jsonl").open("ab") as file:
        file.write(b'\xff\n[]\n{"round": 1}\n{"round": 5, "train_l')
    run.forget_after(3)
    assert [record.round for record in run.read_metrics()] == [1, 2, 3]


def test_a_second_process_is_kept_out(run: RunDirectory) -> None:
    with run.locked(), pytest.raises(RunError, match="another process"), RunDirectory.open(run.path).locked():
        pass
    with run.locked():
        pass


def test_a_full_disk_leaves_the_old_checkpoint(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    run.write_checkpoint(STATE)
    before = (run.path / "checkpoint.npz").read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match=r"No space left on device\)\. The last checkpoint is intact"):
        run.write_checkpoint({"round": np.array(4), "ranking": np.arange(100)[::-1]})
    assert (run.path / "checkpoint.npz").read_bytes() == before
    assert sorted(path.name for path in run.path.iterdir()) == [
        "checkpoint.npz",
        "config.toml",
        "environment.json",
    ]


def test_a_file_is_replaced_only_when_the_new_one_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    path = tmp_path / "file"
    path.write_bytes(b"old")
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (seen.append(path.read_bytes()), real(fd)))
    replace_file(path, b"new")
    assert seen[0] == b"old"
    assert path.read_bytes() == b"new"


def test_a_damaged_line_of_metrics_is_reported_once_and_a_torn_one_is_not(
    run: RunDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    run.append_metrics(record(1))
    with (run.path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"round": 2, "trai\n' + record(3).to_json().encode() + b'\n{"round": 4, "tr')
    for _ in range(2):
        assert [each.round for each in run.read_metrics()] == [1, 3]
    (message,) = caplog.messages
    assert message == f"{run.path}/metrics.jsonl, line 2: damaged; the round is left out"


def lines(*numbers: int) -> bytes:
    return b"".join(record(number).to_json().encode() + b"\n" for number in numbers)


@pytest.mark.parametrize(
    ("content", "rounds", "complaints"),
    [
        (lines(1, 2, 3), [1, 2, 3], []),
        (lines(1, 2, 3, 4), [1, 2, 3, 4], []),
        (lines(1, 2, 3) + b'{"rou', [1, 2, 3], []),
        (b"", [], [": rounds 1 to 3 are missing; the history and reports go without"]),
        (lines(1, 3), [1, 3], [": round 2 is missing; the history and reports go without"]),
        (lines(2, 4), [2, 4], [": rounds 1, 3 are missing; the history and reports go without"]),
        (lines(1, 2, 3) + b"\xff\x00", [1, 2, 3], [", line 4: damaged; the round is left out"]),
        (lines(1, 2, 2, 3), [1, 2, 3], [", line 3: round 2 is out of order; the line is left out"]),
        (lines(1, 2, 3, 1), [1, 2, 3], [", line 4: round 1 is out of order; the line is left out"]),
        (lines(7, 2, 3), [2, 3], [", line 1: round 7 is out of order; the line is left out"]),
        (lines(1, 2) + lines(3).replace(b"3", b"0", 1), [1, 2], [", line 3: damaged; the round is left out"]),
    ],
)
def test_what_is_wrong_with_the_history_is_reported(
    run: RunDirectory, caplog: pytest.LogCaptureFixture, content: bytes, rounds: list[int], complaints: list
) -> None:
    run.write_checkpoint(STATE)
    (run.path / "metrics.jsonl").write_bytes(content)
    assert [each.round for each in run.read_metrics()] == rounds
    assert caplog.messages == [f"{run.path}/metrics.jsonl{complaint}" for complaint in complaints]
    run.forget_after(3)
    caplog.clear()
    assert [each.round for each in run.read_metrics()] == [number for number in rounds if number <= 3]


def test_a_lost_history_is_reported(run: RunDirectory, caplog: pytest.LogCaptureFixture) -> None:
    run.write_checkpoint(STATE)
    assert run.read_metrics() == []
    (message,) = caplog.messages
    assert "metrics.jsonl: rounds 1 to 3 are missing" in message


def test_only_runs_can_be_resumed(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match=r"already contains 'notes.txt'.*--out$"):
        RunDirectory.create(tmp_path, EXPERIMENT, {})


def test_a_hint_can_be_pasted_into_a_shell(tmp_path: Path) -> None:
    path = tmp_path / "my runs" / "it's mine"
    RunDirectory.create(path, EXPERIMENT, {})
    with pytest.raises(RunError) as refused:
        RunDirectory.create(path, EXPERIMENT, {})
    assert shlex.split(str(refused.value).split("continue with: ")[1]) == ["fedrank", "resume", str(path)]
