"""Names of settings in version 0.1, so that older runs and results can still be read and resumed.

The digest of a run uses the former names, so that it stays the same.
"""

from __future__ import annotations

from typing import Any

ATTACKS: dict[str, tuple[str, dict[str, Any]]] = {
    "lie": ("alie", {}),
    "mirror-alone": ("mirror", {"alone": True}),
    "mirror-shallow": ("mirror", {"layers": "small"}),
    "mirror-omniscient": ("mirror-tuned", {"knows": "benign"}),
}
RULES = {"centred-clipping": "centered-clipping"}


def renewed_attack(values: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of an attack with current names."""
    name = values.get("name")
    if name not in ATTACKS:
        return values
    new, parameters = ATTACKS[name]
    return values | {"name": new} | parameters


def former_attack(values: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of an attack with former names: the inverse of `renewed_attack`."""
    for old, (new, parameters) in ATTACKS.items():
        if values["name"] == new and all(values.get(key) == value for key, value in parameters.items()):
            return {key: value for key, value in values.items() if key not in parameters} | {"name": old}
    return values


def renewed_method(values: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a method with current names."""
    renewed = dict(values)
    if "told" in renewed or "expected" in renewed:
        told, expected = renewed.pop("told", True), renewed.pop("expected", 0.4)
        share_is_assumed = renewed.get("name", "frl") == "frl" or not told
        renewed.setdefault("assumed_malicious", expected if share_is_assumed else "actual")
    for key in ("vote", "aggregator"):
        if isinstance(renewed.get(key), str):
            renewed[key] = "+".join(RULES.get(part, part) for part in renewed[key].split("+"))
    return renewed


def former_method(values: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a method with former names: the inverse of `renewed_method`."""
    former = dict(values)
    assumed = former.pop("assumed_malicious")
    given = former["name"] != "frl" and assumed != "actual"
    former |= {"told": not given, "expected": 0.4 if assumed == "actual" else assumed}
    back = {new: old for old, new in RULES.items()}
    for key in ("vote", "aggregator"):
        if isinstance(former[key], str):
            former[key] = "+".join(back.get(part, part) for part in former[key].split("+"))
    return former
