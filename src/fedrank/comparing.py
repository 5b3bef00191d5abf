"""`fedrank.compare`: methods of your own side by side, under attacks, with several seeds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import nn

from fedrank.arguments import kind_of, shown
from fedrank.data import Federation, check_federation
from fedrank.errors import ConfigError, FedrankError, RunError
from fedrank.experiment.adversary import Adversary
from fedrank.experiment.description import Description
from fedrank.experiment.environment import describe
from fedrank.experiment.grid import check_distinct, whole_seeds
from fedrank.experiment.records import CellResult, UnfinishedCell
from fedrank.experiment.results import finished_cell
from fedrank.experiment.rounds import RunSetup, Schedule
from fedrank.experiment.rundir import RunDirectory
from fedrank.experiment.runner import record_of, summarize
from fedrank.experiment.sweep import RUNS, SEED, folder_name, make_folder
from fedrank.methods import Method, check_method
from fedrank.nn import Supernetwork, check_fit
from fedrank.parameters import named_failure
from fedrank.report.comparison import Comparison
from fedrank.report.terminal import stderr_console
from fedrank.run import Run
from fedrank.training import train

NAMED = {"methods": "methods", "adversary": "adversaries"}
METHOD, ADVERSARY = "method", "adversary"
"""The coordinates of a comparison, beside the seed."""

logger = logging.getLogger("fedrank")

MethodOfSeed = Method[Any] | Callable[[int], Method[Any]]
ClientsOfSeed = Federation | Callable[[int], Federation]


def compare(
    methods: Mapping[str, MethodOfSeed],
    clients: ClientsOfSeed,
    *,
    rounds: int,
    clients_per_round: int,
    seeds: int | Sequence[int] = 3,
    adversary: Adversary | Mapping[str, Adversary | None] | None = None,
    evaluate_every: int = 1,
    workers: int | None = None,
    device: str = "cpu",
    progress: bool = True,
    out: str | Path | None = None,
) -> Comparison:
    """Train every method with every seed, one run after the other, and return their numbers.

    Parameters
    ----------
    methods : methods by their names in the table, each as a function of the seed, such as
        `lambda seed: fedrank.FRL(fedrank.supernetwork(Net(), seed=seed))`. A method of a supernetwork may be
        given itself; it is repeated with other seeds.
    clients : a federation, the same for all seeds, or a function of the seed.
    seeds : how many seeds, from 0 on, or a list of them.
    adversary : malicious clients and their attack, or several by name, which become columns; None for none.
    out : a directory to keep the runs in, with the tables and charts. Called again, finished runs are read
        and an interrupted one is resumed.

    The other arguments are those of `fedrank.train`. While a function makes a method, torch's random numbers
    follow from the seed. A run that fails is marked, and the others go on. Ctrl-C finishes the current round
    and returns what there is, with `Comparison.interrupted` set.

    >>> from fedrank import FRL, IID, split, supernetwork
    >>> clients = split([[0.0, 1, 2, 3], [3.0, 2, 1, 0]] * 30, [0, 1] * 30, clients=3, by=IID(), seed=7)
    >>> methods = {"FRL": lambda seed: FRL(supernetwork(nn.Linear(4, 2, bias=False), seed=seed))}
    >>> compare(methods, clients, rounds=1, clients_per_round=3, progress=False).table().headings
    ['method', 'test_accuracy']
    """
    numbers = whole_seeds(seeds)
    schedule = Schedule(rounds, clients_per_round, evaluate_every)
    plan = _Plan(_named("methods", methods), clients, _adversaries(adversary), schedule, numbers)
    folder = None if out is None else Path(out)
    plan.check(keeping=folder is not None)
    if folder is not None:
        make_folder(folder / RUNS)
    options = {"workers": workers, "device": device}
    results, interrupted = _train_all(plan, folder, options, progress)
    title = folder.resolve().name if folder else "Comparison"
    columns = (ADVERSARY,) if isinstance(adversary, Mapping) else ()
    comparison = Comparison(title, tuple(results), (METHOD,), columns, interrupted)
    if folder is not None:
        comparison.save(folder)
    return comparison


def _named(owner: str, things: Any) -> Mapping[str, Any]:
    if not isinstance(things, Mapping) or not things:
        got = shown(things) if isinstance(things, str | dict) else kind_of(things)
        raise ConfigError(f"{owner} must be a dict from names to {NAMED[owner]}, got {got}")
    for name in things:
        if not (isinstance(name, str) and name):
            raise ConfigError(f"{owner} must have strings as names, got {name!r}")
    found: Mapping[str, Any] = things
    return found


def _adversaries(given: Any) -> Mapping[str, Adversary | None]:
    """Return adversaries by name; one that is given alone needs no name."""
    if given is None or isinstance(given, Adversary):
        return {"": given}
    for name, each in _named("adversary", given).items():
        if not (each is None or isinstance(each, Adversary)):
            raise ConfigError(f"adversary[{name!r}] must be an Adversary or None, got {each!r}")
    found: Mapping[str, Adversary | None] = given
    return found


@dataclass(frozen=True)
class _Trial:
    """One run of a comparison."""

    method: str
    adversary: str
    seed: int

    @property
    def coordinates(self) -> dict[str, str]:
        named = {ADVERSARY: self.adversary} if self.adversary else {}
        return {METHOD: self.method, **named, SEED: str(self.seed)}

    @property
    def name(self) -> str:
        *names, seed = self.coordinates.values()
        return ", ".join([*names, f"{SEED}={seed}"])

    def path(self, folder: Path | None) -> Path | None:
        return None if folder is None else folder / RUNS / folder_name(self.name.replace(", ", "_"))


@dataclass(frozen=True)
class _Plan:
    """What is compared."""

    methods: Mapping[str, MethodOfSeed]
    clients: ClientsOfSeed
    adversaries: Mapping[str, Adversary | None]
    schedule: Schedule
    seeds: Sequence[int]

    def trials(self, seed: int) -> Iterator[_Trial]:
        return (_Trial(method, name, seed) for method in self.methods for name in self.adversaries)

    def check(self, *, keeping: bool) -> None:
        """Raise an error that names the run if something does not fit, before anything is trained."""
        first = self.seeds[0]
        check_distinct("two runs need the directory", [str(each.path(Path())) for each in self.trials(first)])
        for name in self.methods:
            made = [self.method(name, seed).network.seed for seed in self.seeds[:2]]
            if len(made) > 1 and made[0] == made[1]:
                raise ConfigError(
                    f"methods[{name!r}] gives networks of the same seed for two seeds: use the argument"
                )
        clients = self.federation(first)
        for trial in self.trials(first):
            try:
                self._check(trial, clients, keeping)
            except FedrankError as error:
                raise type(error)(f"{trial.name}: {error}") from error

    def _check(self, trial: _Trial, clients: Federation, keeping: bool) -> None:
        method, adversary = self.method(trial.method, trial.seed), self.adversaries[trial.adversary]
        setup = RunSetup.of(method, clients, self.schedule, adversary)
        check_fit(method.model(method.init()), clients)
        if keeping:
            Description.of("", method, clients, self.schedule, setup.adversary)

    def method(self, name: str, seed: int) -> Method[Any]:
        """Return a method as it is with a seed."""
        given: Any = self.methods[name]
        owner = f"methods[{name!r}]"
        if callable(given) and not isinstance(given, nn.Module):
            with torch.random.fork_rng(devices=[]), named_failure(owner):
                torch.manual_seed(seed)
                made = given(seed)
            check_method(made, owner)
            return cast("Method[Any]", made)
        check_method(given, owner)
        method: Any = given
        if not isinstance(method.network, Supernetwork):
            raise ConfigError(
                f"{owner} has weights that do not follow from a seed. Pass a function of the seed, such as "
                "lambda seed: fedrank.FedAvg(Net(), seed=seed)"
            )
        changed: Method[Any] = replace(method, network=replace(method.network, seed=seed))
        return changed

    def federation(self, seed: int) -> Federation:
        """Return the clients as they are with a seed."""
        clients = self.clients
        if callable(clients):
            with named_failure("clients"):
                clients = clients(seed)
        check_federation(clients)
        return clients


def _train_all(
    plan: _Plan, folder: Path | None, options: Mapping[str, Any], progress: bool
) -> tuple[list[CellResult], bool]:
    """Train one seed of everything after the other; return the results, and whether Ctrl-C ended it."""
    results = {trial: _unfinished(trial) for seed in plan.seeds for trial in plan.trials(seed)}
    console = stderr_console()
    console.quiet = not progress
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task("rounds", total=plan.schedule.rounds * len(results))
        try:
            for number, trial in enumerate(results):
                bar.update(task, completed=number * plan.schedule.rounds, description=trial.name)
                watch = {"on_round": lambda _: bar.advance(task), **options}
                results[trial] = result = _result(plan, trial, folder, watch)
                if result.state == "unfinished":
                    return list(results.values()), True
            bar.update(task, completed=len(results) * plan.schedule.rounds)
        except KeyboardInterrupt:
            return list(results.values()), True
    return list(results.values()), False


def _unfinished(trial: _Trial, **more: Any) -> CellResult:
    return UnfinishedCell(**(_row(trial) | {"finished": False} | more))


def _row(trial: _Trial) -> dict[str, Any]:
    return {"coordinates": trial.coordinates, "preset": "", "settings": (), "published": None, "begun": False}


def _result(plan: _Plan, trial: _Trial, folder: Path | None, options: Mapping[str, Any]) -> CellResult:
    """Train, and return the result; a run that fails says why, unless its directory cannot be used."""
    path, schedule = trial.path(folder), plan.schedule
    try:
        run = train(
            plan.method(trial.method, trial.seed),
            plan.federation(trial.seed),
            rounds=schedule.rounds,
            clients_per_round=schedule.clients_per_round,
            evaluate_every=schedule.evaluate_every,
            adversary=plan.adversaries[trial.adversary],
            progress=False,
            out=path,
            name=trial.name,
            **options,
        )
    except RunError:
        raise
    except FedrankError as error:
        logger.warning("%s failed: %s", trial.name, error)
        return _unfinished(trial, failure=str(error), begun=True)
    if run.interrupted:
        return _unfinished(trial, begun=True)
    return _finished(trial, run, path, options)


def _finished(trial: _Trial, run: Run, path: Path | None, options: Mapping[str, Any]) -> CellResult:
    records = [record_of(done) for done in run.history]
    summary = summarize(run.method, run.state.round, records, run.evaluation)
    if path is None:
        environment = describe(None, options["workers"] or 0, options["device"])
    else:
        environment = RunDirectory.open(path).environment
    return finished_cell(_row(trial) | {"begun": True}, summary, records, environment)
