"""What a run says about the program that made it."""

import subprocess
from pathlib import Path

from fedrank.experiment import environment


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True)


def test_the_revision_says_whether_the_source_was_changed(tmp_path: Path, monkeypatch) -> None:
    source = tmp_path / "fedrank" / "experiment" / "environment.py"
    source.parent.mkdir(parents=True)
    source.write_text("one")
    monkeypatch.setattr(environment, "__file__", str(source))
    assert environment.source_revision() is None
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-m", "one")
    revision = environment.source_revision()
    assert revision is not None
    assert len(revision) == 40
    (tmp_path / "notes").write_text("not a part of the program")
    assert environment.source_revision() == revision
    source.write_text("two")
    assert environment.source_revision() == f"{revision} with changes"
