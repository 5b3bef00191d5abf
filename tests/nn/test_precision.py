"""Training in bfloat16: against plain torch, and its loss beside that of 32 bits."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import fedrank
from fedrank.data import Federation
from fedrank.engine import local as engine
from fedrank.errors import ConfigError, FedrankWarning
from fedrank.experiment.config import load_preset
from fedrank.experiment.rounds import Schedule
from fedrank.methods import FRL, FedAvg, SignSGD, TopK
from fedrank.nn import LocalTraining, MaskedNetwork, Precision, supernetwork
from fedrank.nn.threshold import DeviceThreshold, Threshold
from fedrank.nn.weights import WeightNetwork, train_weights
from fedrank.processor import has_bfloat16, instruction_sets
from tests.support.methods import small_net
from tests.support.runs import rounds_of

CPU = torch.device("cpu")
HALF = LocalTraining(epochs=2, learning_rate=0.05, precision="bfloat16")  # type: ignore[arg-type]


@pytest.mark.parametrize("by_magnitude", [False, True])
@pytest.mark.parametrize("kind", [Threshold, DeviceThreshold])
def test_a_descent_in_bfloat16_is_one_in_32_bits_on_rounded_numbers(
    kind: type[Threshold | DeviceThreshold], by_magnitude: bool
) -> None:
    rng = np.random.default_rng(3)
    size = 5000  # not a multiple of a block
    weights, gradient = (
        torch.from_numpy(rng.normal(size=size).astype(np.float32)).bfloat16() for _ in range(2)
    )
    found = []
    for dtype in (torch.bfloat16, torch.float32):
        scores = torch.from_numpy(np.random.default_rng(4).normal(size=size).astype(np.float32))
        velocity, masked = torch.zeros(size), torch.empty(size, dtype=dtype)
        border = kind(2500, size, by_magnitude=by_magnitude)
        border.mask(scores, weights.to(dtype), masked)
        for _ in range(3):
            sgd = (0.1, 0.9, 0.01)
            border.descend(scores, velocity, gradient.to(dtype), weights.to(dtype), masked, sgd)
        assert masked.dtype == dtype
        found.append((scores, velocity, masked.float()))
    for ours, theirs in zip(*found, strict=True):
        assert torch.equal(ours, theirs)


def test_a_step_is_that_of_a_module_in_bfloat16() -> None:
    """Against a plain module with the same rounded weights, whose gradients torch computes."""
    network = supernetwork(small_net(), seed=5)
    masked = MaskedNetwork(network, CPU, Precision.BFLOAT16)
    masked.begin(network.initial_scores)
    images = torch.from_numpy(np.random.default_rng(1).normal(size=(8, 1, 8, 8)).astype(np.float32))
    labels = torch.arange(8)
    logits = masked.forward(images)
    assert logits.dtype == torch.float32
    masked.backward(cross_entropy(logits, labels))
    plain = network.subnetwork(network.initial_ranking).bfloat16().requires_grad_(True)
    expected = plain(images.bfloat16()).float()
    torch.testing.assert_close(logits, expected, rtol=0.02, atol=0.02)
    cross_entropy(expected, labels).backward()
    for ours, theirs in zip(masked.parameters, plain.parameters(), strict=True):
        assert torch.equal(ours.data, theirs.data)
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=0.1, atol=0.02)
    assert masked.scores.dtype == masked.velocity.dtype == torch.float32


def test_small_steps_are_not_lost_to_rounding_where_weights_are_trained() -> None:
    """The optimizer moves floats of 32 bits, although a single step is below what bfloat16 resolves."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    method = FedAvg(model, HALF, seed=7)
    network = WeightNetwork(method.network, CPU, Precision.BFLOAT16)
    rng = np.random.default_rng(2)
    inputs, labels = rng.normal(size=(64, 6)).astype(np.float32), rng.integers(0, 3, 64)

    class Once:
        def __init__(self) -> None:
            self.labels = labels

        def batches(self, size: int, _rng: np.random.Generator) -> object:
            for begin in range(0, 64, size):
                yield inputs[begin : begin + size], labels[begin : begin + size]

    local = LocalTraining(epochs=1, learning_rate=1e-5, momentum=0.0, precision="bfloat16")  # type: ignore[arg-type]
    before = method.network.weights.copy()
    after = train_weights(network, before, Once(), rng, local).weights  # type: ignore[arg-type]
    trained = np.concatenate([p.detach().reshape(-1).numpy() for p in network.trained])
    assert np.isfinite(after).all()
    assert np.count_nonzero(after[: trained.size] != before[: trained.size]) > 0.9 * trained.size
    assert np.abs(after[: trained.size] - before[: trained.size]).max() < 1e-3
    assert network.module[1].weight.dtype == torch.float32
    assert network.module[0].weight.dtype == torch.bfloat16


@pytest.mark.parametrize(
    "kind",
    [
        FRL,
        pytest.param(FedAvg, marks=pytest.mark.slow),
        pytest.param(SignSGD, marks=pytest.mark.slow),
        pytest.param(TopK, marks=pytest.mark.slow),
    ],
)
def test_a_run_has_the_same_bytes_for_any_number_of_workers_and_other_bytes_than_in_32_bits(
    digits: Federation, kind: type, tmp_path: Path
) -> None:
    def end(workers: int, precision: str) -> bytes:
        rate = 0.4 if kind is FRL else 0.05
        local = LocalTraining(epochs=1, learning_rate=rate, precision=precision)  # type: ignore[arg-type]
        method = kind(supernetwork(small_net(), seed=11), local)
        if kind is FRL:
            method = FRL(method.network, local, vote="borda")
        *_, (state, _) = rounds_of(method, digits, Schedule(2, 6, 2), workers=workers)
        return b"".join(array.tobytes() for array in method.pack(state).values())

    assert end(1, "bfloat16") == end(2, "bfloat16") != end(1, "float32")


def test_a_run_in_bfloat16_learns(digits: Federation) -> None:
    local = LocalTraining(epochs=3, precision="bfloat16")  # type: ignore[arg-type]
    method = FRL(supernetwork(small_net(), seed=11), local, vote="borda")
    *_, (_, done) = rounds_of(method, digits, Schedule(6, 10, 6))
    assert done.evaluation is not None
    assert done.evaluation.test_accuracy > 0.6


def test_the_precision_is_part_of_a_run_and_the_default_changes_no_digest() -> None:
    plain, half = load_preset("digits"), load_preset("digits", ["local.precision=bfloat16"])
    assert plain.fingerprint() != half.fingerprint()
    assert plain.fingerprint() == load_preset("digits", ["local.precision=float32"]).fingerprint()


def test_a_kept_run_remembers_its_precision(digits: Federation, tmp_path: Path) -> None:
    net = supernetwork(nn.Sequential(nn.Flatten(), nn.Linear(64, 10, bias=False)), seed=1)
    settings = {"rounds": 1, "clients_per_round": 2, "workers": 1, "progress": False, "out": tmp_path / "run"}
    fedrank.train(FRL(net, HALF), digits, **settings)  # type: ignore[arg-type]
    assert fedrank.load(tmp_path / "run", net=net).method.local.precision is Precision.BFLOAT16  # type: ignore[attr-defined]
    with pytest.raises(fedrank.FedrankError, match="precision"):
        fedrank.train(FRL(net, LocalTraining(epochs=2, learning_rate=0.05)), digits, **settings)  # type: ignore[arg-type]


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown precision 'bfloat'; did you mean 'bfloat16'"):
        LocalTraining(precision="bfloat")  # type: ignore[arg-type]


def test_a_processor_without_bfloat16_is_warned_of(
    digits: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = FRL(supernetwork(small_net(), seed=11), HALF)
    monkeypatch.setattr(engine, "has_bfloat16", lambda: False)
    with pytest.warns(FedrankWarning, match="no instructions for bfloat16"):
        engine.local_engine(method, digits, workers=1)


def test_instruction_sets_are_those_that_torch_sees() -> None:
    if "avx2" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("not an x86 machine with AVX2")
    capability = torch.backends.cpu.get_cpu_capability()
    assert ("AVX-512" in instruction_sets()) == (capability == "AVX512")
    assert has_bfloat16() == any("BF16" in name for name in instruction_sets())
