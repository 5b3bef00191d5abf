"""Modules of the user's own: found in the current directory, and refused in a sentence."""

import sys
from pathlib import Path

import pytest

from fedrank.errors import ConfigError
from fedrank.importing import imported, imported_module


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory that is not on the path yet."""
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_module_is_found_in_the_current_directory(here: Path) -> None:
    (here / "found_here.py").write_text("class Outer:\n    inner = 3\n")
    assert imported("found_here:Outer.inner") == 3
    assert imported_module("found_here").__file__ == str(here / "found_here.py")


@pytest.mark.parametrize(
    ("content", "path", "complaint"),
    [
        (None, "found_nowhere:Net", "there is no module 'found_nowhere': neither in the current directory"),
        (None, "found_nowhere.deeper:Net", "there is no module 'found_nowhere.deeper'"),
        ("import no_such_thing", "needy:Net", "'needy' cannot be imported .*No module named 'no_such_thing'"),
        ("1 / 0", "failing:Net", "'failing' cannot be imported .ZeroDivisionError"),
        ("def (", "garbled:Net", "'garbled' cannot be imported .SyntaxError"),
        ("raise SystemExit(1)", "leaving:Net", "'leaving' cannot be imported .SystemExit"),
        ("class Net: ...", "small:Nett", "the module 'small' has no 'Nett'; did you mean 'Net'"),
    ],
)
def test_what_cannot_be_imported_is_named(here: Path, content: str | None, path: str, complaint: str) -> None:
    if content is not None:
        (here / f"{path.partition(':')[0]}.py").write_text(content)
    with pytest.raises(ConfigError, match=complaint):
        imported(path)
