"""FRL on the real MNIST, as in the paper's setting."""

import json
from pathlib import Path

import pytest

from tests.support.command_line import fedrank

SMALL = ("rounds=1", "clients_per_round=2", "local.epochs=1", "data.test_share=0.05")


@pytest.mark.slow
def test_mnist_reaches_90_percent_by_round_10_and_94_by_round_25(real_data: Path, tmp_path: Path) -> None:
    settings = ["--set", "rounds=25", "--set", "evaluate_every=5"]
    reply = fedrank("run", "--preset", "mnist", *settings, "--data-dir", real_data, "--out", tmp_path / "run")
    assert reply.returncode == 0, reply.stderr
    records = map(json.loads, (tmp_path / "run/metrics.jsonl").read_text().splitlines())
    accuracy = {r["round"]: r["evaluation"]["test_accuracy"] for r in records if r["evaluation"]}
    assert accuracy[10] > 0.90
    assert accuracy[25] > 0.94


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["cifar10", "femnist"])
def test_the_other_presets_play_a_round(real_data: Path, tmp_path: Path, preset: str) -> None:
    settings = [word for key in SMALL for word in ("--set", key)]
    reply = fedrank("run", "--preset", preset, *settings, "--data-dir", real_data, "--out", tmp_path / "run")
    assert reply.returncode == 0, reply.stderr
