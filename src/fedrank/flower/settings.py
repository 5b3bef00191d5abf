"""The settings of the Flower app: an experiment, and what only a network needs to know."""

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
    """What `flwr run` is told by `[tool.flwr.app.config]` and `--run-config`.

    Parameters
    ----------
    preset, config : a shipped experiment, or a TOML file that all nodes can read in its place.
    settings : key=value words that are laid over it.
    out : the run directory, on the server's machine. One that holds an unfinished run is continued.
    data_dir : where the server's data sets lie.
    min_available_nodes : how many clients must be there before the first round; 0: all of the experiment.
    min_votes, deadline, startup_timeout, max_retries, strikes : as of `fedrank.flower.RankVote`.
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
        """Check a run's configuration."""
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
        """What is run."""
        words = self.settings.split()
        experiment = load_file(Path(self.config), words) if self.config else load_preset(self.preset, words)
        if experiment.method.name != "frl":
            raise ConfigError(f"method.name is {experiment.method.name!r}: only frl can be run over Flower")
        return experiment

    @property
    def server_data(self) -> Path:
        """Where the server's data sets lie."""
        return Path(self.data_dir) if self.data_dir else default_data_dir()
