import json
import warnings

import numpy as np
import pytest
from torch import nn

import fedrank
from fedrank.data import Federation

GOOD = nn.Sequential(nn.Flatten(), nn.Linear(64, 200, bias=False), nn.ReLU(), nn.Linear(200, 10, bias=False))


def relu_layers(depth: int, width: int = 64) -> nn.Module:
    layers = [nn.Flatten(), nn.Linear(64, width, bias=False), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width, bias=False), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 10, bias=False))


def diagnosed(clients: Federation, model: nn.Module = GOOD, **local: int) -> fedrank.Diagnosis:
    return fedrank.diagnose(fedrank.supernetwork(model, seed=1), clients, fedrank.LocalTraining(**local))


def made_of(clients: Federation, change) -> Federation:  # type: ignore[no-untyped-def]
    inputs, labels = clients.dataset.inputs, clients.dataset.labels
    prepared = clients.dataset.preprocess(inputs)
    by = fedrank.Dirichlet(1.0)
    return fedrank.split(change(prepared), labels, clients=30, by=by, seed=3, preprocess=None)


def test_a_network_and_data_that_suit_each_other_cause_no_warning(digits: Federation) -> None:
    found = diagnosed(digits)
    assert found.warnings == ()
    sizes = [client.train.size for client in digits.clients]
    assert (found.samples.least, found.samples.most) == (min(sizes), max(sizes))
    assert found.steps.most == 5 * -(-max(sizes) // 8)
    assert found.inputs.mean == pytest.approx(0, abs=0.1)
    assert found.inputs.deviation == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(
    ("model", "change", "local", "warning"),
    [
        (GOOD, lambda x: x * 0.375 + 0.305, {}, "inputs are not centered"),
        (GOOD, lambda x: x * 0 + 3, {}, "all inputs are 3"),
        (GOOD, lambda x: x, {"epochs": 1, "batch_size": 64}, "take 1 step per round"),
        (GOOD, lambda x: x * 1000, {}, "the signal explodes"),
        (relu_layers(16), lambda x: x, {}, "the signal is weak"),
        (relu_layers(0, 20), lambda x: x, {}, "only 1,480 edges"),
    ],
)
def test_each_obstacle_has_one_warning(digits, model, change, local, warning) -> None:  # type: ignore[no-untyped-def]
    (found,) = diagnosed(made_of(digits, change), model, **local).warnings
    assert warning in found


def test_a_diagnosis_reads_as_a_table_as_html_and_as_records(digits: Federation) -> None:
    found = diagnosed(digits, relu_layers(0, 20))
    text, page = str(found), found._repr_html_()
    for shown in ("1.weight", "Linear", "20 x 64", "1,280", "1,025", "only 1,480 edges", "median"):
        assert shown in text, shown
        assert shown in page, shown
    records = json.loads(json.dumps(found.to_records()))
    assert [(each["name"], each["edges"], each["kept"]) for each in records] == [
        ("1.weight", 1280, 1025),
        ("3.weight", 200, 161),
    ]


def test_it_looks_at_no_more_than_a_batch_from_many_clients() -> None:
    inputs, labels = np.random.default_rng(1).normal(size=(3000, 64)), np.arange(3000) % 10
    inputs[:, 0] += labels  # shards are centered together, not alone
    clients = fedrank.split(inputs, labels, clients=300, by=fedrank.Shards(1), seed=1)
    seen = []

    class Seen(nn.Module):
        def forward(self, batch):  # type: ignore[no-untyped-def]
            seen.append(len(batch))
            return batch

    diagnosed(clients, nn.Sequential(Seen(), GOOD))
    assert max(seen, default=0) <= 200


@pytest.mark.parametrize(
    "model", [nn.Linear(8, 10, bias=False), nn.Sequential(nn.Flatten(), nn.Linear(64, 9, bias=False))]
)
def test_a_model_that_does_not_fit_is_refused(digits: Federation, model: nn.Module) -> None:
    with pytest.raises(fedrank.FedrankError, match="outputs"):
        diagnosed(digits, model)


def test_train_warns_once_and_only_rankings_are_diagnosed(digits: Federation) -> None:
    few = relu_layers(0, 20)
    options = {"rounds": 2, "clients_per_round": 2, "workers": 1, "progress": False}
    with pytest.warns(fedrank.FedrankWarning, match="only 1,480 edges") as caught:
        fedrank.train(fedrank.FRL(fedrank.supernetwork(few, seed=1)), digits, **options)
    assert [each.filename for each in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fedrank.train(fedrank.FedAvg(few, seed=1), digits, **options)


def test_probabilities_have_a_warning_of_their_own(digits: Federation) -> None:
    (warning,) = diagnosed(digits, nn.Sequential(GOOD, nn.Softmax(dim=1))).warnings
    assert "after a softmax, but the loss expects logits" in warning


@pytest.mark.parametrize(("keep", "advised"), [(0.5, True), (0.8, False)])
def test_a_weak_signal_is_not_helped_by_what_is_done_already(
    digits: Federation, keep: float, advised: bool
) -> None:
    (warning,) = fedrank.diagnose(fedrank.supernetwork(relu_layers(16), seed=1, keep=keep), digits).warnings
    assert "the signal is weak" in warning
    assert ("keep=0.8" in warning) == advised


def test_local_training_is_checked(digits: Federation) -> None:
    net = fedrank.supernetwork(GOOD, seed=1)
    with pytest.raises(fedrank.FedrankError, match=r"local must be a LocalTraining, .* got \{'epochs': 2\}"):
        fedrank.diagnose(net, digits, {"epochs": 2})  # type: ignore[arg-type]
