"""The settings that apply to a run, and what people read of it."""

import pytest

from fedrank.experiment.config import load_preset, preset_names
from fedrank.report.settings import applied, attack_text, method_text


def shown(preset: str, *settings: str) -> dict[str, object]:
    return applied(load_preset(preset, settings).flat())


@pytest.mark.parametrize("preset", preset_names())
def test_what_applies_is_a_part_of_all_settings(preset: str) -> None:
    everything = load_preset(preset).flat()
    assert shown(preset).items() <= everything.items()
    assert {"seed", "rounds", "network.name", "local.epochs", "attack.name"} <= shown(preset).keys()


@pytest.mark.parametrize(
    ("preset", "settings", "listed", "unlisted"),
    [
        ("digits", (), {"method.vote", "wire.ballots", "data.beta"}, {"method.aggregator", "attack.share"}),
        ("digits", ("method.vote=borda",), {"network.keep"}, {"method.assumed_malicious"}),
        ("digits", ("method.vote=screened-mean",), {"method.assumed_malicious"}, {"method.server_rate"}),
        ("digits", ("data.partition=iid",), set(), {"data.beta", "data.shards_per_client"}),
        ("digits-weights", (), {"method.aggregator"}, {"method.vote", "wire.ballots", "network.keep"}),
        ("digits-weights", ("method.name=signsgd",), {"method.server_rate"}, {"method.aggregator"}),
        ("digits", ("attack.name=mirror", "attack.share=0.2"), {"attack.lies"}, set()),
        (
            "digits",
            ("attack.name=mirror", "attack.share=0.2", "method.vote=borda"),
            {"attack.share"},
            {"attack.lies"},
        ),
    ],
)
def test_settings_that_do_not_apply_are_not_listed(
    preset: str, settings: tuple[str, ...], listed: set[str], unlisted: set[str]
) -> None:
    keys = shown(preset, *settings).keys()
    assert listed <= keys
    assert not unlisted & keys


def test_a_run_is_named_by_its_method_its_rule_and_its_attack() -> None:
    vote = "method.vote={name = 'measured-mean', validators = 20}"
    flat = load_preset("digits", [vote, "attack.name=mirror", "attack.share=0.125"]).flat()
    assert method_text(flat) == "FRL, vote measured-mean (validators 20)"
    assert attack_text(flat) == "mirror, 12.5% of the clients malicious"
    assert method_text({"method.name": "frl", "method.vote": {"function": "mine:push"}}) == "FRL, vote push"
