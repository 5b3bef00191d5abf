"""What a run remembers of a model and data of the user's own: digests that tell whether they have changed."""

from __future__ import annotations

import hashlib
from typing import Any, Self

import tomli_w

from fedrank.data import Federation, Preprocess
from fedrank.data.digest import data_digest
from fedrank.errors import RunError
from fedrank.experiment.config import Experiment
from fedrank.experiment.description import OwnData, describe_data
from fedrank.experiment.records import read_toml
from fedrank.experiment.rounds import RunSetup
from fedrank.experiment.rundir import CHECKPOINT, PARTS, RunDirectory, RunSettings
from fedrank.experiment.sections import Section
from fedrank.methods import Method
from fedrank.nn import PlainNetwork
from fedrank.nn.rebuild import structure_digest

WORDS = {"layers": "layers", "structure": "modules", "weights": "initial weights"}
SEEDED = "The initial weights follow from the seed if a class or function makes the model. "


class DataPart(OwnData):
    """Data of one's own, as clients train on it."""

    shape: list[int]

    @classmethod
    def of_federation(cls, federation: Federation) -> Self:
        """Describe the data of all clients."""
        shape = list(federation.dataset.inputs.shape[1:])
        return cls(shape=shape, **describe_data(federation).model_dump())

    def preprocessing(self) -> Preprocess:
        """Return what was done to the inputs."""
        return Preprocess(**self.preprocess)


class NetworkPart(Section):
    """A model of one's own; `weights` are its initial ones, unless they follow from the seed."""

    layers: dict[str, list[int]]
    structure: str
    weights: str

    @classmethod
    def of_method(cls, method: Method[Any]) -> Self:
        """Describe the network of a method."""
        network = method.network
        plain = isinstance(network, PlainNetwork)
        return cls(
            layers={layer.name: list(layer.shape) for layer in network.layout},
            structure=structure_digest(network.skeleton),
            weights=hashlib.sha256(network.weights.tobytes()).hexdigest()[:32] if plain else "",
        )


class Parts(Section):
    """The parts of a run that are the user's own."""

    data: DataPart | None = None
    network: NetworkPart | None = None

    @classmethod
    def read(cls, directory: RunDirectory) -> Parts | None:
        """Return the parts that a run began with; None if it has none of the user's own, or has not begun."""
        path = directory.path / PARTS
        if not has_own(directory.experiment):
            return None
        if not path.exists():
            if (directory.path / CHECKPOINT).exists():
                raise RunError(
                    f"{path}: missing, so a change of the model or data since this run began would not be "
                    "noticed. Restore it, or start another run."
                )
            return None
        return read_toml(cls, path)

    def check_same(self, directory: RunDirectory) -> None:
        """Raise RunError if the run in a directory began with other parts."""
        if Parts.read(directory) not in (self, None):
            raise RunError(
                f"{directory.path}: contains another run: its model or data is not that of this one. "
                "Choose another directory."
            )

    def write(self, directory: RunDirectory) -> None:
        """Write the parts to a run directory."""
        directory.write_parts(tomli_w.dumps(self.model_dump(exclude_none=True)))


def has_own(settings: RunSettings) -> bool:
    """Return whether a configuration names a model or data of the user's own."""
    return isinstance(settings, Experiment) and (settings.data.own or settings.network.own)


def keep_parts(directory: RunDirectory, setup: RunSetup) -> None:
    """Remember the user's own parts when a run begins; refuse to go on with others."""
    experiment = directory.experiment
    check_data(directory, setup.federation)
    if not isinstance(experiment, Experiment) or not has_own(experiment) or Parts.read(directory):
        return
    parts = Parts(
        data=DataPart.of_federation(setup.federation) if experiment.data.own else None,
        network=NetworkPart.of_method(setup.method) if experiment.network.own else None,
    )
    parts.write(directory)


def check_network(directory: RunDirectory, method: Method[Any]) -> None:
    """Raise RunError if the model is another than when the run began."""
    parts = Parts.read(directory)
    if parts is None or parts.network is None:
        return
    before, now = parts.network.model_dump(), NetworkPart.of_method(method).model_dump()
    if changed := [key for key in before if before[key] != now[key]]:
        name, advice = directory.configuration.network.name, SEEDED if changed[0] == "weights" else ""
        raise _changed(directory, f"the {WORDS[changed[0]]} of the model ({name}) have", advice)


def check_data(directory: RunDirectory, federation: Federation) -> None:
    """Raise RunError if the data is other data than when the run began."""
    parts = Parts.read(directory)
    if parts and parts.data and parts.data.digest != data_digest(federation):
        raise _changed(directory, f"the data ({directory.configuration.data.name}) has")


def _changed(directory: RunDirectory, what: str, advice: str = "") -> RunError:
    return RunError(
        f"{directory.path}: {what} changed since this run began. {advice}"
        "Undo the change, or start another run."
    )
