"""Attacks: what they may know, that what they send is legal, and that they hurt."""

import functools

import numpy as np
import pytest
from torch import nn

from fedrank.attacks import ATTACKS, Attack, Knowledge, Target, View, attack, attack_named
from fedrank.attacks.rankings import reverse
from fedrank.data import Dirichlet, Federation, split
from fedrank.engine import local_engine
from fedrank.errors import ConfigError
from fedrank.experiment.rounds import Adversary, Expectation, Round, Schedule, draw_malicious, play, select
from fedrank.methods import FRL, FedAvg, Method, SignSGD, TopK
from fedrank.nn import LocalTraining, supernetwork
from fedrank.rank import Layout

SHARE = 0.3


def small_net() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 64, bias=False), nn.ReLU(), nn.Linear(64, 10, bias=False)
    )


def frl(ballots: str = "exact") -> FRL:
    return FRL(supernetwork(small_net(), seed=11), LocalTraining(epochs=3), ballots)


def weights(kind: type, **options: object) -> Method:
    network = supernetwork(small_net(), seed=11, weights="kaiming-normal")
    return kind(network, LocalTraining(epochs=3, learning_rate=0.02), **options)


TARGETS = {
    "frl": frl,
    "sparse-frl": functools.partial(frl, "top=50%"),
    "fedavg": functools.partial(weights, FedAvg),
    "topk": functools.partial(weights, TopK),
    "signsgd": functools.partial(weights, SignSGD, server_rate=0.02),
    "trimmed-mean": functools.partial(weights, FedAvg, aggregator="trimmed-mean"),
    "multi-krum": functools.partial(weights, FedAvg, aggregator="multi-krum"),
}


@pytest.fixture(scope="module")
def crowd() -> Federation:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return split(images.reshape(-1, 1, 8, 8) / 16, labels, clients=50, by=Dirichlet(1.0), seed=7)


MEASURED: dict[tuple[str, str], float] = {}


def mean_accuracy(crowd: Federation, target: str, name: str) -> float:
    """The mean accuracy over rounds 5, 10 and 15, with 30% malicious clients."""
    if (target, name) not in MEASURED:
        MEASURED[target, name] = _play(crowd, target, name)
    return MEASURED[target, name]


def _play(crowd: Federation, target: str, name: str) -> float:
    method = TARGETS[target]()
    malicious = draw_malicious(crowd, SHARE, 11)
    adversary = None
    if name != "none":
        adversary = Adversary(ATTACKS[name], malicious)
        if adversary.attack.poison:
            crowd = adversary.attack.poison(crowd, malicious)
    with local_engine(method, crowd, workers=1) as engine:
        rounds = [r for _, r in play(method, crowd, engine, method.init(), Schedule(15, 15, 5), adversary)]
    measured = [r.evaluation.test_accuracy for r in rounds if r.evaluation]
    return float(np.mean(measured))


@pytest.mark.parametrize(
    ("target", "name", "below"),
    [
        ("fedavg", "scaled", ("sign-flip", "noise")),
        ("fedavg", "ipm", ("sign-flip", "noise")),
        ("topk", "scaled", ("sign-flip", "noise")),
        ("signsgd", "sign-reverse", ("sign-flip", "noise")),
        ("trimmed-mean", "dyn-trimmed-mean", ("sign-flip", "noise")),
        ("trimmed-mean", "min-sum", ("sign-flip", "noise")),
        ("multi-krum", "dyn-multi-krum", ("sign-flip", "noise")),
        ("multi-krum", "min-max", ("sign-flip", "noise")),
        ("multi-krum", "min-sum", ("sign-flip", "noise")),
        ("frl", "reverse", ("random",)),
        ("sparse-frl", "reverse", ("random",)),
        ("frl", "label-flip", ("random",)),
        ("trimmed-mean", "label-flip", ("noise",)),
    ],
)
@pytest.mark.slow
def test_an_attack_hurts_more_than_the_simple_ones(
    crowd: Federation, target: str, name: str, below: tuple[str, ...]
) -> None:
    accuracy = mean_accuracy(crowd, target, name)
    assert accuracy < mean_accuracy(crowd, target, "none")
    for simple in below:
        assert accuracy < mean_accuracy(crowd, target, simple)


@pytest.mark.parametrize(
    ("target", "name", "at_most"),
    [
        ("fedavg", "scaled", 0.2),
        ("topk", "scaled", 0.25),
        ("multi-krum", "dyn-multi-krum", 0.2),
    ],
)
@pytest.mark.slow
def test_what_must_be_destroyed_is_destroyed(
    crowd: Federation, target: str, name: str, at_most: float
) -> None:
    assert mean_accuracy(crowd, target, name) < at_most


def spied(crowd: Federation, knows: Knowledge) -> tuple[list[View], Round]:
    """What an attack with this knowledge gets to see in one round of FedAvg."""
    seen: list[View] = []

    def spy(view: View) -> np.ndarray:
        seen.append(view)
        return view.own[0]

    method = TARGETS["fedavg"]()
    adversary = Adversary(Attack("spy", "", "", Target.WEIGHTS, knows, spy), draw_malicious(crowd, SHARE, 11))
    with local_engine(method, crowd, workers=1) as engine:
        *_, (_, played) = play(method, crowd, engine, method.init(), Schedule(1, 15, 1), adversary)
    return seen, played


def test_an_attack_sees_no_more_than_it_declares(crowd: Federation) -> None:
    alone, played = spied(crowd, Knowledge.OWN)
    assert [len(view.own) for view in alone] == [1] * len(played.malicious)
    assert all(view.benign == [] for view in alone)
    together, _ = spied(crowd, Knowledge.COLLUDERS)
    assert [(len(view.own), len(view.benign)) for view in together] == [(len(played.malicious), 0)]
    everything, _ = spied(crowd, Knowledge.BENIGN)
    honest = len(played.clients) - len(played.malicious)
    assert [(len(view.own), len(view.benign)) for view in everything] == [(len(played.malicious), honest)]
    assert played.malicious
    assert all(client in draw_malicious(crowd, SHARE, 11) for client in played.malicious)


def test_clients_that_send_what_they_have_learned_do_no_harm(crowd: Federation) -> None:
    """An attack that attacks nothing must give the same bytes as no attack, however much it knows."""
    method = TARGETS["fedavg"]()
    ends = []
    for knows in (None, Knowledge.COLLUDERS, Knowledge.BENIGN):
        adversary = None
        if knows:
            craft = Attack("nothing", "", "", Target.WEIGHTS, knows, lambda view: view.own[0])
            adversary = Adversary(craft, frozenset({int(crowd.voters[0])}), redraw=False)
        with local_engine(method, crowd, workers=1) as engine:
            everybody = Schedule(1, crowd.voters.size, 1)
            *_, (state, _) = play(method, crowd, engine, method.init(), everybody, adversary)
        ends.append(state.weights.tobytes())
    assert len(set(ends)) == 1


@pytest.mark.parametrize("ballots", ["exact", "levels=16 dithered coded", "top=50%", "top=10% coded"])
@pytest.mark.parametrize("name", [name for name in ATTACKS if ATTACKS[name].target is Target.RANKINGS])
def test_a_ballot_attack_sends_legal_ballots(crowd: Federation, name: str, ballots: str) -> None:
    method = frl(ballots)
    adversary = Adversary(ATTACKS[name], draw_malicious(crowd, SHARE, 11))
    with local_engine(method, crowd, workers=1) as engine:
        *_, (_, played) = play(method, crowd, engine, method.init(), Schedule(1, 15, 1), adversary)
    assert played.refused == {}
    assert len(played.malicious) > 1


def test_reverse_is_algorithm_3() -> None:
    layout = Layout.of([("first", (4,)), ("second", (3,))])
    own = [np.array([0, 1, 2, 3, 2, 0, 1], np.int32), np.array([1, 0, 3, 2, 2, 1, 0], np.int32)]
    reputations = {0: 0 + 1, 1: 1 + 0, 2: 2 + 3, 3: 3 + 2}, {0: 1 + 2, 1: 2 + 1, 2: 0 + 0}
    voted = [sorted(points, key=lambda edge: (points[edge], edge)) for points in reputations]
    view = View(layout, own[0], own, [], 2, lambda updates: updates[0], np.random.default_rng(0))
    assert reverse(view).tolist() == voted[0][::-1] + voted[1][::-1]


def test_label_flipping_touches_only_what_malicious_clients_train_on(crowd: Federation) -> None:
    poisoned = ATTACKS["label-flip"].poison(crowd, frozenset({4, 9}))  # type: ignore[misc]
    changed = np.flatnonzero(poisoned.dataset.labels != crowd.dataset.labels)
    theirs = np.concatenate([crowd.clients[4].train, crowd.clients[9].train])
    assert set(changed) <= set(theirs.tolist())
    assert (poisoned.dataset.labels[theirs] == 9 - crowd.dataset.labels[theirs]).all()


def test_malicious_clients_are_a_seeded_choice(crowd: Federation) -> None:
    chosen = draw_malicious(crowd, 0.3, 5)
    assert len(chosen) == 15
    assert chosen == draw_malicious(crowd, 0.3, 5) != draw_malicious(crowd, 0.3, 6)


def test_a_round_with_half_malicious_clients_is_drawn_again(crowd: Federation) -> None:
    malicious = draw_malicious(crowd, 0.45, 1)
    as_drawn = [select(crowd, 10, 3, number) for number in range(60)]
    redrawn = [select(crowd, 10, 3, number, malicious) for number in range(60)]
    bad = [2 * sum(client in malicious for client in clients) >= 10 for clients in as_drawn]
    assert any(bad)
    assert all(2 * sum(client in malicious for client in clients) < 10 for clients in redrawn)
    for was_bad, before, after in zip(bad, as_drawn, redrawn, strict=True):
        assert was_bad or before == after


def test_too_many_malicious_clients_to_draw_a_round_are_reported(crowd: Federation) -> None:
    with pytest.raises(ConfigError, match="redraw = false"):
        select(crowd, 10, 3, 0, frozenset(range(50)))


def test_what_a_rule_expects() -> None:
    assert Expectation().of(25, 4) == 4
    assert Expectation(told=False, share=0.2).of(25, 4) == 5
    assert Expectation(told=False, share=0.21).of(25, 0) == 6


def test_a_users_own_attack_is_one_decorated_function(crowd: Federation) -> None:
    @attack("zero-test", target=Target.WEIGHTS, knows=Knowledge.OWN, source="a test")
    def zero(view: View) -> np.ndarray:
        """Send nothing but zeros."""
        return np.zeros_like(view.own[0])

    try:
        assert attack_named("zero-test").summary == "Send nothing but zeros."
        method = TARGETS["fedavg"]()
        adversary = Adversary(attack_named("zero-test"), frozenset(range(50)), redraw=False)
        with local_engine(method, crowd, workers=1) as engine:
            *_, (state, _) = play(method, crowd, engine, method.init(), Schedule(1, 5, 1), adversary)
        assert state.weights.tobytes() == method.init().weights.tobytes()
    finally:
        del ATTACKS["zero-test"]


def test_an_unknown_attack_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"there is no attack 'revers'; there are: .*reverse"):
        attack_named("revers")
