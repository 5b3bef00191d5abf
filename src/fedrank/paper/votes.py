"""The matrix: every attack on rankings against votes, for growing shares of malicious clients.

It is not in the paper, which knows one vote and calls the reversed ranking the worst case.
"""

from __future__ import annotations

from fedrank.attacks import ATTACKS, Target
from fedrank.experiment.sweep import Cell

VOTES = ("borda", "measured-mean", "screened-mean", "nnm+trimmed-mean")
SHARES = (0.1, 0.2, 0.3, 0.4)
ROUNDS = 30
BASELINES = (
    ("FedAvg", "mean", "scaled"),
    ("FedAvg", "trimmed-mean", "dyn-trimmed-mean"),
    ("FedAvg", "multi-krum", "dyn-multi-krum"),
    ("SignSGD", "mean", "sign-reverse"),
)
"""Methods that train weights, each with its aggregator and the attack that was made for it."""
STRONGEST = {
    "borda": ("mirror", "band"),
    "screened-mean": ("planned-flips", "planned-flips (benign)"),
    "nnm+trimmed-mean": ("mirror-tuned (benign)", "label-flip", "backdoor"),
}
"""What MNIST is measured with: what does most harm on the digits, or is said to be stopped."""
DEFAULT = "measured-mean"
VARIANTS = {
    "mirror": {"alone": "attack.alone=true", "small layers": "attack.layers=small"},
    "mirror-tuned": {"benign": "attack.knows=benign"},
    "alie": {"sign": "attack.direction=sign"},
    "min-max": {"sign": "attack.direction=sign"},
    "min-sum": {"sign": "attack.direction=sign"},
    "planned-flips": {
        "benign": "attack.knows=benign",
        "benign, different": "attack.knows=benign attack.different=true",
        "benign, one class": "attack.knows=benign attack.label=8",
        "benign, stalling": "attack.knows=benign attack.lies=stall",
    },
}
"""Attacks that are measured with other parameters, too: what a table calls the variant, and the setting."""


def cells(scale: str) -> list[Cell]:
    """Return the whole matrix on the digits; on MNIST the strongest attacks, and all against the default.

    The paper has no such table: `night` and `paper` are `laptop`.
    """
    if scale == "smoke":
        honest = [votes_cell("digits", vote, "none", 0.0, 1) for vote in VOTES[:2]]
        return honest + [votes_cell("digits", vote, "mirror", 0.2, 1) for vote in VOTES[:2]]
    found = []
    for vote in VOTES:
        found.append(votes_cell("digits", vote, "none", 0.0, ROUNDS))
        for attack in attacks_on_rankings():
            found += [votes_cell("digits", vote, attack, share, ROUNDS) for share in SHARES]
    found += baseline_cells("digits", SHARES)
    for vote in VOTES:
        found.append(votes_cell("mnist", vote, "none", 0.0, ROUNDS))
        for attack in attacks_on_rankings() if vote == DEFAULT else STRONGEST[vote]:
            found += [votes_cell("mnist", vote, attack, share, ROUNDS) for share in SHARES[:2]]
    return found


PLANNED = ("planned-flips", *(f"planned-flips ({name})" for name in VARIANTS["planned-flips"]))
SEEDS = (7, 8, 9)
FRESH_SEEDS = (10, 11, 12)
"""Beside the seeds that the attack was first published with in these docs."""
SHORT_BALLOTS = ("levels=4 dithered", "top=50%")
MIRRORS = (
    "mirror",
    *(f"mirror ({name})" for name in VARIANTS["mirror"]),
    "mirror-tuned",
    "mirror-tuned (benign)",
)
LONG = 150


def planned_cells(scale: str) -> list[Cell]:
    """Return votes under planned flips over several seeds: the default vote under every attack.

    The paper has no such table: `night` and `paper` are `laptop`.
    """
    if scale == "smoke":
        return [planned_cell("digits", vote, "planned-flips", 0.2, 7, 1) for vote in VOTES[:2]]
    found = []
    tried = {"screened-mean": SEEDS, "clip+screened-mean": SEEDS, DEFAULT: (*SEEDS, *FRESH_SEEDS)}
    for vote, seeds in tried.items():
        for attack, share in (("none", 0.0), *((attack, 0.2) for attack in PLANNED[:2])):
            found += [planned_cell("digits", vote, attack, share, seed, ROUNDS) for seed in seeds]
    found += [planned_cell("digits", "borda", "none", 0.0, seed, ROUNDS) for seed in FRESH_SEEDS]
    others = [attack for attack in attacks_on_rankings() if attack not in PLANNED]
    for attack in (*PLANNED[2:], *others):
        found += [planned_cell("digits", DEFAULT, attack, 0.2, seed, ROUNDS) for seed in FRESH_SEEDS]
    for share in (0.1, 0.3, 0.4):
        found += [planned_cell("digits", DEFAULT, PLANNED[1], share, seed, ROUNDS) for seed in FRESH_SEEDS]
    found += [planned_cell("mnist", "screened-mean", PLANNED[1], 0.2, SEEDS[0], ROUNDS)]
    for seed in SEEDS:
        found += [planned_cell("mnist", vote, "none", 0.0, seed, ROUNDS) for vote in ("borda", DEFAULT)]
        attacked = (PLANNED[1], *(MIRRORS if seed == SEEDS[0] else MIRRORS[:1]))
        found += [planned_cell("mnist", DEFAULT, attack, 0.2, seed, ROUNDS) for attack in attacked]
    found += [
        short_ballots_cell(ballots, attack, share)
        for ballots in SHORT_BALLOTS
        for attack, share in (("none", 0.0), *((attack, 0.2) for attack in MIRRORS))
    ]
    return [*found, drift_cell("none", 0.0), drift_cell(PLANNED[1], 0.2)]


def short_ballots_cell(ballots: str, attack: str, share: float) -> Cell:
    """Return the run of the default vote on short ballots under one attack."""
    cell = planned_cell("digits", DEFAULT, attack, share, SEEDS[0], ROUNDS)
    vote = f"{DEFAULT}, {ballots}"
    return Cell(cell.coordinates | {"vote": vote}, cell.preset, (*cell.settings, f"wire.ballots={ballots}"))


def drift_cell(attack: str, share: float) -> Cell:
    """Return a long run of the default vote: small damage may add up."""
    cell = planned_cell("digits", DEFAULT, attack, share, FRESH_SEEDS[0], LONG)
    vote = f"{DEFAULT}, {LONG} rounds"
    return Cell(cell.coordinates | {"vote": vote}, cell.preset, cell.settings)


def planned_cell(data: str, vote: str, attack: str, share: float, seed: int, rounds: int) -> Cell:
    """Return the run of one vote under one attack with one seed."""
    cell = votes_cell(data, vote, attack, share, rounds)
    return Cell(cell.coordinates | {"seed": str(seed)}, cell.preset, (*cell.settings, f"seed={seed}"))


def attacks_on_rankings() -> list[str]:
    """Return the attacks that can be run against FRL, and their variants."""
    found = []
    for name, attack in ATTACKS.items():
        if attack.target is not Target.WEIGHTS:
            found += [name, *(f"{name} ({variant})" for variant in VARIANTS.get(name, {}))]
    return found


def votes_cell(data: str, vote: str, attack: str, share: float, rounds: int) -> Cell:
    """Return the run of one vote under one attack."""
    often = 2 if data == "digits" else 5
    settings = (f"rounds={rounds}", f"evaluate_every={often}", f"method.vote={vote}", *_attack(attack, share))
    return Cell(_coordinates(data, vote, attack, share), data, settings)


def baseline_cells(data: str, shares: tuple[float, ...]) -> list[Cell]:
    """Return the methods that train weights, without attack and under the attacks made for them."""
    found = []
    for method, aggregator, attack in BASELINES:
        name = method if aggregator == "mean" else f"{method}, {aggregator}"
        for share in (0.0, *shares):
            settings = (
                f"rounds={ROUNDS}",
                "evaluate_every=2",
                f"method.name={method.lower()}",
                f"method.aggregator={aggregator}",
                *_attack(attack, share),
            )
            found.append(Cell(_coordinates(data, name, attack, share), f"{data}-weights", settings))
    return found


def _attack(name: str, share: float) -> tuple[str, ...]:
    if not share:
        return ()
    plain, _, variant = name.removesuffix(")").partition(" (")
    parameters = tuple(VARIANTS[plain][variant].split()) if variant else ()
    return (f"attack.name={plain}", f"attack.share={share}", *parameters)


def _coordinates(data: str, vote: str, attack: str, share: float) -> dict[str, str]:
    name = attack if share else "none"
    return {"data": data, "vote": vote, "attack": name, "malicious": f"{share:.0%}"}
