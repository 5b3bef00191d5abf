"""Every published number is the one that the paper's LaTeX prints."""

import os
import re
from pathlib import Path

import pytest

from fedrank.paper.published import (
    ARCHITECTURES,
    HYPERPARAMETERS,
    NON_IID,
    OTHER_SETTINGS,
    ROBUSTNESS,
    TRAFFIC,
    WEIGHTS,
)
from fedrank.paper.recipes import RECIPES

Numbers = dict[str, float]
BESIDE_THE_REPOSITORY = Path(__file__).parents[3] / "shared" / "paper" / "frl.tex"
NAMES = {
    "Multi-krum": "Multi-Krum",
    "FedAvg + Trimmed-mean": "Trimmed-mean",
    "FedAvg + Multi-Krum": "Multi-Krum",
    "SFRL Top 50%": "Sparse-FRL, top 50%",
    "SFRL Top 10%": "Sparse-FRL, top 10%",
}
WEIGHT_SYMBOLS = {
    "-": "FedAvg",
    "$X_N$": "glorot-normal",
    "$N_K$": "kaiming-normal",
    "$U_K$": "signed-kaiming-constant",
}
METRICS = {"Mean": "mean", "STD": "std", "Min": "min", "Max": "max"}


@pytest.fixture(scope="module")
def latex() -> str:
    path = Path(os.environ.get("FEDRANK_TEST_PAPER", BESIDE_THE_REPOSITORY))
    if not path.is_file():
        pytest.skip(f"no LaTeX of the paper at {path}; FEDRANK_TEST_PAPER names another place")
    return path.read_text("utf-8")


def table(latex: str, label: str, keys: int) -> list[list[str]]:
    """The rows of a table, cleaned; of the first `keys` cells an empty one repeats the cell above."""
    environment = next(
        text
        for text in re.findall(r"\\begin\{table\*?\}.*?\\end\{table\*?\}", latex, re.S)
        if rf"\label{{{label}}}" in text
    )
    body = re.search(r"\\begin\{tabular\}\s*\{[|c]+\}(.*?)\\end\{tabular\}", environment, re.S)
    assert body, label
    rows: list[list[str]] = []
    for line in body[1].split(r"\\"):
        cells = [clean(cell) for cell in re.split(r"(?<!\\)&", line)]
        if len(cells) > 1:
            above = rows[-1] if rows else cells
            rows.append([cell or (above[n] if n < keys else "") for n, cell in enumerate(cells)])
    return rows


def clean(cell: str) -> str:
    r"""The text of a cell.

    >>> clean(r"\multirow{6}{*}{{\vtop{\hbox{\strut MNIST + LeNet}\hbox{\strut 1000 clients}}}}")
    'MNIST + LeNet 1000 clients'
    """
    cell = cell.replace(r"\Name{}", "FRL").replace(r"\%", "%")
    cell = re.sub(r"\\(multirow\{\d+\}\{\*\}|multicolumn\{\d+\}\{[|c]+\})", "", cell)
    cell = re.sub(r"\\(hline|cline\{[\d-]+\}|cite\{[^}]*\}|strut|textbf|mathcal|vtop)", "", cell)
    cell = re.sub(r"\\hbox|~", " ", cell)
    return " ".join(re.sub(r"[{}]", "", cell).split())


def accuracy(cell: str) -> Numbers:
    mean, std = re.fullmatch(r"([\d.]+) \(([\d.]+)\)", cell).groups()  # type: ignore[union-attr]
    return {"mean": float(mean), "std": float(std)}


def data_of(cell: str) -> str:
    return cell.split()[0].lower()


def named(cell: str) -> str:
    return NAMES.get(cell, cell)


def test_table_1(latex: str) -> None:
    heading, *rows = table(latex, "tab:mal", keys=1)
    assert heading[2:] == ["No malicious", "10% malicious", "20% malicious"]
    assert {
        (data_of(data), named(algorithm), share): accuracy(cell)
        for data, algorithm, *cells in rows
        for share, cell in zip(("0%", "10%", "20%"), cells, strict=True)
    } == ROBUSTNESS


def test_table_2(latex: str) -> None:
    heading, *rows = table(latex, "tab:comm", keys=1)
    assert heading[3:] == ["Upload (MB)", "Download (MB)"]
    assert {
        (data_of(data), named(algorithm)): {
            **accuracy(cell), "upload": float(upload), "download": float(download)
        }
        for data, algorithm, cell, upload, download in rows
    } == TRAFFIC  # fmt: skip


def test_table_3(latex: str) -> None:
    _, heading, *rows = table(latex, "T:Non", keys=2)
    found: dict[tuple[str, ...], Numbers] = {}
    for data, kind, metric, *cells in rows:
        partition = "dirichlet" if kind.startswith("Dirichlet") else "shards"
        for algorithm, cell in zip(heading[3:], cells, strict=True):
            found.setdefault((data_of(data), partition, algorithm), {})[METRICS[metric]] = float(cell)
    assert found == NON_IID


def test_table_4(latex: str) -> None:
    _, _, heading, *rows = table(latex, "tab:init", keys=1)
    found: dict[tuple[str, ...], Numbers] = {}
    for data, metric, *cells in rows:
        for symbol, cell in zip(heading[2:], cells, strict=True):
            weights = WEIGHT_SYMBOLS[symbol]
            found.setdefault((data_of(data), weights), {})[METRICS[metric]] = float(cell)
    assert found == WEIGHTS


def test_table_5(latex: str) -> None:
    names = {"LeNet MNIST": "lenet", "Conv8 CIFAR10": "conv8", "LeNet FEMNIST": "lenet-62"}
    found: dict[str, list[tuple[str, int | None]]] = {}
    for network, layer, size in table(latex, "tab:models", keys=1)[1:]:
        parameters = None if size == "-" else int(size)
        found.setdefault(names[network], []).append((layer.replace("Relu", "ReLU"), parameters))
    assert {name: tuple(layers) for name, layers in found.items()} == ARCHITECTURES


def test_table_6(latex: str) -> None:
    rows = table(latex, "T:hyper1", keys=2)[1:]
    assert {
        (named(algorithm), setting, value): accuracy(cell) for algorithm, setting, value, cell in rows
    } == HYPERPARAMETERS


def test_table_7(latex: str) -> None:
    settings = {
        "Number of participants (n)": "participants",
        "local epochs (E)": "local epochs",
        r"Non-iid degree ($\beta$)": "beta",
    }
    rows = table(latex, "tab:others", keys=2)[1:]
    assert {(settings[setting], value): accuracy(cell) for _, setting, value, cell in rows} == OTHER_SETTINGS


@pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if recipe.numbers])
def test_every_published_number_belongs_to_a_run_and_every_run_of_the_paper_has_one(name: str) -> None:
    recipe = RECIPES[name]
    runs = {tuple(cell.coordinates.values()) for cell in recipe.cells("paper")}
    assert recipe.numbers.keys() <= runs
    assert all("scores" in " ".join(run) for run in runs - recipe.numbers.keys())
