import numpy as np
import pytest

from fedrank.data import IID, Federation, split
from fedrank.errors import ConfigError
from fedrank.experiment.rounds import Schedule, select
from fedrank.nn import LocalTraining
from tests.support.methods import small_frl
from tests.support.runs import rounds_of


def test_rounds_are_measured_as_asked_and_at_the_end(digits: Federation) -> None:
    frl = small_frl(local=LocalTraining(epochs=1))
    played = [record for _, record in rounds_of(frl, digits, Schedule(5, 3, 2))]
    assert [record.number for record in played] == [1, 2, 3, 4, 5]
    assert [record.evaluation is not None for record in played] == [False, True, False, True, True]
    assert all(len(set(record.clients)) == 3 for record in played)


def test_going_on_from_a_state_ends_in_the_same_bytes(digits: Federation) -> None:
    frl = small_frl(local=LocalTraining(epochs=1))
    states = [state for state, _ in rounds_of(frl, digits, Schedule(4, 3, 4))]
    again = [state for state, _ in rounds_of(frl, digits, Schedule(4, 3, 4), state=states[1])]
    assert [state.round for state in again] == [3, 4]
    assert again[-1].ranking.tobytes() == states[-1].ranking.tobytes()


def test_selection_draws_voters_only_and_differs_between_rounds(digits: Federation) -> None:
    draws = [select(digits.voters, 10, seed=1, round_number=r) for r in range(20)]
    assert {client for draw in draws for client in draw} <= set(digits.voters.tolist())
    assert len(set(draws)) == 20
    assert select(digits.voters, 10, seed=1, round_number=4) == draws[4]


def test_a_federation_without_test_samples_is_refused() -> None:
    everyone = split(np.zeros((20, 2)), np.arange(20) % 2, by=IID(), clients=10, seed=1)
    with pytest.raises(ConfigError, match="there are no test samples"):
        Schedule(1, 2).check(everyone)


@pytest.mark.parametrize(
    ("schedule", "complaint"),
    [
        ((1, 0), "clients_per_round must be at least 1, got 0"),
        ((1, 2.5), "clients_per_round must be a whole number, got 2.5"),
        ((1, 31), "clients_per_round is 31, but only 30 clients have training data"),
        ((0, 3), "rounds must be at least 1, got 0"),
        ((1.5, 3), "rounds must be a whole number, got 1.5"),
        (("3", 3), "rounds must be a whole number, got '3'"),
        ((True, 3), "rounds must be a whole number, got True"),
        ((1, 3, 0), "evaluate_every must be at least 1, got 0"),
    ],
)
def test_impossible_schedules_are_refused(digits: Federation, schedule: tuple, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Schedule(*schedule).check(digits)
