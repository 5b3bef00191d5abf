"""The records of a run: a line of metrics.jsonl, summary.json, and its row in a results file."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import AliasChoices, BaseModel, Field, ValidationError, field_validator

from fedrank.ballots.audit import Audit
from fedrank.ballots.candidates import Measured
from fedrank.ballots.traffic import Traffic
from fedrank.errors import RunError
from fedrank.experiment.metrics import ClientName, Evaluation, number_or_name

Model = TypeVar("Model", bound=BaseModel)


class Record(BaseModel, frozen=True):
    """A record stored as JSON; ignores keys of newer versions."""

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the record as JSON. Losses may be NaN or Infinity, which Python's JSON supports."""
        return json.dumps(self.model_dump(), indent=indent)


class RoundRecord(Record, frozen=True):
    """A line of metrics.jsonl: one round."""

    round: int = Field(ge=1)
    train_loss: float | None = None
    """The mean over the honest clients, if there were any."""
    refused: dict[ClientName, str] = {}
    """Clients whose message was rejected, with the reason."""
    evaluation: Evaluation | None
    """Without the accuracies of single clients, which only the summary contains."""
    upload_bytes: int
    """Bytes sent by all clients of the round together."""
    download_bytes: int
    wall_seconds: float
    clients: tuple[ClientName, ...] = Field(min_length=1)
    malicious: tuple[ClientName, ...] = ()
    vote: Audit | None = None
    """How safe the vote was, for methods that vote on edges."""
    measured: Measured | None = None
    """What validators measured, for methods that ask for it."""

    @field_validator("measured")
    @classmethod
    def _with_numbers(cls, measured: Measured | None) -> Measured | None:
        """Return the record with the keys that JSON made strings."""
        if measured is None:
            return None
        return replace(measured, refused={number_or_name(key): why for key, why in measured.refused.items()})

    @property
    def sent(self) -> Traffic:
        """Bytes that one client transferred, on average."""
        return Traffic(self.upload_bytes / len(self.clients), self.download_bytes / len(self.clients))


class Summary(Record, frozen=True):
    """The result after `rounds` rounds and its cost: summary.json."""

    rounds: int
    evaluation: Evaluation
    sent: Traffic
    """Bytes that one client actually transferred in one round, on average."""
    paper_traffic: Traffic
    """The same as the paper counts it."""
    wall_seconds: float


class CellAccuracy(Record, frozen=True):
    """The accuracies of a cell's clients; short results files keep only the mean."""

    mean: float
    std: float | None = None
    min: float | None = None
    max: float | None = None
    clients: int | None = None


class CellEvaluation(Record, frozen=True):
    """The final evaluation of a cell; short results files keep only the accuracies."""

    clients: CellAccuracy | None
    """None if no client had test samples of its own."""
    test_accuracy: float
    test_loss: float | None = None
    test_samples: int | None = None
    backdoor: float | None = None
    worst_class: float | None = None


class Curve(Record, frozen=True):
    """The measurements of a run, one list per metric for compact files."""

    round: list[int]
    accuracy: list[float]
    loss: list[float] = []
    clients: list[float] = []
    """The mean over clients."""
    worst_class: list[float] = []
    """The lowest accuracy of a class."""


class MadeWith(Record, frozen=True):
    """The versions behind a run, and its date."""

    fedrank: str
    revision: str | None = None
    torch: str | None = None
    numpy: str | None = None
    date: str | None = None


class SweepRow(Record, frozen=True):
    """A row in a results file: one run of a sweep, finished or not."""

    coordinates: dict[str, str] = Field(validation_alias=AliasChoices("coordinates", "place"))
    """Identifies the run among the others; older files call it place."""
    preset: str
    settings: tuple[str, ...]
    published: dict[str, int | float] | None
    """The published numbers, if any, as printed: integers stay integers."""
    begun: bool = False

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the row as JSON, without fields that a short file omits."""
        return json.dumps(self.model_dump(exclude_unset=True), indent=indent)


class UnfinishedCell(SweepRow, frozen=True):
    """A run that has no result yet, or an unusable one."""

    finished: Literal[False]
    problem: str | None = None
    """Why the run directory is unusable."""
    failure: str | None = None
    """Why the last attempt failed."""

    @property
    def state(self) -> str:
        """What a table says in place of a number."""
        if self.problem:
            return "unusable"
        if self.failure:
            return "failed"
        return "unfinished" if self.begun else "not run"


class FinishedCell(SweepRow, frozen=True):
    """A run and its result."""

    finished: Literal[True]
    rounds: int
    evaluation: CellEvaluation
    curve: Curve
    sent: Traffic
    made_with: MadeWith
    digest: str | None = None
    """The fingerprint of all settings that determine the result; older files have none."""

    @property
    def state(self) -> str:
        """For lists of all runs."""
        return "finished"


CellResult = Annotated[FinishedCell | UnfinishedCell, Field(discriminator="finished")]


def first_problem(error: ValidationError) -> str:
    """Describe the first problem in a file, and its location."""
    problem = error.errors(include_url=False)[0]
    location = ".".join(str(part) for part in problem["loc"])
    return f"{location}: {problem['msg']}" if location else problem["msg"]


def read_toml(model: type[Model], path: Path) -> Model:
    """Read a record from a TOML file."""
    try:
        return model.model_validate(tomllib.loads(path.read_text("utf-8")))
    except ValidationError as error:
        raise RunError(f"{path}: damaged ({first_problem(error)})") from error
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path}: cannot be read ({error})") from error
