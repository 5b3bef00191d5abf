import pytest
from typer.testing import CliRunner

from fedrank.cli import app
from fedrank.errors import ConfigError

RUN = ["run", "--preset", "digits", "--workers", "1"]
SMALL = ["rounds=2", "data.clients=5", "clients_per_round=3", "local.epochs=1"]


def test_rounds_are_written_as_tensorboard_events(tmp_path):
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="TensorBoard is not installed: pip install 'fedrank[tensorboard]'",
    )
    settings = [word for setting in SMALL for word in ("--set", setting)]
    reply = CliRunner().invoke(app, [*RUN, *settings, "--out", str(tmp_path / "run"), "--log", "tensorboard"])
    assert reply.exit_code == 0, reply.output
    events = accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    from fedrank.experiment.rundir import RunDirectory

    records = RunDirectory.open(tmp_path / "run").read_metrics()
    written = events.Scalars("accuracy/test")
    assert [(event.step, round(event.value, 6)) for event in written] == [
        (record.round, round(record.evaluation.test_accuracy, 6)) for record in records
    ]
    assert "changed sides/linear.1.weight" in events.Tags()["scalars"]


def test_other_loggers_are_refused_before_anything_is_made(tmp_path):
    reply = CliRunner().invoke(app, [*RUN, "--out", str(tmp_path / "run"), "--log", "wandb"])
    assert isinstance(reply.exception, ConfigError)
    assert "docs/reports.md" in str(reply.exception)
    assert not (tmp_path / "run").exists()
