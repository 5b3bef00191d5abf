import pytest

flwr = pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedrank[flower]'")


@pytest.fixture(autouse=True)
def inside_a_run(monkeypatch):
    """Messages can be written only where Flower has said which run this is."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
