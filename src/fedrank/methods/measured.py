"""A measured vote: validators measure trials, the server keeps what helps, and they decide on the result.

The server's side of a round, the same on one machine and over a network.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedrank.aggregators.measured import (
    Measuring,
    effects,
    is_worse,
    kept_units,
    random_units,
    seen_trials,
    standard_error,
    trial_design,
)
from fedrank.ballots.candidates import NO_ANSWER, Inquiry, Measured, Stage
from fedrank.errors import BallotError, TooFewUpdatesError
from fedrank.methods.proposals import Proposals
from fedrank.nn import Network
from fedrank.randomness import Purpose, keyed_generator

Ask = Callable[[Stage, Mapping[int, bytes]], Mapping[int, bytes]]
"""Sends questions to validators, by their numbers; returns the answers of those who have answered."""
LIE = 1000.0
"""Larger than any honest difference."""


@dataclass(frozen=True)
class Panel:
    """The validators of a round, and what puts questions to them."""

    validators: Sequence[int]
    ask: Ask


class MeasuredMethod(Protocol):
    """A method whose updates validators measure."""

    @property
    def network(self) -> Network: ...

    @property
    def measuring(self) -> Measuring | None: ...

    def inquiry(self, round_number: int) -> Inquiry: ...

    def proposals(self, state: Any, collected: Any, members: NDArray[np.float64]) -> Proposals: ...

    def adopt(self, state: Any, result: Any) -> Any: ...


def measured_method(method: Any) -> MeasuredMethod | None:
    """Return a method as one that asks for validators, if it does."""
    asks: MeasuredMethod | None = method if getattr(method, "measuring", None) is not None else None
    return asks


@dataclass(frozen=True)
class TrialPlan:
    """Which updates are measured together in a round, and by whom.

    It is keyed by the `entropy` of all updates, so that a run can be repeated, and yet nobody can fit an
    update to it without knowing all the others.
    """

    members: NDArray[np.float64]
    design: NDArray[np.bool_]
    seed: int
    coordinates: tuple[int, ...]
    """The round and the entropy."""
    share: float

    @classmethod
    def of(cls, method: MeasuredMethod, round_number: int, voters: int, entropy: int) -> TrialPlan:
        """Return the plan of a round with so many updates."""
        assert method.measuring is not None
        seed, coordinates = method.network.seed, (round_number, entropy)
        rng = keyed_generator(seed, Purpose.TRIALS, *coordinates)
        members = random_units(voters, rng)
        design = trial_design(len(members), rng)
        return cls(members, design, seed, coordinates, method.measuring.trials)

    def seen_by(self, validator: int) -> NDArray[np.intp]:
        """Return the trials that a validator sees."""
        rng = keyed_generator(self.seed, Purpose.SEEN_TRIALS, *self.coordinates, validator)
        return seen_trials(len(self.design), self.share, rng)

    def lies(
        self, stage: Stage, validator: int, mine: NDArray[np.bool_], *, push: bool
    ) -> NDArray[np.float32]:
        """Return what a malicious validator says: the more malicious updates a trial has, the better it is.

        It is taken to know the plan, and so more than a real one could. Its word on the result is to adopt
        it (`push`), or not to.
        """
        if stage is Stage.RUNOFF:
            return np.array([-LIE if push else LIE], np.float32)
        share = self.design @ (self.members @ mine) / (self.design @ self.members.sum(axis=1))
        return np.asarray(LIE * (share.mean() - share)[self.seen_by(validator)], np.float32)


def measured_vote(
    method: MeasuredMethod, state: Any, collected: Any, panel: Panel, plan: TrialPlan | None = None
) -> tuple[Any, Measured]:
    """Return the next state, chosen by validators, and the record of how.

    The result replaces the present model unless the median over validators of the change of their loss is
    above 0 by more than two standard errors. If fewer than half of the reports are malicious, that median
    lies between two honest reports, whatever the others say.
    """
    assert method.measuring is not None
    validators, voters = panel.validators, sorted(collected.voters)
    if not voters:
        raise TooFewUpdatesError("nobody voted: no legal ballots")
    plan = plan or TrialPlan.of(method, state.round, len(voters), collected.entropy)
    proposals = method.proposals(state, collected, plan.members)
    inquiry, present = method.inquiry(state.round), proposals.present()
    poll = _Poll(inquiry, panel.ask)
    with ThreadPoolExecutor() as threads:  # NumPy's long passes run beside each other
        trials = list(threads.map(proposals.candidate, plan.design))
    seen = {validator: plan.seen_by(validator) for validator in validators}
    shown = {validator: [trials[trial] for trial in some] for validator, some in seen.items()}
    told = poll(Stage.TRIALS, present, shown)
    places = np.full((len(told), len(trials)), np.nan)
    for row, (validator, order) in zip(places, sorted(told.items()), strict=True):
        row[seen[validator]] = order
    unchanged = replace(state, round=state.round + 1)
    if not told:
        return unchanged, poll.record(validators, 0, (), None, adopted=False)
    kept = kept_units(effects(plan.design, places), method.measuring.keep)
    clients = tuple(voters[number] for number in np.flatnonzero(kept @ plan.members))
    result = proposals.candidate(kept)
    final = poll(Stage.RUNOFF, present, {validator: [result] for validator in validators})
    if not final:
        return unchanged, poll.record(validators, len(told), clients, None, adopted=False)
    changes = np.array([change for (change,) in final.values()], np.float64)
    change, error = float(np.median(changes)), standard_error(changes)
    worse = is_worse(change, error)
    chosen = unchanged if worse else method.adopt(state, proposals.result(kept))
    record = poll.record(validators, len(told), clients, change, adopted=not worse)
    return chosen, replace(record, error=error)


class _Poll:
    """Questions to validators and their checked answers, with the bytes of both."""

    def __init__(self, inquiry: Inquiry, ask: Ask) -> None:
        self.inquiry = inquiry
        self.ask = ask
        self.refused: dict[int, str] = {}
        self.question_bytes = self.report_bytes = 0

    def __call__(
        self, stage: Stage, present: bytes, shown: Mapping[int, list[bytes]]
    ) -> dict[int, NDArray[np.float32]]:
        """Return what each validator says of the candidates that it was shown."""
        questions = {
            validator: self.inquiry.question(stage, validator, present, candidates)
            for validator, candidates in shown.items()
        }
        self.question_bytes += sum(map(len, questions.values()))
        told = {}
        for validator, report in self.ask(stage, questions).items():
            self.report_bytes += len(report)
            try:
                count = len(shown[validator])
                told[validator] = self.inquiry.read_report(stage, validator, report, count)
            except BallotError as error:
                self.refused[validator] = str(error)
        for validator in shown.keys() - told.keys():
            self.refused.setdefault(validator, NO_ANSWER)
        return told

    def record(
        self,
        validators: Collection[int],
        answers: int,
        kept: tuple[int, ...],
        change: float | None,
        *,
        adopted: bool,
    ) -> Measured:
        """Return the record of the vote."""
        refused = dict(sorted(self.refused.items()))
        return Measured(
            tuple(validators), answers, refused, kept, change, adopted, self.question_bytes, self.report_bytes
        )
