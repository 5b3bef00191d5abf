import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedrank.nn import kernels
from fedrank.nn.threshold import SMALL_LAYER, DeviceThreshold, Threshold

FEW_VALUES = st.sampled_from([-1.0, -0.5, -0.0, 0.0, 0.25, 0.25, 1.0])


def oracle_mask(importance: np.ndarray, zeros: int) -> list[float]:
    """The mask by a stable sort in plain Python."""
    kept = [1.0] * importance.size
    for edge in sorted(range(importance.size), key=lambda edge: (importance[edge], edge))[:zeros]:
        kept[edge] = 0.0
    return kept


def mask(border: Threshold | DeviceThreshold, scores: np.ndarray) -> np.ndarray:
    out = torch.empty(scores.size)
    border.mask(torch.from_numpy(scores), torch.ones(scores.size), out=out)
    return out.numpy()


@pytest.mark.parametrize("kind", [Threshold, DeviceThreshold])
@given(
    scores=hnp.arrays(np.float32, st.integers(1, 40), elements=FEW_VALUES),
    keep=st.sampled_from([0.1, 0.3, 0.5, 0.9]),
    by_magnitude=st.booleans(),
)
def test_a_mask_has_exactly_the_right_ones_and_breaks_ties_by_number(
    kind: type[Threshold | DeviceThreshold], scores: np.ndarray, keep: float, by_magnitude: bool
) -> None:
    zeros = int((1 - keep) * scores.size)
    border = kind(zeros, scores.size, by_magnitude=by_magnitude)
    importance = np.abs(scores) if by_magnitude else scores
    assert mask(border, scores).tolist() == oracle_mask(importance, zeros)


@given(
    st.integers(0, 2**32),
    st.sampled_from([1e-6, 1e-4, 1e-2, 1.0]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.1, 0.5, 0.9]),
)
def test_a_remembered_border_is_exact_however_far_it_moves(
    seed: int, step: float, ties: bool, by_magnitude: bool, keep: float
) -> None:
    rng = np.random.default_rng(seed)
    size = SMALL_LAYER + int(rng.integers(200))
    zeros = int((1 - keep) * size)
    border = Threshold(zeros, size, by_magnitude=by_magnitude)
    scores = torch.from_numpy(rng.normal(size=size).astype(np.float32))
    weights = torch.from_numpy(rng.normal(size=size).astype(np.float32))
    masked = torch.full((size,), torch.nan)
    border.mask(scores, weights, masked)
    for _ in range(4):
        velocity = torch.from_numpy(rng.normal(size=size).astype(np.float32))
        if ties:
            scores.mul_(10).round_().div_(10)
            velocity.zero_()
        border.descend(scores, velocity, torch.zeros(size), weights, masked, (step, 1.0, 0.0))
        importance = scores.abs() if by_magnitude else scores
        expected = weights.clone()
        expected[np.argsort(importance.numpy(), kind="stable")[:zeros]] = 0
        assert torch.equal(masked, expected)


def test_a_client_that_begins_finds_the_border_where_the_last_one_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Looking everywhere costs as much as several steps, so it happens once and not for every client."""
    rng = np.random.default_rng(2)
    scores = rng.normal(size=SMALL_LAYER).astype(np.float32)
    border = Threshold(SMALL_LAYER // 2, SMALL_LAYER)
    first = mask(border, scores)
    zeros = torch.zeros(SMALL_LAYER)
    border.descend(torch.tensor(scores), zeros + 1, zeros, zeros, zeros.clone(), (0.5, 1.0, 0.0))
    monkeypatch.setattr(border, "_look_everywhere", lambda scores: pytest.fail("looked everywhere again"))
    order = rng.permutation(SMALL_LAYER)
    assert np.array_equal(mask(border, scores[order]), first[order])


@given(hnp.arrays(np.float32, st.integers(1, 500), elements=st.floats(-2, 2, width=32)), st.integers(0, 400))
def test_a_band_holds_what_lies_in_it(scores: np.ndarray, room: int) -> None:
    low, high = np.float32(-0.5), np.float32(0.75)
    band = np.full(room + kernels.BLOCK, -1)
    ends = (low, np.float32(0), high)
    below, inside = kernels.mask(scores, scores, np.float32(1), ends, np.empty_like(scores), band)
    expected = [edge for edge, score in enumerate(scores.tolist()) if low <= score <= high]
    assert below == sum(score < low for score in scores.tolist())
    assert inside == len(expected)
    if inside <= room:
        assert band[:inside].tolist() == expected


@pytest.mark.parametrize("by_magnitude", [False, True])
@pytest.mark.parametrize("kind", [Threshold, DeviceThreshold])
def test_descending_is_sgd_with_momentum_and_decay(
    kind: type[Threshold | DeviceThreshold], by_magnitude: bool
) -> None:
    rng = np.random.default_rng(1)
    scores, weights = (torch.from_numpy(rng.normal(size=1000).astype(np.float32)) for _ in range(2))
    scores[:3] = torch.tensor([0.0, -0.0, 1e-30])
    border = kind(500, 1000, by_magnitude=by_magnitude)
    ours, velocity, masked = scores.clone(), torch.zeros(1000), torch.empty(1000)
    theirs = scores.clone().requires_grad_(True)
    optimizer = torch.optim.SGD([theirs], lr=0.1, momentum=0.9, weight_decay=0.01)
    border.mask(ours, weights, masked)
    for _ in range(3):
        gradient = torch.from_numpy(rng.normal(size=1000).astype(np.float32))
        border.descend(ours, velocity, gradient, weights, masked, (0.1, 0.9, 0.01))
        optimizer.zero_grad()
        importance = theirs.abs() if by_magnitude else theirs
        (importance * gradient * weights).sum().backward()
        optimizer.step()
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-6)
