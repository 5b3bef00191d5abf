import numpy as np
import pytest
from torch import nn

import fedrank
from fedrank.data import Federation

MODEL = nn.Sequential(nn.Flatten(), nn.Linear(64, 10, bias=False))


def train(digits: Federation, model: nn.Module = MODEL, **options: int) -> fedrank.Run:
    settings = {"rounds": 2, "per_round": 2, "workers": 1, **options}
    return fedrank.train(fedrank.FRL(fedrank.supernetwork(model, seed=1)), digits, progress=False, **settings)


def test_a_run_knows_its_history_and_its_model(digits: Federation) -> None:
    run = train(digits, rounds=3, evaluate_every=2)
    assert [played.number for played in run.history] == [1, 2, 3]
    assert run.evaluation == run.history[-1].evaluation
    weight = run.subnetwork()[1].weight  # type: ignore[index]
    assert np.count_nonzero(weight.numpy()) == 320


@pytest.mark.parametrize(
    ("model", "complaint"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(65, 10, bias=False)), "does not fit samples of shape"),
        (
            nn.Sequential(nn.Flatten(), nn.Linear(64, 9, bias=False)),
            "outputs 9 values per sample",
        ),
        (nn.Linear(8, 10, bias=False), "outputs shape"),
    ],
)
def test_a_model_that_does_not_fit_the_data_is_refused_first(
    digits: Federation, model: nn.Module, complaint: str
) -> None:
    with pytest.raises(fedrank.FedrankError, match=complaint):
        train(digits, model)


@pytest.mark.parametrize("options", [{"workers": 0}, {"rounds": 0}, {"per_round": 0}, {"per_round": 1000}])
def test_impossible_numbers_are_refused(digits: Federation, options: dict[str, int]) -> None:
    with pytest.raises(fedrank.FedrankError):
        train(digits, **options)


def test_a_callback_hears_of_every_round():
    heard = []
    rng = np.random.default_rng(0)
    federation = fedrank.split(
        rng.normal(size=(40, 4)), np.arange(40) % 2, by=fedrank.IID(), clients=4, seed=1
    )
    method = fedrank.FRL(fedrank.supernetwork(nn.Linear(4, 2, bias=False), seed=1))
    run = fedrank.train(
        method, federation, rounds=3, per_round=3, workers=1, progress=False, on_round=heard.append
    )
    assert heard == list(run.history)
    assert [played.number for played in heard] == [1, 2, 3]
