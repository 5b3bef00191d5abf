"""Quick tour: FRL and FedAvg on the embedded digits, without and under attack."""

from __future__ import annotations

from fedrank.experiment.config import Experiment, load_preset

ROUNDS = 20
MALICIOUS = 0.2


def demo_experiments() -> dict[str, Experiment]:
    """Return the four runs by name. Each method faces an attack designed against it."""
    experiments = {}
    for method, preset, attack in (("FRL", "digits", "mirror"), ("FedAvg", "digits-weights", "scaled")):
        for share in (0.0, MALICIOUS):
            name = f"{method}-attacked" if share else method
            settings = [f"name={name}", f"rounds={ROUNDS}", "evaluate_every=2"]
            if share:
                settings += [f"attack.name={attack}", f"attack.share={share}"]
            experiments[name] = load_preset(preset, settings)
    return experiments
