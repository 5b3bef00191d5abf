import json
from pathlib import Path

import pytest

from fedrank.bench.training import step_flop
from fedrank.nn import LeNet, supernetwork
from tests.support.command_line import fedrank


def test_a_step_is_counted_as_its_layers_multiply() -> None:
    """LeNet on 28x28: three passes of each layer but the first convolution's, which has no input gradient."""
    edges = {"conv1": 288 * 28 * 28, "conv2": 18_432 * 28 * 28, "linear1": 1_605_632, "linear2": 1_280}
    expected = 2 * (3 * sum(edges.values()) - edges["conv1"])
    assert step_flop(supernetwork(LeNet(), seed=1), (1, 28, 28), 1) == expected


@pytest.mark.slow
def test_bench_prints_and_writes_its_numbers(tmp_path: Path) -> None:
    reply = fedrank("bench", "--quick", "--json", tmp_path / "bench.json", "--data-dir", tmp_path)
    assert reply.returncode == 0, reply.stderr
    rows = json.loads((tmp_path / "bench.json").read_text())
    sections = {row["section"] for row in rows}
    for wanted in (
        "limits of one core",
        "step of lenet",
        "step of conv8",
        "ranking of",
        "fixed costs of a client",
        "round of noise",
        "vote on",
        "start-up",
    ):
        assert any(section.startswith(wanted) for section in sections), wanted
    assert all(row["value"] > 0 for row in rows)


def test_an_unknown_measurement_is_refused() -> None:
    reply = fedrank("bench", "--only", "everything")
    assert reply.returncode == 2
    assert (
        "unknown section 'everything'; known: step, client, round, vote, ballot, start, fuzz" in reply.stderr
    )
