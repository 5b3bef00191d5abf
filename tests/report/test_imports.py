"""Reports know runs, and nothing of the rooms that use them."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "fedrank"
MODULES = sorted(
    f"fedrank.{path.relative_to(SOURCE).with_suffix('').as_posix().replace('/', '.')}"
    for room in ("report", "paper")
    for path in (SOURCE / room).glob("*.py")
    if path.stem != "__init__"
)


def imported_rooms(path: Path) -> set[str]:
    """The rooms of fedrank that a file imports, anywhere in it."""
    modules = [
        name
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    ]
    return {name.split(".")[1] for name in modules if name.startswith("fedrank.")}


@pytest.mark.parametrize(
    ("room", "above"),
    [
        ("experiment", {"report", "paper", "bench", "flower", "cli"}),
        ("report", {"paper", "bench", "flower", "cli"}),
        ("paper", {"bench", "flower", "cli"}),
    ],
)
def test_a_room_imports_nothing_from_above(room: str, above: set[str]) -> None:
    for path in (SOURCE / room).rglob("*.py"):
        assert not imported_rooms(path) & above, path


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
def test_a_module_can_be_imported_by_itself(module: str) -> None:
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
