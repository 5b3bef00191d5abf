"""The arrows between rooms: imports point one way, and every module imports by itself."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "fedrank"
LEAVES = {"arguments", "errors", "importing", "parameters", "processor", "randomness"}
"""Single modules that every room may use."""
BELOW = {
    "rank": set[str](),
    "data": set[str](),
    "aggregators": set[str](),
    "ballots": {"rank"},
    "nn": {"rank", "data"},
    "attacks": {"aggregators", "rank", "data"},
}
BELOW["methods"] = {"attacks", "aggregators", "ballots", "rank", "nn", "data"}
BELOW["engine"] = {"methods", *BELOW["methods"]}
BELOW["experiment"] = {"engine", *BELOW["engine"]}
BELOW["export"] = {"experiment", *BELOW["experiment"]}
BELOW["report"] = {"experiment", *BELOW["experiment"]}
BELOW["run"] = BELOW["diagnosis"] = {"report", *BELOW["report"]}
BELOW["callbacks"] = {"run", *BELOW["run"]}
BELOW["training"] = {"callbacks", "diagnosis", *BELOW["callbacks"]}
BELOW["comparing"] = {"training", *BELOW["training"]}
BELOW["tuning"] = BELOW["run"]
BELOW["paper"] = BELOW["bench"] = BELOW["flower"] = BELOW["training"]
BELOW["cli"] = {"paper", "bench", "flower", "training", "export", *BELOW["training"]}
MODULES = sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """The modules of fedrank that a file imports, anywhere in it, with the line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            names = [node.module or ""]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from ((node.lineno, name) for name in names if name.startswith("fedrank."))


@pytest.mark.parametrize("room", BELOW)
def test_imports_point_only_downwards(room: str) -> None:
    allowed = BELOW[room] | LEAVES | {room}
    wrong = [
        f"{path.relative_to(SOURCE)}, line {line}: {room} must not import {name}"
        for path in MODULES
        if room_of(path) == room
        for line, name in imports_of(path)
        if name.split(".")[1] not in allowed
    ]
    assert not wrong, "\n".join(wrong)


def test_every_room_has_its_arrows() -> None:
    rooms = {room_of(path) for path in MODULES} - {"__init__", "__main__"}
    assert rooms == BELOW.keys() | LEAVES


def test_no_public_module_is_shadowed_by_a_function_of_its_name() -> None:
    """`fedrank.nn.supernetwork` must not be a module here and a function there."""
    for init in SOURCE.glob("*/__init__.py"):
        modules = {path.stem for path in init.parent.glob("*.py")} | {
            path.name for path in init.parent.iterdir() if path.is_dir()
        }
        exported = next(
            (
                ast.literal_eval(node.value)
                for node in ast.parse(init.read_text()).body
                if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
            ),
            [],
        )
        assert not modules & set(exported), init


@pytest.mark.slow
def test_every_module_can_be_imported_by_itself() -> None:
    """In a process of its own, so that no other module has broken a cycle before.

    It is a fork of one that has imported what takes long and is not ours.
    """
    names = [
        ".".join(("fedrank", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        for path in MODULES
        if path.name != "__main__.py"
    ]
    program = """
import altair, flwr.clientapp, flwr.serverapp, numba, pyarrow, pydantic, scipy, sklearn, torch
import importlib, os, sys
for name in sys.argv[1:]:
    pid = os.fork()
    if not pid:
        importlib.import_module(name)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0, name
"""
    subprocess.run([sys.executable, "-c", program, *names], check=True)
