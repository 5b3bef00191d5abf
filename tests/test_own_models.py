"""Models as people write them, and the page about them."""

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

import fedrank

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def benchmark() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "benchmarks/own_models.py"))


def test_the_table_on_the_page_is_made_from_the_results(benchmark: dict[str, Any]) -> None:
    rows = benchmark["read"](ROOT / "docs/results/own-models.json")
    assert benchmark["markdown"](rows) in (ROOT / "docs/results/own-models.md").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("MLP 64-256-10", 0.93), ("ResNet 32x2", 0.84)])
def test_models_learn_at_the_default_settings(benchmark: dict[str, Any], name: str, least: float) -> None:
    """Measured with three seeds; the least is a few points below the worst of them."""
    data, make = benchmark["MODELS"][name]
    torch.manual_seed(7)
    method, clients = benchmark["build"](make(), 7, {}), benchmark["federation"](data, 7, None)
    run = fedrank.train(method, clients, rounds=30, clients_per_round=10, evaluate_every=30, progress=False)
    assert run.evaluation.test_accuracy > least
