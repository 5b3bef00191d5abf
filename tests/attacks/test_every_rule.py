"""Every aggregation rule meets every attack: a run either goes through or is refused before it begins."""

import itertools

import numpy as np
import pytest
from torch import nn

from fedrank.aggregators import RULES
from fedrank.attacks import ATTACKS, Target
from fedrank.data import IID, Federation, split
from fedrank.engine import local_engine
from fedrank.errors import ConfigError
from fedrank.experiment.adversary import Adversary, draw_malicious
from fedrank.experiment.rounds import RunSetup, Schedule, run_rounds
from fedrank.methods import FRL, FedAvg, Method, SignSGD, TopK
from fedrank.nn import LocalTraining, supernetwork

LOCAL = LocalTraining(epochs=1, learning_rate=0.05)
CHAINS = [
    *(name for name, rule in RULES.items() if not rule.is_preaggregator),
    *(
        "nnm+trimmed-mean",
        "nnm+median",
        "bucketing+trimmed-mean",
        "bucketing+multi-krum",
        "bucketing+nnm+krum",
    ),
]
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)


@pytest.fixture(scope="module")
def tiny() -> Federation:
    """Forty clients of four images of two by two pixels."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, 160)
    images = rng.normal(size=(160, 1, 2, 2)) + labels[:, None, None, None]
    return split(images, labels, clients=40, by=IID(), seed=2)


def two_rounds(
    method: Method, federation: Federation, attack: str, share: float, *, redraw: bool = True
) -> int:
    """Return how many rounds were run: two, or none if the run was refused before it began."""
    adversary = Adversary(ATTACKS[attack], draw_malicious(federation, share, 11), redraw)
    try:
        setup = RunSetup.of(method, federation, Schedule(2, 20), adversary)
    except ConfigError:
        return 0
    with local_engine(method, setup.federation, workers=1) as engine:
        done = [record for _, record in run_rounds(setup, engine, method.init())]
    assert all(record.evaluation is not None for record in done)
    return len(done)


def described(chain: str) -> object:
    """The rule; ten validators are as good as forty here, and quicker."""
    return {"name": chain, "validators": 10} if chain == "measured-mean" else chain


def weights(kind: type, **options: object) -> Method:
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 3, bias=False))
    return kind(supernetwork(net, seed=11, weights="kaiming-normal"), LOCAL, **options)


def rankings(vote: str) -> FRL:
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 3, bias=False))
    return FRL(supernetwork(net, seed=11), LOCAL, vote=described(vote))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rule", "share", "redraw"),
    [
        ("multi-krum", 0.4, True),
        ("bucketing+trimmed-mean", 0.3, True),
        ("trimmed-mean", 0.6, False),
        ("nnm+median", 0.6, False),
    ],
)
def test_the_attacks_simulation_bears_what_the_servers_rule_bears(
    tiny: Federation, rule: str, share: float, redraw: bool
) -> None:
    method = weights(FedAvg, aggregator=rule)
    assert two_rounds(method, tiny, "dyn-trimmed-mean", share, redraw=redraw) == 2


def on(target: Target) -> list[str]:
    return [name for name, attack in ATTACKS.items() if attack.target in (target, Target.EITHER)]


def grid(target: Target, chains: list[str]) -> list[object]:
    return [pytest.param(*pair, id="-".join(pair)) for pair in itertools.product(chains, on(target))]


@pytest.mark.slow
@pytest.mark.parametrize(("chain", "attack"), grid(Target.WEIGHTS, CHAINS))
def test_every_rule_on_weights_meets_every_attack(tiny: Federation, chain: str, attack: str) -> None:
    method = weights(FedAvg, aggregator=described(chain))
    for share, redraw in itertools.product(SHARES, (True, False)):
        assert two_rounds(method, tiny, attack, share, redraw=redraw) == 2
    assuming = weights(FedAvg, aggregator=described(chain), assumed_malicious=0.45)
    assert two_rounds(assuming, tiny, attack, 0.3) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("chain", "attack"), grid(Target.RANKINGS, ["borda", *CHAINS]))
def test_every_vote_meets_every_attack(tiny: Federation, chain: str, attack: str) -> None:
    method = rankings(chain)
    for share, redraw in ((0.1, True), (0.3, True), (0.4, True), (0.5, False), (0.6, False)):
        assert two_rounds(method, tiny, attack, share, redraw=redraw) == 2


@pytest.mark.parametrize("kind", [SignSGD, TopK])
@pytest.mark.parametrize("attack", on(Target.WEIGHTS))
def test_other_methods_meet_every_attack(tiny: Federation, kind: type, attack: str) -> None:
    assert two_rounds(weights(kind), tiny, attack, 0.6, redraw=False) == 2


def test_too_many_malicious_clients_for_a_redraw_are_refused_before_the_first_round(tiny: Federation) -> None:
    adversary = Adversary(ATTACKS["scaled"], draw_malicious(tiny, 0.8, 1))
    with pytest.raises(ConfigError, match=r"32 of 40 clients malicious.*redraw = false"):
        RunSetup.of(weights(FedAvg), tiny, Schedule(2, 20), adversary)
