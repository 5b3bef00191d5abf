import numpy as np
import pytest
import torch
from torch import nn

from fedrank.data import Federation
from fedrank.engine import local_engine
from fedrank.errors import BallotError, ConfigError, RunError
from fedrank.experiment.rounds import Schedule
from fedrank.methods import FRL, FRLState
from fedrank.methods.traffic import paper_traffic
from fedrank.nn import LocalTraining, MaskedNetwork, Workspace, edge_popup, supernetwork
from fedrank.randomness import Purpose, keyed_generator
from tests.support.methods import small_frl, small_net
from tests.support.runs import rounds_of

CPU = torch.device("cpu")


def test_a_round_is_algorithm_2_line_by_line(digits: Federation) -> None:
    frl = small_frl(local=LocalTraining(epochs=1), vote="borda")
    network = frl.network
    order = np.random.default_rng(5)  # a ranking that is not that of the initial scores, for line 10
    shuffled = np.concatenate([order.permutation(layer.size) for layer in network.layout]).astype(np.int32)
    before = FRLState(2, shuffled)
    state = frl.aggregate(before, _collect(frl, before, digits, [3, 5, 8]))

    theta_s = network.initial_scores
    local = LocalTraining(epochs=1, learning_rate=0.4 * 0.999**2)
    totals = np.zeros(network.layout.size, np.int64)
    for client in (3, 5, 8):
        scores = np.empty_like(theta_s)
        for layer in network.layout:
            scores[layer.edges][shuffled[layer.edges]] = np.sort(theta_s[layer.edges])
        rng = keyed_generator(11, Purpose.LOCAL_TRAINING, 2, client)
        trained = edge_popup(
            MaskedNetwork(network, CPU), scores, digits.train_samples(client), rng, local
        ).scores
        for layer in network.layout:
            r_u = np.argsort(trained[layer.edges], kind="stable")
            totals[layer.edges] += np.argsort(r_u, kind="stable")
    for layer in network.layout:
        expected = np.argsort(totals[layer.edges], kind="stable")
        assert state.ranking[layer.edges].tolist() == expected.tolist()
    assert state.round == 3


def test_all_edges_can_be_kept(digits: Federation) -> None:
    """Clients train scores all the same, and every vote ends in the same network."""
    frl = FRL(supernetwork(small_net(), seed=11, keep=1.0), LocalTraining(epochs=1))
    played = list(rounds_of(frl, digits, Schedule(2, 5)))
    measured = {record.evaluation.test_loss for _, record in played if record.evaluation}
    assert len(measured) == 1
    assert not np.array_equal(played[0][0].ranking, played[1][0].ranking)
    assert all(layer.changed == 0 for _, record in played if record.vote for layer in record.vote.layers)


def _collect(frl: FRL, state, federation: Federation, clients: list[int]):
    with local_engine(frl, federation, workers=1) as engine:
        return engine.collect(frl.broadcast(state), clients).messages


def test_the_learning_rate_falls_from_round_to_round(digits: Federation) -> None:
    slow, fast = small_frl(rate_decay=0.5), small_frl(rate_decay=1.0)
    later = FRLState(3, fast.init().ranking)
    decayed = small_frl(local=LocalTraining(learning_rate=0.4 * 0.5**3), rate_decay=1.0)
    samples = digits.train_samples(0)

    def ballot(frl: FRL) -> list[int]:
        received, rng = frl.receive(frl.broadcast(later)), np.random.default_rng(1)
        return frl.client_update(received, samples, rng, Workspace(frl.network)).update.tolist()

    assert ballot(slow) == ballot(decayed)
    assert ballot(slow) != ballot(fast)


@pytest.mark.parametrize("scores", ["signed", "magnitude", "authors"])
@pytest.mark.parametrize("ballots", ["exact", "top=50%"])
def test_every_variant_learns(digits: Federation, scores: str, ballots: str) -> None:
    frl = small_frl(scores=scores, ballots=ballots, local=LocalTraining(epochs=3))
    *_, (_, last) = rounds_of(frl, digits, Schedule(12, 10, 12))
    assert last.evaluation is not None
    assert last.evaluation.test_accuracy > (0.75 if ballots == "exact" else 0.6)


def test_sparse_ballots_are_shorter_and_cost_less() -> None:
    frl, sparse = small_frl(), small_frl(ballots="top=10%")
    assert paper_traffic(sparse).upload_bytes == pytest.approx(paper_traffic(frl).upload_bytes / 10, rel=0.01)
    assert paper_traffic(sparse).download_bytes == paper_traffic(frl).download_bytes


@pytest.mark.parametrize("kind", ["levels=16 dithered coded", "exact coded", "levels=2"])
def test_other_kinds_of_messages_learn_too(digits: Federation, kind: str) -> None:
    frl = small_frl(ballots=kind, broadcasts="levels=16 coded", local=LocalTraining(epochs=3))
    *_, (_, last) = rounds_of(frl, digits, Schedule(12, 10, 12))
    assert last.evaluation is not None
    assert last.evaluation.test_accuracy > 0.7
    assert last.sent.upload_bytes < paper_traffic(small_frl()).upload_bytes


def test_lossless_kinds_do_not_change_the_result(digits: Federation) -> None:
    results = []
    for kind in ("exact packed", "exact coded"):
        frl = small_frl(ballots=kind, broadcasts=kind)
        *_, (state, _) = rounds_of(frl, digits, Schedule(3, 5, 3))
        results.append(state.ranking.tobytes())
    assert results[0] == results[1]


def test_a_ballot_of_another_run_is_refused() -> None:
    ours, theirs = small_frl(run=b"ours............"), small_frl(run=b"theirs..........")
    state = ours.init()
    ballot = theirs.encode(theirs.receive(theirs.broadcast(state)), state.ranking, 1)
    with pytest.raises(BallotError, match="the run is"):
        ours.collector(ours.receive(ours.broadcast(state)), {1}).add(1, ballot)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"ballots": "top=0%"}, "top"),
        ({"ballots": "some"}, "unknown ballot format 'some'"),
        ({"broadcasts": "top=50%"}, "clients need the whole ranking"),
    ],
)
def test_an_impossible_kind_is_refused(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        small_frl(**options)


def test_a_state_survives_packing() -> None:
    frl = small_frl()
    state = frl.init()
    again = frl.unpack(frl.pack(state))
    assert again.round == state.round
    assert again.ranking.tobytes() == state.ranking.tobytes()


def test_a_checkpoint_of_another_network_is_refused() -> None:
    other = FRL(supernetwork(nn.Linear(3, 3, bias=False), seed=1))
    with pytest.raises(RunError, match="does not hold a ranking of this network"):
        small_frl().unpack(other.pack(other.init()))
    with pytest.raises(RunError, match="does not hold a ranking"):
        small_frl().unpack({"round": np.array(1)})
