"""The settings of a run as people read them: what was run, and which settings had a say in it."""

from __future__ import annotations

from typing import Any

METHODS = {"frl": "FRL", "fedavg": "FedAvg", "signsgd": "SignSGD", "topk": "TopK"}
RULES = {"frl": "method.vote", "fedavg": "method.aggregator", "topk": "method.aggregator"}
ONLY_OF = {
    "method.vote": ("frl",),
    "method.memory": ("frl",),
    "method.aggregator": ("fedavg", "topk"),
    "method.assumed_malicious": ("frl", "fedavg", "topk"),
    "method.share": ("topk",),
    "method.server_rate": ("signsgd",),
    "network.keep": ("frl",),
    "network.scores": ("frl",),
    "wire.ballots": ("frl",),
    "wire.broadcasts": ("frl",),
}
"""The methods to which a setting applies; all others apply to every method."""
PARTITIONS = {
    "data.beta": "dirichlet",
    "data.shards_per_client": "shards",
    "data.test_shards": "shards",
}
"""The partitions to which a setting applies."""
UNAWARE = ("borda", "mean", "measured-mean")
"""Rules that assume no number of malicious clients."""


def applied(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a run, by their full names, without those that do not apply to it.

    >>> applied({"method.name": "fedavg", "method.vote": "borda", "attack.name": "none", "attack.share": 0.0})
    {'method.name': 'fedavg', 'attack.name': 'none'}
    """
    method, partition = settings.get("method.name"), settings.get("data.partition")
    rule = _rule(settings.get(RULES.get(str(method), "")))
    unused = {key for key, methods in ONLY_OF.items() if method in METHODS and method not in methods}
    unused |= {key for key, only in PARTITIONS.items() if partition not in (None, only)}
    if settings.get("attack.name") == "none":
        unused |= {key for key in settings if key.startswith("attack.")} - {"attack.name"}
    elif rule != "measured-mean":
        unused.add("attack.lies")
    if rule in UNAWARE:
        unused.add("method.assumed_malicious")
    return {key: value for key, value in settings.items() if key not in unused}


def method_text(settings: dict[str, Any]) -> str:
    """Say which method was run, and how it aggregated.

    >>> method_text({"method.name": "frl", "method.vote": "borda"})
    'FRL, vote borda'
    >>> method_text({"method.name": "mine:Method"})
    'Method'
    """
    name = str(settings.get("method.name", ""))
    key = RULES.get(name, "")
    shown = METHODS.get(name) or name.rpartition(":")[2]
    if key not in settings:
        return shown
    parameters = _parameters(settings[key])
    words = f" ({', '.join(f'{name} {value}' for name, value in parameters.items())})" if parameters else ""
    return f"{shown}, {key.removeprefix('method.')} {_rule(settings[key])}{words}"


def attack_text(settings: dict[str, Any]) -> str:
    """Say what malicious clients did, and how many of the clients they were.

    >>> attack_text({"attack.name": "mirror", "attack.share": 0.2})
    'mirror, 20% of the clients malicious'
    >>> attack_text({"attack.name": "none"})
    'none'
    """
    name = str(settings.get("attack.name", "none"))
    if name == "none":
        return name
    return f"{name.rpartition(':')[2]}, {settings['attack.share'] * 100:.3g}% of the clients malicious"


def _rule(value: Any) -> str:
    """Return the name of a rule, which may have parameters or be a function of one's own."""
    if not isinstance(value, dict):
        return str(value)
    return str(value.get("function") or value["name"]).rpartition(":")[2]


def _parameters(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {}
    return {key: each for key, each in value.items() if key not in ("name", "function")}
