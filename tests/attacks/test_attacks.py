"""Attacks: what they may know, that what they send is legal, and that they hurt."""

import functools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from torch import nn

from fedrank.aggregators import Aggregator
from fedrank.attacks import ATTACKS, Attack, Knowledge, Target, View, attack, attack_named
from fedrank.attacks.rankings import FACTORS, _mirrored, reverse
from fedrank.ballots import BallotCodec, BallotFormat, Tally
from fedrank.data import Dirichlet, Federation, split
from fedrank.engine import local_engine
from fedrank.errors import ConfigError
from fedrank.experiment.adversary import Adversary, draw_malicious
from fedrank.experiment.rounds import Round, RunSetup, Schedule, run_rounds, select
from fedrank.methods import FRL, FedAvg, FRLState, Method, SignSGD, TopK, knowing
from fedrank.methods.spaces import space_of
from fedrank.nn import LocalTraining, supernetwork
from fedrank.rank import Layout, check_ranking, reputation, top_mask, vote_on
from tests.support.runs import rounds_of
from tests.support.strategies import FORMATS, near, random_ranking

SHARE = 0.3


def small_net() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 64, bias=False), nn.ReLU(), nn.Linear(64, 10, bias=False)
    )


def frl(ballots: str = "exact", vote: str = "borda") -> FRL:
    network = supernetwork(small_net(), seed=11, keep=0.5)
    return FRL(network, LocalTraining(epochs=3, balanced=False), ballots, vote=vote)


def weights(ballot_format: type, **options: object) -> Method:
    network = supernetwork(small_net(), seed=11, weights="kaiming-normal")
    local = LocalTraining(epochs=3, learning_rate=0.02, balanced=False)
    return ballot_format(network, local, **options)


TARGETS = {
    "frl": frl,
    "sparse-frl": functools.partial(frl, "top=50%"),
    "screened": functools.partial(frl, vote="screened-mean"),
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
    return split(
        images.reshape(-1, 1, 8, 8) / 16, labels, clients=50, by=Dirichlet(1.0), seed=7, preprocess=None
    )


def described(words: str) -> Attack:
    """An attack by its name and parameters, such as "mirror layers=small"."""
    name, *given = words.split()
    values = dict(word.split("=") for word in given)
    return attack_named(name).having(
        **{key: True if value == "true" else value for key, value in values.items()}
    )


MEASURED: dict[tuple[str, str, float], float] = {}


def mean_accuracy(crowd: Federation, target: str, name: str, share: float = SHARE) -> float:
    """The mean accuracy over rounds 5, 10 and 15, with 30% malicious clients."""
    if (target, name, share) not in MEASURED:
        MEASURED[target, name, share] = _play(crowd, target, name, share)
    return MEASURED[target, name, share]


def _play(crowd: Federation, target: str, name: str, share: float) -> float:
    method = TARGETS[target]()
    malicious = draw_malicious(crowd, share, 11)
    adversary = None
    if name != "none":
        adversary = Adversary(described(name), malicious)
    rounds = [record for _, record in rounds_of(method, crowd, Schedule(15, 15, 5), adversary)]
    measured = [r.evaluation.test_accuracy for r in rounds if r.evaluation]
    return float(np.mean(measured))


def case(target: str, *rest: object) -> object:
    """Keep tests that share what they measure in one process."""
    family = "rankings" if "frl" in target else "weights"
    return pytest.param(target, *rest, marks=pytest.mark.xdist_group(f"attacks on {family}"))


@pytest.mark.parametrize(
    ("target", "name", "below"),
    [
        case("fedavg", "scaled", ("sign-flip", "noise")),
        case("fedavg", "ipm", ("sign-flip", "noise")),
        case("topk", "scaled", ("sign-flip", "noise")),
        case("signsgd", "sign-reverse", ("sign-flip", "noise")),
        case("trimmed-mean", "dyn-trimmed-mean", ("sign-flip", "noise")),
        case("trimmed-mean", "min-sum direction=sign", ("sign-flip", "noise")),
        case("multi-krum", "dyn-multi-krum", ("sign-flip", "noise")),
        case("multi-krum", "min-max direction=sign", ("sign-flip", "noise")),
        case("multi-krum", "min-sum direction=sign", ("sign-flip", "noise")),
        case("frl", "reverse", ("random",)),
        case("frl", "mirror", ("random", "reverse", "sign-flip")),
        case("frl", "mirror alone=true", ("random", "reverse", "sign-flip")),
        case("frl", "mirror-tuned", ("random", "reverse", "sign-flip")),
        case("frl", "mirror-tuned knows=benign", ("random", "reverse", "sign-flip")),
        case("frl", "mirror layers=small", ("random",)),
        case("frl", "band", ("random",)),
        case("frl", "vem", ("random",)),
        case("frl", "ipm", ("random",)),
        case("frl", "min-max direction=sign", ("random",)),
        case("frl", "min-sum direction=sign", ("random",)),
        case("sparse-frl", "reverse", ("random",)),
        case("sparse-frl", "mirror", ("random",)),
        case("frl", "label-flip", ("random",)),
        case("trimmed-mean", "label-flip", ("noise",)),
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
        case("fedavg", "scaled", 0.2),
        case("topk", "scaled", 0.25),
        case("multi-krum", "dyn-multi-krum", 0.2),
        case("frl", "mirror", 0.3),
        case("frl", "mirror-tuned knows=benign", 0.3),
    ],
)
@pytest.mark.slow
def test_what_must_be_destroyed_is_destroyed(
    crowd: Federation, target: str, name: str, at_most: float
) -> None:
    assert mean_accuracy(crowd, target, name) < at_most


@pytest.mark.parametrize(
    "name", ["mirror", "mirror-tuned knows=benign", "band", "vem", "min-max", "label-flip"]
)
@pytest.mark.slow
@pytest.mark.xdist_group("the screened mean")
def test_the_screened_mean_holds_where_the_papers_vote_does_not(crowd: Federation, name: str) -> None:
    """20% malicious clients cost at most 5 points."""
    assert mean_accuracy(crowd, "screened", name, 0.2) > mean_accuracy(crowd, "screened", "none") - 0.05


@pytest.mark.slow
@pytest.mark.xdist_group("the screened mean")
def test_the_screened_mean_costs_little_in_peace(crowd: Federation) -> None:
    """A young model of few clients: 4.5 points here, 0.4 after 30 rounds of the preset."""
    assert mean_accuracy(crowd, "screened", "none") > mean_accuracy(crowd, "frl", "none") - 0.06


def spied(crowd: Federation, knows: Knowledge) -> tuple[list[View], Round]:
    """What an attack with this knowledge gets to see in one round of FedAvg."""
    seen: list[View] = []

    def spy(view: View) -> np.ndarray:
        seen.append(view)
        return view.own[0]

    method = TARGETS["fedavg"]()
    adversary = Adversary(Attack("spy", "", "", Target.WEIGHTS, knows, spy), draw_malicious(crowd, SHARE, 11))
    with local_engine(method, crowd, workers=1) as engine:
        *_, (_, played) = run_rounds(
            RunSetup.of(method, crowd, Schedule(1, 15, 1), adversary), engine, method.init()
        )
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
            *_, (state, _) = run_rounds(
                RunSetup.of(method, crowd, everybody, adversary), engine, method.init()
            )
        ends.append(state.weights.tobytes())
    assert len(set(ends)) == 1


ON_BALLOTS = [
    name for name, attack in ATTACKS.items() if attack.target is not Target.WEIGHTS and not attack.poison
]


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=pytest.mark.slow) if each == "planned-flips" else each for each in ON_BALLOTS],
)
def test_a_ballot_attack_sends_legal_ballots_of_every_kind(name: str) -> None:
    method = frl()
    view, attack = mirrored_view(layout=method.network.layout), ATTACKS[name]
    if attack.target is Target.EITHER:
        space = space_of(method, method.receive(method.broadcast(FRLState(0, view.reference))))
        own, benign = ([space.to_vector(each) for each in some] for some in (view.own, view.benign))
        view = replace(view, own=own, benign=benign)
    sent = attack.updates(view)
    if attack.target is Target.EITHER:
        sent = [space.from_vector(update) for update in sent]
    assert len(sent) == view.malicious
    for ballot_format in FORMATS:
        for way in ("packed", "coded"):
            codec = BallotCodec(view.layout, BallotFormat.parse(f"{ballot_format} {way}"), view.reference)
            tally = Tally(codec)
            for client, ranking in enumerate(sent):
                check_ranking(ranking, view.layout)
                tally.add(client, codec.encode(ranking, client))


@pytest.mark.parametrize("name", ["mirror-tuned knows=benign", "min-max"])
def test_an_attack_is_played_with_the_knowledge_that_it_declares(crowd: Federation, name: str) -> None:
    method = frl("levels=16 dithered coded")
    adversary = Adversary(described(name), draw_malicious(crowd, SHARE, 11))
    *_, (_, played) = rounds_of(method, crowd, Schedule(1, 15, 1), adversary)
    assert played.refused == {}
    assert len(played.malicious) > 1


def test_reverse_is_algorithm_3() -> None:
    layout = Layout.of([("first", (4,)), ("second", (3,))])
    own = [np.array([0, 1, 2, 3, 2, 0, 1], np.int32), np.array([1, 0, 3, 2, 2, 1, 0], np.int32)]
    reputations = {0: 0 + 1, 1: 1 + 0, 2: 2 + 3, 3: 3 + 2}, {0: 1 + 2, 1: 2 + 1, 2: 0 + 0}
    voted = [sorted(points, key=lambda edge: (points[edge], edge)) for points in reputations]
    view = View(layout, 0.5, own[0], own, [], 2, 5, 2, lambda updates: updates[0], np.random.default_rng(0))
    assert reverse(view).tolist() == voted[0][::-1] + voted[1][::-1]


SMALL = Layout.of([("first", (40,)), ("second", (9,))])


def mirrored_view(malicious: int = 2, layout: Layout = SMALL) -> View:
    rng = np.random.default_rng(0)
    reference = random_ranking(layout, rng)
    own = [near(reference, layout, rng, 0.02) for _ in range(malicious)]
    benign = [near(reference, layout, rng, 0.02) for _ in range(8)]

    def vote(rankings: list[np.ndarray]) -> np.ndarray:
        return vote_on(rankings, layout)

    return View(
        layout, 0.5, reference, own, benign, malicious, 10, malicious, vote, rng, oracle=LinearOracle(layout)
    )


class LinearOracle:
    """A world in which each edge adds its own part to the loss."""

    def __init__(self, layout: Layout) -> None:
        self.parts = np.random.default_rng(5).standard_normal(layout.size).astype(np.float32)

    def aimed_at(self, _label: int) -> "LinearOracle":
        return self

    def loss(self, mask: np.ndarray) -> float:
        return float(self.parts[mask].sum())

    def gradient(self, _mask: np.ndarray) -> np.ndarray:
        return self.parts


@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.parametrize("parameters", [{}, {"knows": "benign"}, {"different": True}, {"reach": 2.0}])
def test_planned_flips_raise_the_loss_of_the_vote(parameters: dict, measured: bool) -> None:
    view = mirrored_view(3, Layout.of([("first", (400,)), ("second", (50,))]))
    honest = view.benign[:7]
    aggregate = view.aggregate
    view = replace(view, stand_ins=honest, benign=honest, measured=measured, edge_limit=3.0)
    view = replace(view, aggregate=lambda rankings, *_: aggregate(rankings))
    sent = ATTACKS["planned-flips"].having(**parameters).updates(view)
    assert view.oracle is not None

    def loss(rankings: list[np.ndarray]) -> float:
        return view.oracle.loss(top_mask(aggregate(rankings), view.layout, 0.5))

    assert loss([*honest, *sent]) > loss([*honest, *view.own]) + 3
    assert (len({each.tobytes() for each in sent}) == 3) == ("different" in parameters)


def test_planned_flips_need_data() -> None:
    with pytest.raises(ConfigError, match="needs the malicious clients' data"):
        ATTACKS["planned-flips"].updates(replace(mirrored_view(), oracle=None))


def test_mirror_is_its_formula() -> None:
    view = mirrored_view()
    before = reputation(view.reference, view.layout).astype(float)
    voted = reputation(vote_on(view.own, view.layout), view.layout)
    values = before - 16 * (voted - before)
    sent = ATTACKS["mirror"].craft(view)
    for layer in view.layout:
        assert (np.diff(values[layer.edges][sent[layer.edges]]) >= 0).all()


def test_mirror_shallow_is_honest_in_the_largest_layer() -> None:
    view = mirrored_view()
    large, small = view.layout
    sent, honest = described("mirror layers=small").updates(view)[0], vote_on(view.own, view.layout)
    assert sent[large.edges].tolist() == honest[large.edges].tolist()
    assert sent[small.edges].tolist() == ATTACKS["mirror"].craft(view)[small.edges].tolist()


@pytest.mark.parametrize("name", ["mirror-tuned", "mirror-tuned knows=benign"])
def test_a_tuned_mirror_sets_the_vote_back_at_least_as_far_as_any_factor(name: str) -> None:
    view = mirrored_view()
    honest = view.benign if name == "mirror-tuned knows=benign" else [view.own[i % 2] for i in range(8)]
    before = reputation(view.reference, view.layout)
    way = reputation(vote_on(honest, view.layout), view.layout) - before

    def progress(sent: np.ndarray) -> float:
        come = reputation(vote_on([*honest, sent, sent], view.layout), view.layout) - before
        return sum(
            come[la.edges] @ way[la.edges] / max(way[la.edges] @ way[la.edges], 1) for la in view.layout
        )

    tuned = progress(described(name).updates(view)[0])
    one_by_one = [progress(_mirrored(view, vote_on(honest, view.layout), factor)) for factor in FACTORS]
    assert tuned == pytest.approx(min(one_by_one))


def test_band_moves_what_is_near_the_border_as_far_as_can_be() -> None:
    layout = Layout.of([("only", (20,))])
    own = [np.arange(20, dtype=np.int32)]
    view = View(layout, 0.5, own[0], own, [], 1, 5, 1, lambda updates: updates[0], np.random.default_rng(0))
    sent = ATTACKS["band"].craft(view).tolist()
    assert sent[:2] == [10, 11]
    assert sent[-2:] == [8, 9]
    assert sent[2:-2] == [edge for edge in range(20) if edge not in (8, 9, 10, 11)]


def test_vem_flips_more_edges_than_the_reversed_ranking() -> None:
    rng = np.random.default_rng(1)
    layout = Layout.of([("only", (600,))])
    reference = random_ranking(layout, rng)
    honest = [near(reference, layout, rng, 0.1) for _ in range(20)]
    own, others = honest[:3], honest[3:]
    view = View(layout, 0.5, reference, own, [], 3, 20, 3, lambda u: vote_on(u, layout), rng)
    sides = top_mask(vote_on(others, layout), layout, 0.5)

    def flipped(sent: np.ndarray) -> int:
        after = top_mask(vote_on([*others, sent, sent, sent], layout), layout, 0.5)
        return int(np.count_nonzero(after != sides))

    assert flipped(ATTACKS["vem"].craft(view)) > flipped(ATTACKS["reverse"].craft(view))


def test_a_backdoor_poisons_only_what_malicious_clients_train_on_and_probes_the_rest(
    crowd: Federation,
) -> None:
    poisoned = ATTACKS["backdoor"].poison(crowd, frozenset({4, 9}))  # type: ignore[misc]
    count = len(crowd.dataset.labels)
    different = (poisoned.dataset.inputs[:count] != crowd.dataset.inputs).reshape(count, -1).any(axis=1)
    theirs = np.concatenate([crowd.clients[4].train[::2], crowd.clients[9].train[::2]])
    assert set(np.flatnonzero(different)) <= set(theirs.tolist())
    assert (poisoned.dataset.labels[theirs] == 0).all()
    assert (poisoned.dataset.inputs[theirs][:, :, -2:, -2:] == crowd.dataset.inputs.max()).all()
    assert poisoned.probe is not None
    assert (poisoned.dataset.labels[poisoned.probe] == 0).all()
    assert poisoned.probe.size == np.count_nonzero(crowd.dataset.labels[crowd.test] != 0)
    assert (poisoned.dataset.inputs[poisoned.probe][:, :, -2:, -2:] == crowd.dataset.inputs.max()).all()


@pytest.mark.slow
def test_a_backdoor_works_and_is_reported(crowd: Federation) -> None:
    reached = []
    for malicious in (frozenset(), frozenset(range(25))):
        poisoned = ATTACKS["backdoor"].poison(crowd, malicious)  # type: ignore[misc]
        method = frl()
        with local_engine(method, poisoned, workers=1) as engine:
            *_, (_, last) = run_rounds(
                RunSetup.of(method, poisoned, Schedule(15, 15, 15)), engine, method.init()
            )
        reached.append(last.evaluation.backdoor)
    assert reached[1] > reached[0] + 0.3


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
    as_drawn = [select(crowd.voters, 10, 3, number) for number in range(60)]
    redrawn = [select(crowd.voters, 10, 3, number, malicious) for number in range(60)]
    bad = [2 * sum(client in malicious for client in clients) >= 10 for clients in as_drawn]
    assert any(bad)
    assert all(2 * sum(client in malicious for client in clients) < 10 for clients in redrawn)
    for was_bad, before, after in zip(bad, as_drawn, redrawn, strict=True):
        assert was_bad or before == after


def test_too_many_malicious_clients_to_draw_a_round_are_reported(crowd: Federation) -> None:
    with pytest.raises(ConfigError, match="redraw = false"):
        select(crowd.voters, 10, 3, 0, frozenset(range(50)))


def test_how_many_malicious_clients_a_rule_assumes() -> None:
    rule = Aggregator("trimmed-mean")
    assert rule.assumed(4, 25) == 4
    assert rule.assumed(0.2, 25) == 5
    assert rule.assumed(0.21, 25) == 6
    assert rule.assumed(20, 25) == 12, "no more than it can bear"
    with pytest.raises(ConfigError, match="which only a simulation knows"):
        rule.assumed("actual", 25)
    assert Aggregator("mean").assumed("actual", 25) == 0, "the mean does not use the number"
    assert knowing(FedAvg(supernetwork(small_net(), seed=1)), 7).assumed_malicious == 7
    assert knowing(frl(), 7).assumed_malicious == 0.4, "a vote never knows the actual number"


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
            *_, (state, _) = run_rounds(
                RunSetup.of(method, crowd, Schedule(1, 5, 1), adversary), engine, method.init()
            )
        assert state.weights.tobytes() == method.init().weights.tobytes()
    finally:
        del ATTACKS["zero-test"]


def test_an_unknown_attack_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown attack 'revers'; did you mean 'reverse'"):
        attack_named("revers")


@pytest.mark.parametrize(
    ("target", "sent", "complaint"),
    [
        (Target.WEIGHTS, lambda view: view.own[0] * np.nan, "returned NaN"),
        (Target.WEIGHTS, lambda view: view.own[0][:-1], "returned float32 of shape"),
        (Target.WEIGHTS, lambda view: view.own[0].astype(int), "returned int64 of shape"),
        (Target.WEIGHTS, lambda view: None, "returned NoneType"),
        (Target.WEIGHTS, lambda view: [view.own[0]], r"returned 1 updates for \d+ malicious clients"),
        (Target.RANKINGS, lambda view: view.own[0] * 0, "returned no ranking"),
        (Target.RANKINGS, lambda view: view.own[0].astype(float), "returned no ranking"),
    ],
)
def test_a_broken_attack_stops_the_run_and_is_named(
    crowd: Federation, target: Target, sent: Callable[[View], object], complaint: str
) -> None:
    """It must never look like a strong defense."""
    broken = Attack("broken", "", "", target, Knowledge.COLLUDERS, sent)
    method = TARGETS["fedavg" if target is Target.WEIGHTS else "frl"]()
    adversary = Adversary(broken, draw_malicious(crowd, SHARE, 11))
    with pytest.raises(ConfigError, match=rf"the attack 'broken' .*{complaint}"):
        rounds_of(method, crowd, Schedule(1, 15, 1), adversary)


def test_colluders_may_send_different_updates(crowd: Federation) -> None:
    sent: list[list[np.ndarray]] = []

    def different(view: View) -> list[np.ndarray]:
        sent.append([own * (number + 2) for number, own in enumerate(view.own)])
        return sent[-1]

    method = TARGETS["fedavg"]()
    attack = Attack("different", "", "", Target.WEIGHTS, Knowledge.COLLUDERS, different)
    *_, (state, played) = rounds_of(
        method, crowd, Schedule(1, 15, 1), Adversary(attack, draw_malicious(crowd, SHARE, 11))
    )
    assert len(sent[0]) == len(played.malicious) > 1
    honest = rounds_of(method, crowd, Schedule(1, 15, 1))[-1][0]
    assert state.weights.tobytes() != honest.weights.tobytes()


def test_an_attack_is_registered_once() -> None:
    with pytest.raises(ConfigError, match="an attack named 'mirror' already exists"):

        @attack("mirror", target=Target.RANKINGS, knows=Knowledge.OWN, source="a test")
        def mirrored(view: View) -> np.ndarray:
            """Another mirror."""
            return view.own[0]
