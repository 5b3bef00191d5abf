"""The settings of the Flower app: an experiment, and the options of a network run."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path

from flwr.app import UserConfig
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedrank.data import default_data_dir
from fedrank.errors import ConfigError
from fedrank.experiment.config import Experiment, load_file, load_preset


class Settings(BaseModel):
    """The values of `[tool.flwr.app.config]` and `--run-config`.

    Parameters
    ----------
    preset, config : a built-in experiment, or instead a TOML file that all nodes can read.
    settings : key=value pairs that override it, separated by spaces.
    out : run directory on the server's machine; an unfinished run there is resumed.
    data_dir : directory holding the server's data sets.
    min_available_nodes : clients that must be online before the first round; 0 means all clients.
    min_votes, deadline, startup_timeout, max_retries, strikes : see `fedrank.flower.RankVote`.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, alias_generator=lambda name: name.replace("_", "-")
    )

    preset: str = "digits"
    config: str = ""
    settings: str = ""
    out: str = Field(default="runs/flower", min_length=1)
    data_dir: str = ""
    min_available_nodes: int = Field(default=0, ge=0)
    min_votes: int = 1
    deadline: float = 600.0
    startup_timeout: float = 600.0
    max_retries: int = 5
    strikes: int = 3

    @classmethod
    def read(cls, run_config: UserConfig) -> Settings:
        """Validate a run's configuration."""
        try:
            return cls.model_validate(dict(run_config))
        except ValidationError as error:
            problems = [
                f"--run-config {problem['loc'][0]}={json.dumps(problem['input'])}: {problem['msg']}"
                for problem in error.errors()
            ]
            raise ConfigError("\n".join(problems)) from None

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment to run."""
        words = self.settings.split()
        experiment = load_file(Path(self.config), words) if self.config else load_preset(self.preset, words)
        if experiment.method.name != "frl":
            raise ConfigError(f"method.name is {experiment.method.name!r}, but only frl runs over Flower")
        return experiment

    @property
    def server_data(self) -> Path:
        """The directory holding the server's data sets."""
        return Path(self.data_dir) if self.data_dir else default_data_dir()
