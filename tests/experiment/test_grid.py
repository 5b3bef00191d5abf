"""Grids: files of axes and seeds, and the runs that they stand for."""

import itertools
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrank.errors import ConfigError
from fedrank.experiment.config import load_preset
from fedrank.experiment.grid import Grid, _literal

GRID = """
preset = "digits"
seeds = [3, 5]

[settings]
rounds = 4
local.epochs = 2

[grid]
"network.keep" = [0.5, 0.8]
method.vote = ["borda", { name = "trimmed-mean" }]

[grid.attack]
none = {}
"mirror 20%" = { attack.name = "mirror", "attack.share" = 0.2 }
"""


def read(path: Path, text: str) -> Grid:
    (path / "grid.toml").write_text(text)
    return Grid.read(path / "grid.toml")


def test_a_grid_has_every_combination_with_every_seed(tmp_path: Path) -> None:
    grid = read(tmp_path, GRID)
    labels = (["0.5", "0.8"], ["borda", "trimmed-mean"], ["none", "mirror 20%"], ["3", "5"])
    keys = ("network.keep", "method.vote", "attack", "seed")
    assert [cell.coordinates for cell in grid.cells] == [
        dict(zip(keys, values, strict=True)) for values in itertools.product(*labels)
    ]
    for cell in grid.cells:
        found, told = cell.experiment, cell.coordinates
        assert (found.rounds, found.local.epochs) == (4, 2)
        assert str(found.seed) == told["seed"]
        assert str(found.network.keep) == told["network.keep"]
        assert found.method.vote == told["method.vote"]
        assert found.attack.name == told["attack"].removesuffix(" 20%")
        assert found.attack.share == (0.2 if told["attack"] == "mirror 20%" else 0)
    assert len({cell.name for cell in grid.cells}) == len(grid.cells) == 16
    assert (grid.rows, grid.columns) == (("network.keep",), ("method.vote", "attack"))


def test_a_number_of_seeds_starts_at_that_of_the_base(tmp_path: Path) -> None:
    grid = read(tmp_path, 'preset = "digits"\nseeds = 3\n')
    first = load_preset("digits").seed
    assert [cell.experiment.seed for cell in grid.cells] == [first, first + 1, first + 2]
    assert (grid.rows, grid.columns) == ((), ())
    assert len(read(tmp_path, 'preset = "digits"').cells) == 1


def test_a_configuration_of_ones_own_is_found_beside_the_grid(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(load_preset("digits", ["rounds=9"]).to_toml())
    (cell,) = read(tmp_path, 'config = "mine.toml"').cells
    assert cell.experiment.rounds == 9


def test_a_label_may_stand_for_another_preset(tmp_path: Path) -> None:
    text = 'preset = "digits"\n[grid.method]\nFRL = {}\nFedAvg = { preset = "digits-weights", rounds = 2 }\n'
    frl, fedavg = read(tmp_path, text).cells
    assert (frl.experiment, fedavg.experiment) == (
        load_preset("digits"),
        load_preset("digits-weights", ["rounds=2"]),
    )


@pytest.mark.parametrize(
    ("layout", "wanted"),
    [
        ('rows = ["method.vote"]', (("method.vote",), ("network.keep", "attack"))),
        ('columns = ["attack"]', (("network.keep", "method.vote"), ("attack",))),
        ("columns = []", (("network.keep", "method.vote", "attack"), ())),
    ],
)
def test_axes_make_rows_or_columns(tmp_path: Path, layout: str, wanted: tuple) -> None:
    grid = read(tmp_path, f"{layout}\n{GRID}")
    assert (grid.rows, grid.columns) == wanted


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("seeds = 3", "the base is missing"),
        ('preset = "digit"', "unknown preset 'digit'; did you mean 'digits'?"),
        ('preset = "digits"\nconfig = "a.toml"', "either preset or config, got both"),
        ('config = "nowhere.toml"', "config = 'nowhere.toml': no such file"),
        ('config = "digits"', "expected the path of a TOML file"),
        ("preset = 3", "preset must be a name, got 3"),
        ('preset = = "digits"', r"invalid TOML \(.*line 1"),
        ('preset = "digits"\nseed = 3', "unknown key 'seed'; did you mean 'seeds'?"),
        ('preset = "digits"\nseeds = 0', "seeds must be at least 1, got 0"),
        ('preset = "digits"\nseeds = []', r"seeds must be .*, got \[\]"),
        ('preset = "digits"\nseeds = [1, 2, 1]', "seeds has 1 twice"),
        ('preset = "digits"\nseeds = [-1]', "a seed must be a whole number from 0"),
        ('preset = "digits"\nseeds = true', "seeds must be a number"),
        ('preset = "digits"\nsettings = 3', r"settings must be a table, \[settings\], got 3"),
        ('preset = "digits"\n[settings]\nseed = 3', r"\[settings\] has 'seed'; write seeds = "),
        ('preset = "digits"\n[settings]\nround = 3', "unknown key 'round'; did you mean 'rounds'?"),
        (
            'preset = "digits"\n[settings]\nlocal.epoch = 3',
            "unknown key 'local.epoch'; did you mean 'epochs'?",
        ),
        ('preset = "digits"\n[grid]\nrounds = []', r"\[grid\] 'rounds' has no values"),
        ('preset = "digits"\n[grid]\n"my key" = [1]', "'my key' is not the name of a setting"),
        ('preset = "digits"\n[grid.attack]', r"\[grid\] 'attack' has no values"),
        (
            'preset = "digits"\n[grid]\nmethod.vote = "borda"',
            r"\[grid\] 'method.vote': expected a list of values, such as \[\"borda\"\], got \"borda\"",
        ),
        ('preset = "digits"\n[grid]\nrounds = 3', r"\[grid\] 'rounds': expected a list of values"),
        ('preset = "digits"\n[grid]\nrounds = [3, 4, 3]', r"\[grid\] 'rounds' has '3' twice"),
        ('preset = "digits"\n[grid.a]\nx = 3', r"\[grid\] 'a': expected labels with their settings"),
        ('preset = "digits"\n[grid.a]\nx = {}\nx = {}', "invalid TOML"),
        ('preset = "digits"\n[grid]\nseed = [3, 4]', "sets 'seed'; write seeds = "),
        ('preset = "digits"\n[grid]\nrounds = [3]\na = {x = {rounds = 4}}', "'rounds' is set by two axes"),
        ('preset = "digits"\n[grid.state]\nx = {}', "results have a column of that name"),
        ('preset = "digits"\n[grid.a]\nx = {preset = "mnits"}', "'a', 'x': unknown preset 'mnits'"),
        ('preset = "digits"\nrows = ["round"]\n[grid]\nrounds = [3]', "rows: unknown axis 'round'"),
        ('preset = "digits"\nrows = "rounds"\n[grid]\nrounds = [3]', "rows must be a list of axes"),
        (
            'preset = "digits"\nrows = ["rounds"]\ncolumns = ["rounds"]\n[grid]\nrounds = [3]',
            "rows and columns have the axis 'rounds' twice",
        ),
        (
            'preset = "digits"\nrows = ["rounds"]\ncolumns = []\n[grid]\nrounds = [3]\nlocal.epochs = [1]',
            "the axis 'local.epochs' is neither in rows nor in columns",
        ),
        (
            'preset = "digits"\n[grid]\nmethod.vote = ["borda", "mediam"]\nrounds = [1, 2]',
            r"toml: rounds = 1: method.vote = \"mediam\": unknown rule; did you mean 'median'",
        ),
        (
            'preset = "digits"\n[settings]\nattack.name = "mirror"\n[grid]\nattack.share = [0.2, 0.0]',
            r"attack.share = 0.0: .*attack.name = '.*' needs attack.share greater than 0",
        ),
    ],
)
def test_a_grid_with_a_mistake_is_refused_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as found:
        read(tmp_path, text)
    assert str(found.value).startswith(str(tmp_path))
    assert "--set" not in str(found.value)


def test_a_grid_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        Grid.read(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        Grid.read(tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="cannot be read"):
        Grid.read(tmp_path / "bytes.toml")


WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]))
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_a_value_keeps_its_meaning_as_toml_on_one_line(value: object) -> None:
    text = _literal(value)
    assert "\n" not in text
    assert tomllib.loads(f"value = {text}")["value"] == value
