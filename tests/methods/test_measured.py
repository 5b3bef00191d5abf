"""Measured votes: what validators keep out, what they cost, and what bad ones can do."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from torch import nn

from fedrank.attacks import attack_named
from fedrank.ballots.candidates import Stage, decode_flips
from fedrank.data import Federation
from fedrank.engine import local_engine
from fedrank.errors import ConfigError
from fedrank.experiment.adversary import Adversary, draw_malicious
from fedrank.experiment.rounds import RunSetup, Schedule, draw_validators, panel_of, run_rounds
from fedrank.methods import FRL, FedAvg, TopK
from fedrank.methods.measured import Panel, TrialPlan, measured_vote
from fedrank.nn import LocalTraining, supernetwork
from fedrank.rank import rank, top_mask
from tests.support.methods import small_frl, small_net
from tests.support.runs import rounds_of

MEASURED = {"name": "measured-mean", "validators": 20}
LOCAL = LocalTraining(epochs=3)


def measured_frl(**options: object) -> FRL:
    return small_frl(vote=MEASURED, local=LOCAL, **options)


def one_round(method: FRL, federation: Federation, state: object = None) -> tuple:
    """The state, the collected ballots of a round after it, the setup and the engine."""
    setup = RunSetup.of(method, federation, Schedule(1, 10))
    engine = local_engine(method, setup.federation, workers=1)
    state = method.init() if state is None else state
    return state, engine.collect(method.broadcast(state), setup.select(state.round)), setup, engine


@pytest.mark.parametrize("scores", ["signed", "magnitude", "authors"])
def test_a_candidate_is_the_mask_of_the_ranking_that_it_would_become(digits: Federation, scores: str) -> None:
    method = measured_frl(scores=scores)
    state, collected, *_ = one_round(method, digits)
    plan = TrialPlan.of(method, 0, 10, 1)
    proposals = method.proposals(state, collected.messages, plan.members)
    present = method.network.mask(state.ranking)
    for units in plan.design[:5]:
        flipped = decode_flips(proposals.candidate(units), present.size)
        mask = present.copy()
        mask[flipped] ^= True
        assert (mask == method.network.mask(proposals.result(units))).all()


def test_a_report_is_the_difference_of_losses_on_the_validators_data(digits: Federation) -> None:
    """Against ordinary modules, which know nothing of flips."""
    import torch
    from torch.nn.functional import cross_entropy

    method = small_frl(vote=MEASURED | {"samples": 100}, local=LOCAL)  # all of a client's
    state, collected, _, engine = one_round(method, digits)
    proposals = method.proposals(state, collected.messages, TrialPlan.of(method, 0, 10, 1).members)
    units = np.arange(10) < 4
    inquiry = method.inquiry(0)
    question = inquiry.question(Stage.RUNOFF, 5, proposals.present(), [proposals.candidate(units)])
    told = inquiry.read_report(Stage.RUNOFF, 5, engine.measure({5: question})[5], 1)
    samples = digits.train_samples(5)
    inputs, labels = torch.from_numpy(samples.preprocess(samples.inputs)), torch.from_numpy(samples.labels)
    losses = [
        float(cross_entropy(method.network.subnetwork(ranking)(inputs), labels))
        for ranking in (state.ranking, proposals.result(units))
    ]
    assert told[0] == pytest.approx(losses[1] - losses[0], abs=1e-5)


def test_the_result_has_no_higher_median_loss_than_the_present_model(digits: Federation) -> None:
    method = measured_frl()
    state, collected, setup, engine = one_round(method, digits)
    panel = panel_of(setup, engine, 0, collected)
    after, record = measured_vote(method, state, collected.messages, panel)
    assert record.adopted
    assert record.change is not None
    assert record.change <= 0
    assert after.round == 1
    assert len(record.kept) == 8
    assert set(record.kept) <= set(collected.messages.voters)
    assert record.refused == {}
    assert record.answers == 20


def test_a_result_that_most_find_worse_is_not_adopted(digits: Federation) -> None:
    method = measured_frl()
    state, collected, setup, engine = one_round(method, digits)

    def ask(stage: Stage, questions: Mapping[int, bytes]) -> dict[int, bytes]:
        if stage is Stage.TRIALS:
            return engine.measure(questions)
        return {v: method.inquiry(0).report(stage, v, np.array([0.1], np.float32)) for v in questions}

    after, record = measured_vote(
        method, state, collected.messages, Panel(setup.validators(0, collected.messages), ask)
    )
    assert not record.adopted
    assert after.round == 1
    assert (after.ranking == state.ranking).all()


@pytest.mark.parametrize(("center", "adopted"), [(0.18, True), (0.25, False)])
def test_a_result_is_adopted_up_to_two_standard_errors_of_the_median(
    digits: Federation, center: float, adopted: bool
) -> None:
    """Changes spread evenly over one unit: their deviation is 0.37, the error of 20 of them 0.10."""
    method = measured_frl()
    state, collected, setup, engine = one_round(method, digits)
    validators = setup.validators(0, collected.messages)
    changes = dict(zip(validators, center + np.linspace(-0.5, 0.5, len(validators)), strict=True))

    def ask(stage: Stage, questions: Mapping[int, bytes]) -> dict[int, bytes]:
        if stage is Stage.TRIALS:
            return engine.measure(questions)
        return {v: method.inquiry(0).report(stage, v, np.array([changes[v]])) for v in questions}

    after, record = measured_vote(method, state, collected.messages, Panel(validators, ask))
    assert record.change == pytest.approx(center, abs=1e-6)
    assert record.error == pytest.approx(0.10, abs=0.01)
    assert record.adopted is adopted
    assert (after.ranking == state.ranking).all() is np.bool_(not adopted)


def test_a_bad_validator_costs_its_own_answer(digits: Federation) -> None:
    """One is silent, one sends garbage, one answers for another."""
    method = measured_frl()
    state, collected, setup, engine = one_round(method, digits)
    validators = setup.validators(0, collected.messages)
    silent, garbage, forger = validators[:3]

    def ask(stage: Stage, questions: Mapping[int, bytes]) -> dict[int, bytes]:
        answers = engine.measure(questions)
        del answers[silent]
        answers[garbage] = b"garbage"
        answers[forger] = answers[validators[3]]
        return answers

    after, record = measured_vote(method, state, collected.messages, Panel(validators, ask))
    assert record.adopted
    assert record.answers == 17
    assert record.refused.keys() == {silent, garbage, forger}
    assert record.refused[silent] == "did not answer"
    assert "expected a report of" in record.refused[garbage]
    assert "sender" in record.refused[forger]
    assert after.round == 1


def test_without_any_report_the_model_stays(digits: Federation) -> None:
    method = measured_frl()
    state, collected, setup, _ = one_round(method, digits)
    panel = Panel(setup.validators(0, collected.messages), lambda *_: {})
    after, record = measured_vote(method, state, collected.messages, panel)
    assert not record.adopted
    assert (after.ranking == state.ranking).all()


def test_validators_are_drawn_for_each_round_and_never_twice() -> None:
    clients = np.arange(100, 200)
    drawn = [draw_validators(clients, 40, 7, number, 1) for number in range(3)]
    drawn.append(draw_validators(clients, 40, 7, 0, 2))
    assert len(set(drawn)) == 4
    assert all(len(set(some)) == 40 and set(some) <= set(clients.tolist()) for some in drawn)
    assert draw_validators(clients[:5], 40, 7, 0, 1) == (100, 101, 102, 103, 104)


@pytest.mark.parametrize("kind", [FRL, FedAvg])
def test_trials_and_validators_follow_from_all_messages_in_any_order(digits: Federation, kind: type) -> None:
    """So nobody can fit a ballot to the trials before the others are in."""
    method = (
        measured_frl() if kind is FRL else FedAvg(supernetwork(small_net(), seed=11), aggregator=MEASURED)
    )
    received = method.receive(method.broadcast(method.init()))
    size, rng = method.network.layout.size, np.random.default_rng(5)

    def encoded(client: int) -> bytes:
        drawn = rng.normal(size=size).astype(np.float32)
        update = rank(drawn, method.network.layout) if kind is FRL else drawn
        return method.encode(received, update, client)

    messages = {client: encoded(client) for client in range(6)}

    def entropy(order: list[int], others: dict[int, bytes]) -> int:
        first, second = (method.collector(received, range(6)) for _ in range(2))
        for client in order:
            (first if client % 2 else second).add(client, others[client])
        first.merge(second)
        return first.entropy

    expected = entropy([0, 1, 2, 3, 4, 5], messages)
    assert entropy([5, 2, 4, 0, 1, 3], messages) == expected
    found = {expected}
    for client in range(6):
        found.add(entropy(list(range(6)), messages | {client: encoded(client)}))
    found.add(entropy([0, 1, 2, 3, 4], messages))
    swapped = messages | {0: encoded(0), 1: messages[1]}
    found.add(entropy(list(range(6)), swapped))
    assert len(found) == 9
    designs = {TrialPlan.of(method, 0, 6, each).design.tobytes() for each in found}
    assert len(designs) == 9


@pytest.mark.parametrize(
    "ballots",
    [
        "exact packed",
        pytest.param("levels=16 dithered coded", marks=pytest.mark.slow),
        pytest.param("top=50%", marks=pytest.mark.slow),
    ],
)
def test_a_run_learns_and_does_not_depend_on_the_number_of_workers(digits: Federation, ballots: str) -> None:
    method = measured_frl(ballots=ballots)
    ends = []
    for workers in (1, 2):
        *_, (last, played) = rounds_of(method, digits, Schedule(4, 10, 4), workers=workers)
        ends.append(last.ranking.tobytes())
        assert played.evaluation is not None
        assert played.evaluation.test_accuracy > 0.5
        assert played.measured is not None
    assert ends[0] == ends[1]


@pytest.mark.parametrize("lies", ["push", pytest.param("stall", marks=pytest.mark.slow)])
def test_a_measured_vote_withstands_an_attacker_who_simulates_it(digits: Federation, lies: str) -> None:
    """And who breaks the paper's vote: 30% malicious clients, among the validators too."""
    found = []
    attack = attack_named("planned-flips").having(knows="benign")
    for vote in ("borda", MEASURED):
        adversary = Adversary(attack, draw_malicious(digits, 0.3, 11), lies=lies)  # type: ignore[arg-type]
        method = small_frl(vote=vote, local=LOCAL)
        *_, (_, played) = rounds_of(method, digits, Schedule(6, 12, 6), adversary)
        assert played.evaluation is not None
        found.append(played.evaluation.test_accuracy)
    assert found[0] < 0.6
    assert found[1] > 0.75


def test_questions_and_reports_are_counted_as_traffic(digits: Federation) -> None:
    plain, measured = (
        rounds_of(small_frl(vote=vote, local=LOCAL), digits, Schedule(1, 10))[0][1]
        for vote in ("screened-mean", MEASURED)
    )
    assert measured.measured is not None
    more, record = measured.sent, measured.measured
    assert more.download_bytes == pytest.approx(plain.sent.download_bytes + record.question_bytes / 10)
    assert more.upload_bytes == pytest.approx(plain.sent.upload_bytes + record.report_bytes / 10)
    mask_bytes = (small_frl().network.layout.size + 7) // 8
    assert measured.measured.question_bytes > 40 * mask_bytes


@pytest.mark.parametrize("kind", [FedAvg, pytest.param(TopK, marks=pytest.mark.slow)])
def test_methods_that_train_weights_can_be_measured(digits: Federation, kind: type[FedAvg]) -> None:
    network = supernetwork(small_net(), seed=11)
    method = kind(network, LocalTraining(epochs=2, learning_rate=0.05), aggregator=MEASURED)
    adversary = Adversary(attack_named("scaled"), draw_malicious(digits, 0.2, 11))
    ends = set()
    for workers in (1, 2):
        *_, (state, played) = rounds_of(method, digits, Schedule(6, 12, 6), adversary, workers=workers)
        assert played.evaluation is not None
        assert played.evaluation.test_accuracy > 0.6
        ends.add(state.weights.tobytes())
    assert len(ends) == 1


def test_a_measured_vote_cannot_be_taken_without_validators(digits: Federation) -> None:
    method = measured_frl()
    state, collected, *_ = one_round(method, digits)
    with pytest.raises(ConfigError, match="'measured-mean' needs validators"):
        method.aggregate(state, collected.messages)


def test_layers_of_one_edge_and_whole_networks_can_be_measured(digits: Federation) -> None:
    tiny = nn.Sequential(nn.Flatten(), nn.Linear(64, 10, bias=False))
    for keep in (0.5, 1.0):
        method = FRL(supernetwork(tiny, seed=3, keep=keep), LOCAL, vote=MEASURED)
        rounds = rounds_of(method, digits, Schedule(2, 3))
        assert rounds[-1][0].round == 2
    assert top_mask(rounds[-1][0].ranking, method.network.layout, 1.0).all()


def test_a_resumed_run_ends_in_the_same_bytes(digits: Federation) -> None:
    method = measured_frl()
    setup = RunSetup.of(method, digits, Schedule(3, 10, 3))
    with local_engine(method, digits, workers=1) as engine:
        whole = [state for state, _ in run_rounds(setup, engine, method.init())]
        again = [state for state, _ in run_rounds(replace(setup), engine, whole[0])]
    assert whole[-1].ranking.tobytes() == again[-1].ranking.tobytes()
