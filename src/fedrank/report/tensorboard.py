"""TensorBoard events, for people who watch runs live."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedrank.errors import ConfigError
from fedrank.experiment.rounds import Round


def check_installed() -> None:
    """Say what is missing, before anything is made."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ModuleNotFoundError:
        raise ConfigError("--log tensorboard needs an extra: pip install 'fedrank[tensorboard]'") from None


class TensorBoardLog:
    """Writes each round's numbers as TensorBoard events; watches a run as the progress bar does."""

    def __init__(self, folder: Path) -> None:
        check_installed()
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder))

    def begin(self, done: int, rounds: int) -> None: ...

    def round_done(self, played: Round) -> None:
        """Write a round, where a watcher sees it at once."""
        for name, value in numbers(played):
            self.writer.add_scalar(name, value, played.number)
        self.writer.flush()

    def stopping(self) -> None: ...


def numbers(played: Round) -> Iterator[tuple[str, float]]:
    """Yield what is worth a curve."""
    if played.evaluation is not None:
        yield "accuracy/test", played.evaluation.test_accuracy
        if played.evaluation.clients is not None:
            yield "accuracy/clients", played.evaluation.clients.mean
            yield "accuracy/worst client", played.evaluation.clients.min
        yield "loss/test", played.evaluation.test_loss
        if played.evaluation.backdoor is not None:
            yield "accuracy/backdoor", played.evaluation.backdoor
    if played.train_loss is not None:
        yield "loss/training", played.train_loss
    yield "traffic/upload MiB", played.sent.upload_bytes / 2**20
    yield "traffic/download MiB", played.sent.download_bytes / 2**20
    yield "clients/malicious", len(played.malicious)
    yield "clients/refused", len(played.refused)
    for layer in played.vote.layers if played.vote else ():
        yield f"changed sides/{layer.name}", layer.changed / layer.edges
        yield f"agreement/{layer.name}", layer.agreement
