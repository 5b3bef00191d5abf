"""The methods that send weights."""

import zlib

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedrank.attacks import attack_named
from fedrank.data import Federation
from fedrank.engine import local_engine
from fedrank.errors import BallotError, ConfigError, ModelError, RunError, TrainingError
from fedrank.experiment.adversary import Adversary
from fedrank.experiment.rounds import RunSetup, Schedule, run_rounds
from fedrank.methods import FedAvg, Method, SignSGD, TopK, WeightState
from fedrank.methods.message import FRAME
from fedrank.methods.traffic import paper_traffic
from fedrank.nn import LocalTraining, supernetwork
from fedrank.nn.weights import WeightNetwork, train_weights
from fedrank.randomness import Purpose, keyed_generator
from tests.support.runs import combined, rounds_of

CPU = torch.device("cpu")
LOCAL = LocalTraining(epochs=3, learning_rate=0.02, balanced=False)
METHODS = [FedAvg, SignSGD, TopK]


def small_net() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 40, bias=False), nn.ReLU(), nn.Linear(40, 10, bias=False)
    )


def small(kind: type, **options: object) -> Method:
    local = options.pop("local", LOCAL)
    return kind(supernetwork(small_net(), seed=11, weights="kaiming-normal"), local, **options)


def a_round(method: Method, federation: Federation, clients: list[int], state: WeightState) -> WeightState:
    with local_engine(method, federation, workers=1) as engine:
        collected = engine.collect(method.broadcast(state), clients)
    return method.aggregate(state, collected.messages)


def locally_trained(method: Method, federation: Federation, client: int, state: WeightState) -> np.ndarray:
    """A client's update by an ordinary torch loop."""
    module = method.model(state).train().requires_grad_(True)
    rate = method.local.learning_rate * method.rate_decay**state.round
    optimizer = torch.optim.SGD(module.parameters(), lr=rate, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=method.local.epochs)
    rng = keyed_generator(method.network.seed, Purpose.LOCAL_TRAINING, state.round, client)
    rng.integers(2**63)
    for _ in range(method.local.epochs):
        for inputs, labels in federation.train_samples(client).batches(method.local.batch_size, rng):
            optimizer.zero_grad()
            cross_entropy(module(torch.from_numpy(inputs)), torch.from_numpy(labels)).backward()
            optimizer.step()
        schedule.step()
    after = torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()]).numpy()
    return after - state.weights


def test_fedavg_is_the_mean_of_ordinary_training(digits: Federation) -> None:
    fedavg = small(FedAvg)
    state = WeightState(2, fedavg.init().weights)
    after = a_round(fedavg, digits, [3, 5, 8], state)
    updates = [locally_trained(fedavg, digits, client, state) for client in (3, 5, 8)]
    np.testing.assert_allclose(after.weights, state.weights + np.mean(updates, axis=0), rtol=1e-4, atol=1e-5)
    assert after.round == 3


def test_signsgd_moves_every_weight_by_the_majority(digits: Federation) -> None:
    signsgd = small(SignSGD, server_rate=0.01)
    state = signsgd.init()
    after = a_round(signsgd, digits, [3, 5, 8], state)
    updates = [locally_trained(signsgd, digits, client, state) for client in (3, 5, 8)]
    majority = np.sign(sum(np.where(update >= 0, 1, -1) for update in updates))
    certain = np.min(np.abs(updates), axis=0) > 1e-6  # the sign of a rounding error may differ
    step = (after.weights - state.weights)[certain]
    np.testing.assert_allclose(step, 0.01 * majority[certain], rtol=1e-3)
    assert certain.mean() > 0.5


def test_topk_sends_the_largest_changes_and_nothing_else() -> None:
    topk = small(TopK, share=0.25)
    received = topk.receive(topk.broadcast(topk.init()))
    update = np.random.default_rng(0).normal(size=topk.network.layout.size).astype(np.float32)
    decoded = topk.decode(topk.encode(received, update, 3), 3, 0)
    kept = topk.network.layout.size - int(0.75 * topk.network.layout.size)
    border = np.sort(np.abs(update))[-kept]
    assert decoded.tolist() == np.where(np.abs(update) >= border, update, 0).tolist()


@pytest.mark.parametrize("kind", METHODS)
def test_every_method_learns(digits: Federation, kind: type) -> None:
    method = small(kind, **({"server_rate": 0.02} if kind is SignSGD else {}))
    *_, (_, last) = rounds_of(method, digits, Schedule(15, 10, 15))
    assert last.evaluation is not None
    assert last.evaluation.test_accuracy > 0.75
    assert last.sent.upload_bytes == pytest.approx(paper_traffic(method).upload_bytes, abs=60)
    assert last.sent.download_bytes == pytest.approx(paper_traffic(method).download_bytes, abs=60)


@pytest.mark.parametrize(
    "kind", [METHODS[0], *(pytest.param(m, marks=pytest.mark.slow) for m in METHODS[1:])]
)
def test_the_number_of_workers_does_not_matter(digits: Federation, kind: type) -> None:
    method = small(kind)
    ends = []
    for workers in (1, 2):
        *_, (state, _) = rounds_of(method, digits, Schedule(2, 6, 2), workers=workers)
        ends.append(state.weights.tobytes())
    assert ends[0] == ends[1]


def resealed(message: bytes) -> bytes:
    return message[:-4] + zlib.crc32(message[:-4]).to_bytes(4, "little")


@pytest.mark.parametrize("kind", METHODS)
def test_messages_are_checked(kind: type) -> None:
    method = small(kind)
    state = method.init()
    received = method.receive(method.broadcast(state))
    update = np.ones(method.network.layout.size, np.float32)
    message = method.encode(received, update, 4)
    collector = method.collector(received, {4, 5})
    for sender, bad in [
        (5, message),  # somebody else's
        (6, method.encode(received, update, 6)),  # not asked
        (4, message[:-1]),
        (4, message + b"0"),
        (4, message[:50] + b"x" + message[51:]),
        (4, resealed(message[:6] + b"\xaa\x55" + message[8:])),  # the same in another guise
        (4, method.encode(WeightState(1, state.weights), update, 4)),  # another round
        (4, "text"),
    ]:
        with pytest.raises(BallotError):
            collector.add(sender, bad)
    collector.add(4, message)
    with pytest.raises(BallotError, match="already"):
        collector.add(4, message)


def test_an_update_that_is_not_finite_is_refused() -> None:
    fedavg = small(FedAvg)
    received = fedavg.receive(fedavg.broadcast(fedavg.init()))
    update = np.zeros(fedavg.network.layout.size, np.float32)
    update[7] = np.nan
    with pytest.raises(BallotError, match="not finite"):
        fedavg.collector(received, {1}).add(1, fedavg.encode(received, update, 1))


def test_topk_refuses_a_message_that_names_too_many_weights() -> None:
    topk = small(TopK, share=0.5)
    received = topk.receive(topk.broadcast(topk.init()))
    message = topk.encode(received, np.arange(topk.network.layout.size, dtype=np.float32), 1)
    envelope = topk._envelope(4, 0)
    payload = bytearray(message[FRAME.header_bytes : -4])
    payload[0] ^= 1
    with pytest.raises(BallotError, match="does not name exactly"):
        topk.decode(envelope.close(bytes(payload), 1), 1, 0)


def test_training_that_blows_up_is_reported(digits: Federation) -> None:
    fedavg = small(FedAvg, local=LocalTraining(epochs=2, learning_rate=1e6))
    with (
        local_engine(fedavg, digits, workers=1) as engine,
        pytest.raises(TrainingError, match=r"round 1 has too few usable updates: .* learning rate too high"),
    ):
        list(run_rounds(RunSetup.of(fedavg, digits, Schedule(2, 3, 2)), engine, fedavg.init()))


def test_weights_are_trained_on_the_same_samples_as_scores(digits: Federation) -> None:
    network = supernetwork(small_net(), seed=1)
    first, second = (
        train_weights(
            WeightNetwork(network, CPU),
            network.weights,
            digits.train_samples(0),
            np.random.default_rng(1),
            LOCAL,
        ).weights
        for _ in range(2)
    )
    assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("kind", [FedAvg, TopK])
def test_bucketing_draws_other_pairs_every_round(kind: type) -> None:
    """Eight updates, each 1 in a place of its own: krum takes one pair, whose two places move."""
    options = {"share": 1.0} if kind is TopK else {}
    method = small(kind, aggregator="bucketing+krum", assumed_malicious=0, **options)
    updates = [np.zeros(method.network.layout.size, np.float32) for _ in range(8)]
    for place, update in enumerate(updates):
        update[place] = 1
    steps = []
    for number in range(6):
        state = WeightState(number, method.init().weights)
        received = method.receive(method.broadcast(state))
        collector = method.collector(received, range(8))
        for client, update in enumerate(updates):
            collector.add(client, method.encode(received, update, client))
        after = method.aggregate(state, collector).weights
        steps.append(np.flatnonzero(np.abs(after - state.weights) > 0.1).tolist())
        simulated = combined(method, state.weights, updates, number)
        np.testing.assert_allclose(after, state.weights + simulated, atol=1e-6)
    assert all(len(pair) == 2 for pair in steps)
    assert len({tuple(pair) for pair in steps}) > 1


def test_too_few_clients_for_a_rule_are_refused_at_once(digits: Federation) -> None:
    krum = small(FedAvg, aggregator="krum")
    with local_engine(krum, digits, workers=1) as engine, pytest.raises(ConfigError, match="too few"):
        next(run_rounds(RunSetup.of(krum, digits, Schedule(2, 2, 2)), engine, krum.init()))


@pytest.mark.parametrize("kind", METHODS)
def test_a_state_survives_packing(kind: type) -> None:
    method = small(kind)
    again = method.unpack(method.pack(WeightState(5, method.init().weights)))
    assert again.round == 5
    assert again.weights.tobytes() == method.init().weights.tobytes()
    for broken in ({}, {"round": np.array(1), "weights": np.zeros(3, np.float32)}):
        with pytest.raises(RunError, match="does not hold weights"):
            method.unpack(broken)


@pytest.mark.parametrize(
    ("kind", "options"),
    [(FedAvg, {"aggregator": "medians"}), (TopK, {"share": 0.0}), (SignSGD, {"server_rate": 0.0})],
)
def test_impossible_settings_are_refused(kind: type, options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        small(kind, **options)


def with_biases_and_batchnorm() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 10))


@pytest.mark.parametrize("kind", [FedAvg, TopK])
def test_a_module_as_people_write_it_learns_without_settings(digits: Federation, kind: type) -> None:
    torch.manual_seed(1)
    *_, (_, last) = rounds_of(kind(with_biases_and_batchnorm(), seed=7), digits, Schedule(8, 10, 8))
    assert last.evaluation is not None
    assert last.evaluation.test_accuracy > 0.85


def test_running_statistics_are_averaged(digits: Federation) -> None:
    fedavg = FedAvg(with_biases_and_batchnorm(), seed=7)
    state = fedavg.init()
    each = [a_round(fedavg, digits, [client], state).weights for client in (3, 5)]
    together = a_round(fedavg, digits, [3, 5], state)
    mean, variance = (
        dict(fedavg.model(together).named_buffers())[f"2.running_{name}"].numpy() for name in ("mean", "var")
    )
    one, other = (
        dict(fedavg.model(WeightState(1, weights)).named_buffers())["2.running_mean"].numpy()
        for weights in each
    )
    np.testing.assert_allclose(mean, (one + other) / 2, atol=1e-6)
    assert np.abs(mean).max() > 0
    assert (variance > 0).all()


def test_signs_cannot_carry_running_statistics() -> None:
    with pytest.raises(ModelError, match="2: signs cannot carry running statistics; use GroupNorm"):
        SignSGD(with_biases_and_batchnorm(), seed=7)


def test_a_module_needs_a_seed_and_a_supernetwork_has_one() -> None:
    with pytest.raises(ConfigError, match=r"FedAvg\(module, seed=7\)"):
        FedAvg(small_net())
    with pytest.raises(ConfigError, match="has the seed 11 already"):
        small(FedAvg, seed=7)


def test_a_module_meets_robust_rules_and_attacks(digits: Federation) -> None:
    method = FedAvg(with_biases_and_batchnorm(), seed=7, aggregator="multi-krum")
    adversary = Adversary(attack_named("min-max"), frozenset(range(6)))
    *_, (state, _) = rounds_of(method, digits, Schedule(2, 10, 2), adversary)
    assert np.isfinite(state.weights).all()


def test_weighted_clients_count_by_their_samples(digits: Federation) -> None:
    weighted = small(FedAvg, weighted=True)
    clients = list(RunSetup.of(weighted, digits, Schedule(1, 3)).select(0))
    samples = [digits.clients[client].train.size for client in clients]
    assert len(set(samples)) > 1
    ((after, _),) = rounds_of(weighted, digits, Schedule(1, 3))
    plain, state = small(FedAvg), weighted.init()
    alone = [a_round(plain, digits, [client], state).weights for client in clients]
    expected = sum(
        count * weights.astype(np.float64) for count, weights in zip(samples, alone, strict=True)
    ) / sum(samples)
    np.testing.assert_allclose(after.weights, expected, rtol=1e-5, atol=1e-6)


def test_weighting_changes_no_message() -> None:
    weighted, plain = small(FedAvg, weighted=True), small(FedAvg)
    update = np.ones(plain.network.layout.size, np.float32)
    received = plain.receive(plain.broadcast(plain.init()))
    assert weighted.encode(received, update, 3) == plain.encode(received, update, 3)


@pytest.mark.parametrize(
    ("known", "complaint"), [(True, "needs a federation"), ({3: 10}, "how many samples client 5 has")]
)
def test_weights_that_nobody_knows_are_refused(known: object, complaint: str) -> None:
    method = small(FedAvg, weighted=known)
    state = method.init()
    received = method.receive(method.broadcast(state))
    collector = method.collector(received, {3, 5})
    for client in (3, 5):
        collector.add(client, method.encode(received, np.ones_like(state.weights), client))
    with pytest.raises(ConfigError, match=complaint):
        method.aggregate(state, collector)


@pytest.mark.parametrize("count", [0, -1])
def test_weights_of_clients_must_be_positive(count: int) -> None:
    with pytest.raises(ConfigError, match=f"weighted must be more than 0 for each client, got 3: {count}"):
        small(FedAvg, weighted={2: 5, 3: count})


def test_robust_rules_cannot_be_weighted() -> None:
    with pytest.raises(ConfigError, match="only the aggregator 'mean' can be weighted, got 'median'"):
        small(FedAvg, aggregator="median", weighted=True)
