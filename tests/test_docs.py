"""Every code block and command in the documentation runs."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedrank.experiment.config import load_preset, parse

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
QUICK = ["--set", "rounds=2", "--set", "local.epochs=1", "--set", "clients_per_round=3"]


def blocks(language: str) -> list[tuple[str, str]]:
    return [
        (str(page.relative_to(ROOT)), text)
        for page in PAGES
        for text in re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.S | re.M)
    ]


def names(found: list[tuple[str, str]]) -> list[str]:
    return [f"{page}-{number}" for number, (page, _) in enumerate(found)]


def python_blocks() -> list[Any]:
    """Return all examples in Python; those of the README run in the ordinary loop."""
    found = blocks("python")
    return [
        pytest.param(page, code, id=name, marks=[] if page == "README.md" else pytest.mark.slow)
        for (page, code), name in zip(found, names(found), strict=True)
    ]


@pytest.mark.parametrize(("page", "code"), python_blocks())
def test_python_block_runs(page: str, code: str, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(code)
    reply = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path)
    assert reply.returncode == 0, f"{page}: {reply.stderr}"


def files(page: str) -> dict[str, str]:
    """Return the TOML files of a page: blocks that begin with a comment of their name."""
    found = [text for name, text in blocks("toml") if name == page]
    return {named[1]: text for text in found if (named := re.match(r"# (\w+\.toml)\n", text))}


@pytest.mark.slow
@pytest.mark.parametrize(("page", "text"), blocks("console"), ids=names(blocks("console")))
def test_commands_run_one_after_the_other(page: str, text: str, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "fedrank"
    program.parent.mkdir()
    script = "from fedrank.cli import main\nif __name__ == '__main__':\n    main()\n"
    program.write_text(f"#!{sys.executable}\n{script}")
    program.chmod(0o755)
    environment = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    commands = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
    assert commands
    for name, content in files(page).items():
        (tmp_path / name).write_text(content)
    for command in commands:
        if shlex.split(command)[:2] == ["fedrank", "run"]:
            command = shlex.join([*shlex.split(command), *QUICK])
        reply = subprocess.run(
            command, shell=True, capture_output=True, text=True, cwd=tmp_path, env=environment
        )
        assert reply.returncode == 0, f"{page}: {command}: {reply.stderr}"


CONFIGURATIONS = [(page, text) for page, text in blocks("toml") if text not in files(page).values()]


@pytest.mark.parametrize(("page", "text"), CONFIGURATIONS, ids=names(CONFIGURATIONS))
def test_toml_block_is_a_complete_configuration(page: str, text: str) -> None:
    assert parse(text, page) == load_preset("digits")
    assert tomllib.loads(text) == tomllib.loads(load_preset("digits").to_toml()), "a setting is missing"


def test_make_targets_in_the_documentation_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    for page, text in blocks("sh"):
        for target in re.findall(r"^make ([\w-]+)", text, re.M):
            assert target in targets, f"{page}: make {target}"


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#]+)", page.read_text("utf-8")):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name}: {link}"


@pytest.mark.slow
@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short_and_runs(example: Path, tmp_path: Path) -> None:
    assert len(example.read_text().splitlines()) < 60
    done = subprocess.run(
        [sys.executable, example], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert float(re.search(r"accuracy ([\d.]+)%", done.stdout)[1]) > 80
