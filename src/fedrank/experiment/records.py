"""What a run writes down: a line of metrics.jsonl, summary.json, and its row in a file of results."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import AliasChoices, BaseModel, Field, ValidationError

from fedrank.ballots.audit import Audit
from fedrank.ballots.traffic import Traffic
from fedrank.experiment.metrics import Evaluation


class Record(BaseModel, frozen=True):
    """Something that is written as JSON; keys of newer versions are ignored."""

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the record as JSON. Losses may be NaN or Infinity, which Python reads and writes."""
        return json.dumps(self.model_dump(), indent=indent)


class RoundRecord(Record, frozen=True):
    """A line of metrics.jsonl: one round."""

    round: int
    train_loss: float | None = None
    """The mean over the honest clients, if there were any."""
    refused: dict[int, str] = {}
    """Clients whose message did not count, with the reason."""
    evaluation: Evaluation | None
    """Without single clients' accuracies, which only the summary has."""
    upload_bytes: int
    """What all clients of the round sent together."""
    download_bytes: int
    wall_seconds: float
    clients: tuple[int, ...] = Field(min_length=1)
    malicious: tuple[int, ...] = ()
    vote: Audit | None = None
    """How safe the vote was, for methods that vote on edges."""

    @property
    def sent(self) -> Traffic:
        """What one client transferred, on average."""
        return Traffic(self.upload_bytes / len(self.clients), self.download_bytes / len(self.clients))


class Summary(Record, frozen=True):
    """How the model does after `rounds` rounds, and what it took: summary.json."""

    rounds: int
    evaluation: Evaluation
    sent: Traffic
    """The bytes that one client really transferred in one round, on average."""
    paper_traffic: Traffic
    """The same as the paper counts it."""
    wall_seconds: float


class CellAccuracy(Record, frozen=True):
    """The accuracies of a cell's clients; short files of results keep the mean only."""

    mean: float
    std: float | None = None
    min: float | None = None
    max: float | None = None
    clients: int | None = None


class CellEvaluation(Record, frozen=True):
    """How a cell's run ended; short files of results keep the accuracies only."""

    clients: CellAccuracy
    test_accuracy: float
    test_loss: float | None = None
    test_samples: int | None = None
    backdoor: float | None = None


class Curve(Record, frozen=True):
    """What a run measured, a list for each number, because that is the shortest to write down."""

    round: list[int]
    accuracy: list[float]
    loss: list[float] = []
    clients: list[float] = []
    """The mean over clients."""


class MadeWith(Record, frozen=True):
    """The versions a run was made with, and when."""

    fedrank: str
    revision: str | None = None
    torch: str | None = None
    numpy: str | None = None
    date: str | None = None


class SweepRow(Record, frozen=True):
    """A row in a file of results: one run of a sweep, finished or not."""

    coordinates: dict[str, str] = Field(validation_alias=AliasChoices("coordinates", "place"))
    """What tells the run apart from the others; older files call it place."""
    preset: str
    settings: tuple[str, ...]
    published: dict[str, int | float] | None
    """The numbers to compare with, if there are any; as printed, so a whole number stays one."""
    begun: bool = False

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the row as JSON, without what a short file left out."""
        return json.dumps(self.model_dump(exclude_unset=True), indent=indent)


class UnfinishedCell(SweepRow, frozen=True):
    """A run that has no result yet, or an unusable one."""

    finished: Literal[False]
    problem: str | None = None


class FinishedCell(SweepRow, frozen=True):
    """A run and its result."""

    finished: Literal[True]
    rounds: int
    evaluation: CellEvaluation
    curve: Curve
    sent: Traffic
    made_with: MadeWith


CellResult = Annotated[FinishedCell | UnfinishedCell, Field(discriminator="finished")]


def first_problem(error: ValidationError) -> str:
    """Say what is wrong with a file, and where in it."""
    problem = error.errors(include_url=False)[0]
    location = ".".join(str(part) for part in problem["loc"])
    return f"{location}: {problem['msg']}" if location else problem["msg"]
