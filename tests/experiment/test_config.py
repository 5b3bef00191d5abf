import tomllib
from pathlib import Path
from typing import get_args

import pytest

from fedrank.data import SOURCES
from fedrank.errors import ConfigError
from fedrank.experiment import sections
from fedrank.experiment.config import (
    load_file,
    load_preset,
    parse,
    preset_names,
    preset_text,
)
from fedrank.experiment.sections import NetworkSection
from fedrank.nn import NETWORKS, Scores
from fedrank.nn.init import WEIGHT_INITIALIZERS

DIGITS = preset_text("digits")


def choices(section: type, field: str) -> tuple[str, ...]:
    return get_args(section.model_fields[field].annotation)  # type: ignore[attr-defined]


def test_the_choices_are_those_that_exist() -> None:
    assert tuple(NETWORKS) == sections.NETWORKS
    assert choices(NetworkSection, "weights") == tuple(WEIGHT_INITIALIZERS)
    assert choices(NetworkSection, "scores") == tuple(Scores)
    assert tuple(SOURCES) == sections.DATA


@pytest.mark.parametrize(
    ("name", "network", "clients", "epochs", "rate", "batch"),
    [
        ("mnist", "lenet", 1000, 2, 0.4, 8),
        ("cifar10", "conv8", 1000, 5, 0.4, 8),
        ("femnist", "lenet-62", None, 2, 0.2, 10),
    ],
)
def test_presets_have_the_papers_settings(
    name: str, network: str, clients: int | None, epochs: int, rate: float, batch: int
) -> None:
    preset = load_preset(name)
    assert (preset.rounds, preset.clients_per_round, preset.network.keep) == (2000, 25, 0.5)
    assert (preset.network.name, preset.data.clients, preset.data.beta) == (network, clients, 1.0)
    local = preset.local
    assert (local.epochs, local.learning_rate, local.batch_size) == (epochs, rate, batch)
    assert (local.momentum, local.weight_decay) == (0.9, 1e-4)


@pytest.mark.parametrize("name", preset_names())
def test_a_resolved_configuration_reads_back_as_itself(name: str) -> None:
    preset = load_preset(name)
    assert parse(preset.to_toml(), "again") == preset
    tomllib.loads(preset.to_toml())


def test_settings_are_laid_over_a_preset() -> None:
    settings = [
        "clients_per_round=50",
        "wire.ballots=top=50%",
        "network.scores=authors",
        'name="other"',
        "local.weight_decay=0",
    ]
    changed = load_preset("mnist", settings)
    assert changed.clients_per_round == 50
    assert changed.wire.ballots == "top=50% packed"
    assert changed.network.scores == "authors"
    assert changed.name == "other"
    assert changed.local.weight_decay == 0


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("local.epoch=3", "--set local.epoch=3: unknown key 'local.epoch'; did you mean 'epochs'?"),
        ("locale.epochs=3", "unknown key 'locale'; did you mean 'local'?"),
        ("local.epochs=two", 'local.epochs = "two": must be a whole number'),
        ("local.epochs=2.5", "local.epochs = 2.5: must be a whole number"),
        ("local.epochs=true", "local.epochs = true: must be a whole number"),
        ("local.epochs=0", "local.epochs = 0: must be at least 1"),
        ("network.keep=1.1", "network.keep = 1.1: must be at most 1"),
        ("network.keep=0", "network.keep = 0: must be more than 0"),
        ("data.test_shards=true", "test_shards needs partition 'shards' and an official test set"),
        ("attack.directoin=sign", "unknown key 'attack.directoin'"),
        ("network.keep=nan", "finite"),
        ("method.vote=bord", "unknown rule; did you mean 'borda'?"),
        (
            "method.assumed_malicious=0.5",
            "assumed_malicious = 0.5: must be a share of at least 0",
        ),
        ("method.assumed_malicious=true", "assumed_malicious = true: must be a share"),
        ("method.assumed_malicious=actual", "is for methods that train weights"),
        ("network.name=vgg", 'network.name = "vgg": unknown network; known: lenet-digits, lenet'),
        (
            "network=lenett",
            "--set network=lenett: network.name = \"lenett\": unknown network; did you mean 'lenet'?",
        ),
        ("network=mine.py:Net", "name the module, not its file: 'mine:Net'"),
        ("network=models/mine.py:Net", "name the module, not its file: 'models.mine:Net'"),
        ("network=mine:", "expected an import path, such as mypackage.models:Net"),
        ("network=mine:a b", "expected an import path"),
        (
            "data=mnits",
            "unknown data set; did you mean 'mnist'? For your own data, use mine.npz or mypackage.data:",
        ),
        ("data.preprocess=none", "digits has its own preprocessing"),
        ("data.test_share=0", "test_share must be more than 0"),
        (
            "data.preprocess=standard",
            "data.preprocess = \"standard\": must be 'standardize', 'none' or a table of values; "
            "did you mean 'standardize'?",
        ),
        ("imports=mine", 'imports = "mine": must be a list'),
        ('imports=["no_such_module"]', "there is no module 'no_such_module'"),
        ("data.clients=0", "data.clients = 0"),
        ("data.beta=-1", "data.beta = -1"),
        ("data.partition=writer", "has no writers"),
        ("clients_per_round=101", "clients_per_round is 101, but data.clients is 100"),
        ("seed=-1", "seed = -1"),
        ("seed=4294967296", "seed = 4294967296"),
        ("wire.ballots=top=0%", 'wire.ballots = "top=0%"'),
        ("name=a/b", 'name = "a/b"'),
        ("local=3", "local = 3: expected a table of settings, such as [local]"),
        ("rounds=1\nseed=3", "expected key=value"),
        ("rounds", "expected key=value"),
        ("=3", "expected key=value"),
        ("seed.x=3", "'seed' is a value, not a table"),
    ],
)
def test_a_bad_setting_is_refused_by_name_place_and_hint(setting: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load_preset("digits", [setting])
    assert complaint in str(refusal.value)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("epochs = 5", "epoch = 5", "my.toml, line 16: unknown key 'local.epoch'; did you mean 'epochs'?"),
        ("epochs = 5", "epoch = 5", "my.toml, line 15: 'local.epochs' is missing"),
        ("rounds = 60", "rounds = '60'", 'my.toml, line 4: rounds = "60": must be a whole number'),
        ("rounds = 60", "rounds = ", "my.toml: invalid TOML"),
        ("clients = 100", "", "partition 'dirichlet' needs the number of clients"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    path = tmp_path / "my.toml"
    path.write_text(DIGITS.replace(old, new, 1))
    with pytest.raises(ConfigError) as refusal:
        load_file(path)
    assert complaint in str(refusal.value)


def test_a_string_is_short_for_a_table_with_a_name() -> None:
    text = DIGITS.replace('[data]\nname = "digits"', "[data]\nname = 'mine.npz'")
    short = 'network = "mine:Net"\n' + text.replace('[network]\nname = "lenet-digits"', "")
    spelled_out = text.replace('"lenet-digits"', '"mine:Net"')
    assert parse(short, "short") == parse(spelled_out, "long")
    assert load_preset("digits", ["network=mine:Net", "network.keep=0.8"]).network.keep == 0.8


def test_an_unknown_name_is_found_in_the_line_of_its_short_form() -> None:
    text = 'network = "lenett"\n' + DIGITS.replace('[network]\nname = "lenet-digits"', "")
    with pytest.raises(ConfigError, match=r"my.toml, line 1: network.name = \"lenett\": unknown network"):
        parse(text, "my.toml")


def test_data_divided_among_clients_has_no_partition_and_other_data_has_the_usual_one() -> None:
    divided = load_preset("digits", ["data=mine.npz"]).data
    assert (divided.partition, divided.clients) == (None, None)
    assert load_preset("digits", ["data=mine.npz", "data.clients=30"]).data.partition == "dirichlet"
    with pytest.raises(ConfigError, match="partition 'iid' needs the number of clients"):
        load_preset("digits", ["data=mine.npz", "data.partition=iid"])


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("{mean = [0.1], sd = [1.0]}", "unknown key 'sd'; did you mean 'std'?"),
        ("{mean = [0.1, 0.2, 0.3], std = [1.0, 1.0]}", "got 3 means but 2 standard deviations"),
        ("{std = [0.0]}", "scale and std must be positive"),
    ],
)
def test_values_of_a_preprocessing_are_checked(setting: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint.replace("?", r"\?")):
        load_preset("digits", ["data=mine.npz", f"data.preprocess={setting}"])


def test_own_parts_read_back_as_themselves() -> None:
    settings = ["data=mine.npz", "data.preprocess={mean = 0.5}", "network=mine:Net", "network.fix=true"]
    own = load_preset("digits", settings)
    assert own.data.preprocess == {"scale": 1.0, "mean": [0.5], "std": [1.0]}
    again = parse(own.to_toml(), "again")
    assert again == own
    assert again.fingerprint() == own.fingerprint()


def test_what_is_new_does_not_change_the_digest_of_what_is_not() -> None:
    expected = "af8420ce749ad45c174e64925b0af6d4133b7ac0742b460aa7326ed27c4e361a"
    assert load_preset("digits").fingerprint() == expected
    assert load_preset("digits", ["imports=['json']"]).fingerprint() == expected
    assert load_preset("digits", ["network.fix=true"]).fingerprint() != expected


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as refusal:
        load_preset("digits", ["rounds=0", "local.epochs=0"])
    assert str(refusal.value).count("\n") == 1


def test_a_missing_file_hints_at_the_preset_of_that_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no such file.*--preset; did you mean 'mnist'"):
        load_file(tmp_path / "mnist.toml")
    with pytest.raises(ConfigError, match="unknown preset 'minst'; did you mean 'mnist'"):
        load_preset("minst")


def test_a_directory_or_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_file(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_file(tmp_path / "binary.toml")


def test_names_outside_the_basic_plane_survive_a_file() -> None:
    experiment = load_preset("digits", ["name=\U0001d4bb\U0001d4c7\U0001d4c1"])
    assert parse(experiment.to_toml(), "a file") == experiment


def test_parameters_of_rules_and_attacks_survive_a_file() -> None:
    settings = [
        'method.vote={name = "screened-mean", opposed = -0.3, longest = 2.0}',
        *("attack.name=mirror", "attack.share=0.2", "attack.factor=8", "attack.layers=all"),
    ]
    experiment = load_preset("digits", settings)
    assert experiment.method.vote == {"name": "screened-mean", "opposed": -0.3}, "defaults are not kept"
    assert experiment.attack.parameters == {"factor": 8}
    assert parse(experiment.to_toml(), "a file") == experiment


@pytest.mark.parametrize(
    ("former", "present"),
    [
        (["method.told=true", "method.expected=0.3"], ["method.assumed_malicious=0.3"]),
        (["method.name=fedavg", "method.told=true"], ["method.name=fedavg"]),
        (
            ["method.name=fedavg", "method.told=false", "method.expected=0.2"],
            ["method.name=fedavg", "method.assumed_malicious=0.2"],
        ),
        (["method.vote=centred-clipping"], ["method.vote=centered-clipping"]),
        (
            ["attack.name=mirror-omniscient", "attack.share=0.2"],
            ["attack.name=mirror-tuned", "attack.knows=benign", "attack.share=0.2"],
        ),
        (
            ["attack.name=mirror-shallow", "attack.share=0.2"],
            ["attack.name=mirror", "attack.layers=small", "attack.share=0.2"],
        ),
    ],
)
def test_former_names_are_understood_and_give_the_same_run(former: list[str], present: list[str]) -> None:
    assert load_preset("digits", former) == load_preset("digits", present)


def test_the_digest_of_a_run_has_not_changed_with_the_names_of_settings() -> None:
    """Runs of version 0.1 can be resumed: these are its digests."""
    digests = {
        ("method.vote=screened-mean",): "29c0a53983d1ba41",
        (
            "method.vote=centered-clipping",
            "attack.name=mirror",
            "attack.alone=true",
            "attack.share=0.2",
        ): "da0efd51a2f5d7c9",
        ("method.name=fedavg", "method.assumed_malicious=0.2"): "70341d51c221d433",
    }
    for settings, digest in digests.items():
        assert load_preset("digits", settings).fingerprint()[:16] == digest


def test_an_error_about_the_network_does_not_cause_others() -> None:
    text = 'name = "a"\nseed = 1\nrounds = 1\nclients_per_round = 1\ndata = "mine:clients"\n'
    with pytest.raises(ConfigError) as found:
        parse(f'{text}network = "mine.Net"\n', "my.toml")
    assert "unknown network; known:" in str(found.value)
    assert "For your own network, use mypackage.models:Net" in str(found.value)
    assert "missing" not in str(found.value)
