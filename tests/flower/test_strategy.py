"""RankVote against a table of nodes that answer, fail and cheat as a test wants."""

import logging
import re
import threading

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

import fedrank
from fedrank.ballots import BallotFormat
from fedrank.errors import ConfigError, TrainingError
from fedrank.experiment.rounds import Schedule
from fedrank.flower import RankVote, Voter, voting
from fedrank.flower.wire import as_record
from tests.support.runs import rounds_of
from tests.support.table_grid import TableGrid, node_of

CLIENTS = 8


@pytest.fixture(scope="module")
def crowd():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 160)
    inputs = rng.normal(size=(160, 6)).astype(np.float32)
    inputs[np.arange(160), labels] += 3
    return fedrank.split(inputs, labels, by=fedrank.IID(), clients=CLIENTS, seed=1)


def make_method(vote="borda", ballots="exact packed"):
    model = nn.Sequential(nn.Linear(6, 16, bias=False), nn.ReLU(), nn.Linear(16, 3, bias=False))
    local = fedrank.LocalTraining(epochs=1, learning_rate=0.4, batch_size=8)
    return fedrank.FRL(fedrank.supernetwork(model, seed=5), local, ballots=ballots, vote=vote)


def node_id(number):
    return 2**63 + 1000 - number  # Flower's node ids have 64 bits


@pytest.fixture
def table(crowd):
    """Return a function that makes a grid of honest nodes."""

    def make(method, clients=range(CLIENTS)):
        app = ClientApp()

        @voting(app)
        def voter(context):
            number = context.node_config["partition-id"]
            return Voter(method, crowd.train_samples(number), crowd.test_samples(number))

        return TableGrid({node_id(number): node_of(app, number, node_id(number)) for number in clients})

    return make


def strategy_of(method, **settings):
    usual = {"clients_per_round": 5, "min_available_nodes": CLIENTS, "deadline": 60.0, "startup_timeout": 0.0}
    return RankVote(method, **usual | settings)


def play_over(grid, strategy, rounds=1):
    return list(strategy.rounds(grid, strategy.method.init(), rounds))


def broken(grid, number, answer):
    """Let a node answer questions for ballots differently; `answer` is given the honest one."""
    honest = grid.nodes[node_id(number)]

    def node(message):
        return answer(message, honest) if message.metadata.message_type == "train" else honest(message)

    grid.nodes[node_id(number)] = node


@pytest.mark.parametrize("vote", ["borda", "measured-mean", "screened-mean", "nnm+trimmed-mean"])
@pytest.mark.parametrize("ballots", ["exact packed", "top=50% packed", "levels=16 dithered coded"])
def test_ends_in_the_same_ranking_as_a_local_run(crowd, table, vote, ballots):
    method = make_method(vote, ballots)
    over_flower = play_over(table(method), strategy_of(method), rounds=3)
    here = list(rounds_of(method, crowd, Schedule(3, 5)))
    for (state, played), (local_state, local) in zip(over_flower, here, strict=True):
        assert state.ranking.tobytes() == local_state.ranking.tobytes()
        assert (played.clients, played.sent) == (local.clients, local.sent)
        assert played.train_loss == local.train_loss
        assert played.measured == local.measured


def as_validator(grid, number, answer):
    """Let a node answer questions for reports differently; `answer` is given the honest one."""
    honest = grid.nodes[node_id(number)]

    def node(message):
        asked = message.metadata.message_type == "evaluate.measure"
        return answer(message, honest) if asked else honest(message)

    grid.nodes[node_id(number)] = node


def a_report(question, content):
    return Message(RecordDict({"report": as_record(content)}), reply_to=question)


BAD_VALIDATORS = {
    "dies": lambda question, honest: [Message(Error(1, "gone"), reply_to=question)],
    "never answers": lambda question, honest: [],
    "sends garbage": lambda question, honest: [a_report(question, b"garbage")],
    "sends a ballot": lambda question, honest: [
        Message(RecordDict({"ballot": as_record(b"x"), "metrics": MetricRecord({})}), reply_to=question)
    ],
    "answers twice": lambda question, honest: honest(question) * 2,
}


@pytest.mark.parametrize("how", BAD_VALIDATORS)
def test_a_bad_validator_costs_its_own_answer(table, how):
    method = make_method("measured-mean")
    grid = table(method)
    as_validator(grid, 2, BAD_VALIDATORS[how])
    strategy = strategy_of(method, deadline=2.0 if how == "never answers" else 60.0)
    ((_, played),) = play_over(grid, strategy)
    assert played.measured.validators == tuple(range(CLIENTS))
    if how == "answers twice":
        assert played.measured.refused == {}
        assert played.measured.answers == CLIENTS
    else:
        assert list(played.measured.refused) == [2]
        assert played.measured.answers == CLIENTS - 1
    assert played.refused == {}


@pytest.mark.parametrize("how", ["sends a ballot", "sends garbage"])
def test_a_validator_that_keeps_sending_illegal_reports_is_excluded(table, how):
    method = make_method("measured-mean")
    grid = table(method)
    as_validator(grid, 2, BAD_VALIDATORS[how])
    rounds = play_over(grid, strategy_of(method, strikes=2), rounds=3)
    assert 2 in rounds[0][1].measured.validators
    assert 2 not in rounds[2][1].measured.validators


def test_flowers_own_loop_cannot_measure(table):
    method = make_method("measured-mean")
    grid, strategy = table(method), strategy_of(method)
    strategy.directory.wait(grid, CLIENTS, 1)
    questions = strategy.configure_train(1, strategy.initial_arrays(), ConfigRecord(), grid)
    replies = grid.send_and_receive(questions)
    with pytest.raises(ConfigError, match="needs validators"):
        strategy.aggregate_train(1, replies)


def test_start_is_that_of_a_flower_strategy(table):
    method = make_method()
    strategy = strategy_of(method, evaluate=True)
    measured = []
    result = strategy.start(
        table(method),
        strategy.initial_arrays(),
        num_rounds=3,
        evaluate_fn=lambda number, arrays: measured.append((number, strategy.state(arrays).round)),
    )
    assert measured == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert strategy.state(result.arrays).round == 3
    expected = play_over(table(method), strategy_of(method), 3)[-1][0]
    assert strategy.state(result.arrays).ranking.tobytes() == expected.ranking.tobytes()
    assert result.train_metrics_clientapp[3]["votes"] == 5
    assert result.evaluate_metrics_clientapp[3]["clients"] == CLIENTS
    assert result.evaluate_metrics_clientapp[3]["accuracy"] > 0.5


def test_flowers_own_loop_comes_to_the_same(table):
    """Who calls configure_train and aggregate_train as Flower's strategies do gets the same vote."""
    method = make_method()
    grid, strategy = table(method), strategy_of(method)
    strategy.directory.wait(grid, CLIENTS, 1)
    questions = strategy.configure_train(1, strategy.initial_arrays(), ConfigRecord(), grid)
    replies = grid.send_and_receive(questions)
    arrays, metrics = strategy.aggregate_train(1, replies)
    expected = play_over(table(method), strategy_of(method))[0][0]
    assert strategy.state(arrays).ranking.tobytes() == expected.ranking.tobytes()
    assert metrics["votes"] == 5


def test_answers_are_read_one_at_a_time(table):
    method = make_method()
    grid = table(method)
    strategy = strategy_of(method, clients_per_round=CLIENTS)
    strategy.directory.wait(grid, CLIENTS, 1)
    grid.most_at_once = 0
    play_over(grid, strategy)
    assert grid.most_at_once == 1


def test_a_broadcast_is_exactly_the_wire_format(table):
    method = make_method()
    assert strategy_of(method).initial_arrays()["bytes"].data == method.broadcast(method.init())
    assert BallotFormat.parse(method.broadcasts)


def an_error(question, honest):
    return [Message(Error(3, "Traceback ...\nValueError: no data"), reply_to=question)]


def a_ballot_cut_off(question, honest):
    return [with_ballot(question, ballot_of(honest(question))[:-9])]


def without_content(question, honest):
    reply = honest(question)[0]
    reply.__dict__["_content"] = None
    return [reply]


def malformed(question, honest):
    raise ValueError("Error parsing message")  # as Grid.pull_messages does


FAULTS = {
    "garbage": (lambda question, honest: [with_ballot(question, b"garbage")], "bytes"),
    "nothing": (
        lambda question, honest: [Message(RecordDict(), reply_to=question)],
        "ballot and metrics only",
    ),
    "a numpy array": (lambda question, honest: [with_array(question, Array(np.zeros(3)))], "fedrank.wire"),
    "an error": (an_error, "no data"),
    "another's ballot": (lambda question, honest: [with_ballot(question, forged(question))], "sender"),
    "a ballot cut off": (a_ballot_cut_off, "bytes"),
    "no content": (without_content, "without content"),
    "what Flower cannot unpack": (malformed, "cannot be unpacked"),
    "silence": (lambda question, honest: [], "did not reply within 3 seconds"),
}
SOON = 3.0
"""A deadline for tests in which it passes; what is compiled when it is first used has been used before."""


def with_array(question, array):
    content = {"ballot": ArrayRecord({"bytes": array}), "metrics": MetricRecord({"train-loss": 1.0})}
    return Message(RecordDict(content), reply_to=question)


def with_ballot(question, ballot):
    return Message(RecordDict({"ballot": as_record(ballot), "metrics": MetricRecord({})}), reply_to=question)


def ballot_of(reply):
    return reply[0].content["ballot"]["bytes"].data


def forged(question):
    method = make_method()
    broadcast = question.content["broadcast"]["bytes"].data
    received = method.receive(broadcast)
    return method.encode(received, received.ranking, 7_000)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_costs_its_own_vote_and_nothing_else(table, fault, caplog):
    method = make_method()
    answer, reason = FAULTS[fault]
    grid = table(method)
    others = [number for number in range(CLIENTS) if number != 3]
    without = play_over(
        table(method, others), strategy_of(method, clients_per_round=CLIENTS, min_available_nodes=7)
    )
    strategy = strategy_of(method, clients_per_round=CLIENTS, deadline=SOON if fault == "silence" else 60.0)
    broken(grid, 3, answer)
    with caplog.at_level(logging.WARNING, "flwr"):
        [(state, played)] = play_over(grid, strategy)
    assert list(played.refused) == [3]
    assert reason in played.refused[3]
    assert f"client 3 (node {node_id(3)})" in caplog.text
    assert state.ranking.tobytes() == without[0][0].ranking.tobytes()


def test_an_answer_for_another_round_is_refused(table):
    method = make_method()
    grid = table(method)
    kept = []

    def replay(question, honest):
        kept.append(ballot_of(honest(question)))
        return [with_ballot(question, kept[0])]

    broken(grid, 2, replay)
    played = [played for _, played in play_over(grid, strategy_of(method, clients_per_round=CLIENTS), 2)]
    assert not played[0].refused
    assert "round" in played[1].refused[2]


def test_a_second_answer_does_not_count(table, caplog):
    method = make_method()
    grid = table(method)
    broken(grid, 1, lambda question, honest: [*honest(question), *honest(question)])
    with caplog.at_level(logging.WARNING, "flwr"):
        [(state, played)] = play_over(grid, strategy_of(method, clients_per_round=CLIENTS))
    assert not played.refused
    assert "replied twice" in caplog.text
    [(expected, _)] = play_over(table(method), strategy_of(method, clients_per_round=CLIENTS))
    assert state.ranking.tobytes() == expected.ranking.tobytes()


def test_nobody_answers_for_another_node(table):
    method = make_method()
    grid = table(method)

    def impostor(question, honest):
        [reply] = honest(question)
        reply.metadata.__dict__["_src_node_id"] = node_id(5)
        return [reply]

    broken(grid, 4, impostor)
    [(_, played)] = play_over(grid, strategy_of(method, clients_per_round=CLIENTS))
    assert played.refused == {4: f"got its reply from another node, {node_id(5)}"}


def test_an_error_of_the_superlink_is_laid_at_the_right_door(table):
    """Errors that the SuperLink makes carry its own node id, 1."""
    method = make_method()
    grid = table(method)

    def lost(question, honest):
        reply = Message(Error(7, "Node unavailable"), reply_to=question)
        reply.metadata.__dict__["_src_node_id"] = 1
        return [reply]

    broken(grid, 6, lost)
    [(_, played)] = play_over(grid, strategy_of(method, clients_per_round=CLIENTS))
    assert "Node unavailable" in played.refused[6]


def test_a_message_that_was_lost_with_a_restart_of_the_superlink_is_sent_again(table, monkeypatch, caplog):
    method = make_method()
    [(undisturbed, _)] = play_over(table(method), strategy_of(method, clients_per_round=CLIENTS))
    grid = table(method)
    pushed, push = [], grid.push_messages

    def forgetful(messages):
        pushed.append(messages[0].object_id)
        if len(pushed) in (2, CLIENTS + 4):
            raise RuntimeError("the push session may have expired")
        return push(messages)

    monkeypatch.setattr(grid, "push_messages", forgetful)
    [(state, played)] = play_over(grid, strategy_of(method, clients_per_round=CLIENTS))
    assert not played.refused
    assert state.ranking.tobytes() == undisturbed.ranking.tobytes()
    assert pushed[1] == pushed[2], "the same message: its node may wait for the rest of it"
    assert "sending it again" in caplog.text


def test_too_few_votes_repeat_the_round_with_others(table):
    method = make_method()
    grid = table(method)
    failures = []

    def fail_once(question, honest):
        failures.append(question)
        return [with_ballot(question, b"")] if len(failures) < 3 else honest(question)

    for number in range(CLIENTS):
        broken(grid, number, fail_once)
    [(state, played)] = play_over(grid, strategy_of(method, clients_per_round=2, min_votes=2))
    assert state.round == 1
    assert not played.refused
    assert set(grid.asked[:2]) != set(grid.asked[2:4])


def test_a_round_is_not_repeated_for_ever(table):
    method = make_method()
    grid = table(method)
    for number in range(CLIENTS):
        broken(grid, number, lambda question, honest: [with_ballot(question, b"")])
    with pytest.raises(TrainingError, match="run 2 times and never had 2 legal ballots"):
        play_over(grid, strategy_of(method, clients_per_round=2, min_votes=2, max_retries=1))


def test_who_keeps_cheating_is_no_longer_asked(table, caplog):
    method = make_method()
    grid = table(method)
    broken(grid, 0, lambda question, honest: [with_ballot(question, b"x")])
    with caplog.at_level(logging.WARNING, "flwr"):
        rounds = play_over(grid, strategy_of(method, clients_per_round=CLIENTS, strikes=2), 4)
    assert [0 in played.clients for _, played in rounds] == [True, True, False, False]
    assert "sent too many illegal replies and is excluded" in caplog.text


def test_a_client_that_is_only_slow_is_asked_again(table):
    method = make_method()
    play_over(table(method), strategy_of(method))
    grid = table(method)
    broken(grid, 0, lambda question, honest: [])
    settings = {"clients_per_round": CLIENTS, "strikes": 1, "deadline": SOON}
    rounds = play_over(grid, strategy_of(method, **settings), 2)
    assert all(0 in played.clients for _, played in rounds)


def test_an_upload_that_never_ends_holds_up_nobody(table, monkeypatch):
    """Flower waits for hours for an answer that has begun to arrive."""
    monkeypatch.setattr("fedrank.flower.exchange.STUCK", 0.5)
    method = make_method()
    play_over(table(method), strategy_of(method))
    grid = table(method)
    released = threading.Event()
    for number in range(4):  # more than there are threads to pull with
        honest = grid.nodes[node_id(number)]

        def node(message, honest=honest):
            if message.metadata.message_type == "train":
                released.wait(60)
                return []
            return honest(message)

        node.blocks = True
        grid.nodes[node_id(number)] = node
    strategy = strategy_of(method, clients_per_round=CLIENTS, deadline=5.0, min_votes=4, startup_timeout=5.0)
    [(_, played)] = play_over(grid, strategy)
    released.set()
    assert set(played.refused) == {0, 1, 2, 3}
    assert all("did not reply" in reason for reason in played.refused.values())


def test_a_banned_client_is_not_there(table):
    """With only a banned client left, the server waits for others."""
    method = make_method()
    grid = table(method)
    broken(grid, 0, lambda question, honest: [with_ballot(question, b"x")])
    strategy = strategy_of(method, clients_per_round=CLIENTS, strikes=1, startup_timeout=0.6)
    play_over(grid, strategy)
    for number in range(1, CLIENTS):
        del grid.nodes[node_id(number)]
    state = strategy.method.init()
    strategy.min_available_nodes = 1
    with pytest.raises(TrainingError, match=r"0 of 1 clients are online after .*, not counting 1 excluded"):
        list(strategy.rounds(grid, state, 1))


@pytest.mark.parametrize("fault", ["what Flower cannot unpack", "no content"])
def test_what_cannot_be_read_is_a_strike(table, fault):
    method = make_method()
    grid = table(method)
    broken(grid, 5, FAULTS[fault][0])
    rounds = play_over(grid, strategy_of(method, clients_per_round=CLIENTS, strikes=1), 2)
    assert [5 in played.clients for _, played in rounds] == [True, False]


def test_what_clients_write_reaches_logs_as_plain_text(table):
    method = make_method()
    grid = table(method)
    broken(grid, 5, lambda question, honest: [Message(Error(1, "\x1b[2Jgone\x00"), reply_to=question)])
    [(_, played)] = play_over(grid, strategy_of(method, clients_per_round=CLIENTS))
    assert played.refused[5].isprintable()


def test_waiting_for_clients_has_a_limit(table):
    method = make_method()
    with pytest.raises(TrainingError, match="3 of 8 clients are online"):
        play_over(table(method, range(3)), strategy_of(method, startup_timeout=0.3))


def test_a_number_that_is_taken_takes_nobodys_vote(table):
    """A node that claims to be another client is numbered by its own id."""
    method = make_method()
    grid = table(method)
    thief = 77
    app = ClientApp()
    voting(app)(lambda context: None)
    grid.nodes[thief] = node_of(app, 2, thief)  # it is asked first: ids are asked in their order
    strategy = strategy_of(method)
    strategy.directory.wait(grid, CLIENTS + 1, 1)
    numbers = {node: number for number, node in strategy.directory.nodes.items()}
    assert (numbers[thief], numbers[node_id(2)]) == (2, node_id(2))
    assert len(numbers) == CLIENTS + 1


@pytest.mark.parametrize("answer", ["nothing", "no content", "what Flower cannot unpack", "an error"])
def test_a_node_that_cannot_say_who_it_is_stops_nobody(table, answer):
    method = make_method()
    grid = table(method)
    honest = grid.nodes[node_id(3)]
    grid.nodes[node_id(3)] = lambda question: FAULTS[answer][0](question, honest)
    [(_, played)] = play_over(
        grid, strategy_of(method, min_available_nodes=CLIENTS - 1, clients_per_round=CLIENTS)
    )
    votes = {client for client in played.clients if client not in played.refused}
    assert votes == set(range(CLIENTS)) - {3}


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), -1.0, 1e308, [1.0], 2**60])
def test_a_loss_that_is_none_does_not_count_but_the_vote_does(table, loss):
    method = make_method()
    grid = table(method)

    def lying(question, honest):
        [reply] = honest(question)
        reply.content["metrics"] = MetricRecord({"train-loss": loss})
        return [reply]

    broken(grid, 1, lying)
    [(_, played)] = play_over(grid, strategy_of(method, clients_per_round=CLIENTS))
    [(_, honest)] = play_over(table(method), strategy_of(method, clients_per_round=CLIENTS))
    assert not played.refused
    assert played.train_loss == pytest.approx(honest.train_loss, rel=0.2)


def test_a_node_that_came_back_gets_its_number_again(table):
    method = make_method()
    grid = table(method)
    strategy = strategy_of(method)
    strategy.directory.wait(grid, CLIENTS, 1)
    grid.nodes[4242] = grid.nodes.pop(node_id(2))
    strategy.directory.refresh(grid)
    assert strategy.directory.nodes[2] == 4242


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_votes": 9}, "between 1 and clients_per_round"),
        ({"min_votes": 0}, "between 1 and clients_per_round"),
        ({"deadline": 0.0}, "deadline"),
        ({"strikes": 0}, "strikes"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        strategy_of(make_method(), **settings)


def test_the_example_of_the_documentation_trains(pytestconfig, capsys):
    page = (pytestconfig.rootpath / "docs" / "flower.md").read_text("utf-8")
    names = {}
    exec(re.search(r"```python\n(.*?)```", page, re.S)[1], names)
    nodes = {
        9000 + number: node_of(names["client"], number, 9000 + number, **{"num-partitions": 4})
        for number in range(4)
    }
    names["server"](TableGrid(nodes), Context(1, 1, {}, RecordDict(), {}))
    assert "18944 edges" in capsys.readouterr().out
