import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedrank.nn.border import SMALL_LAYER, Border
from fedrank.nn.kernels import descend, gather_band

FEW_VALUES = st.sampled_from([-1.0, -0.5, -0.0, 0.0, 0.25, 0.25, 1.0])


def oracle_mask(importance: np.ndarray, zeros: int) -> list[float]:
    """The mask by a stable sort in plain Python."""
    kept = [1.0] * importance.size
    for edge in sorted(range(importance.size), key=lambda edge: (importance[edge], edge))[:zeros]:
        kept[edge] = 0.0
    return kept


def mask(border: Border, importance: np.ndarray) -> np.ndarray:
    out = torch.empty(importance.size)
    border.mask(torch.from_numpy(importance), torch.ones(importance.size), out=out)
    return out.numpy()


@given(hnp.arrays(np.float32, st.integers(1, 40), elements=FEW_VALUES), st.sampled_from([0.1, 0.3, 0.5, 0.9]))
def test_a_mask_has_exactly_the_right_ones_and_breaks_ties_by_number(
    importance: np.ndarray, keep: float
) -> None:
    zeros = int((1 - keep) * importance.size)
    assert mask(Border(zeros, importance.size), importance).tolist() == oracle_mask(importance, zeros)


@given(
    st.integers(0, 2**32),
    st.sampled_from([1e-6, 1e-4, 1e-2, 1.0]),
    st.booleans(),
    st.sampled_from([0.1, 0.5, 0.9]),
)
def test_a_remembered_border_is_exact_however_far_it_moves(
    seed: int, step: float, ties: bool, keep: float
) -> None:
    rng = np.random.default_rng(seed)
    size = SMALL_LAYER + int(rng.integers(200))
    zeros = int((1 - keep) * size)
    border = Border(zeros, size)
    values = rng.normal(size=size).astype(np.float32)
    for _ in range(4):
        values += (step * rng.normal(size=size)).astype(np.float32)
        importance = np.round(values, 1) if ties else values
        order = np.argsort(importance, kind="stable")
        expected = np.ones(size)
        expected[order[:zeros]] = 0
        assert np.array_equal(mask(border, importance), expected)


@given(hnp.arrays(np.float32, st.integers(1, 300), elements=st.floats(-2, 2, width=32)), st.integers(0, 400))
def test_a_band_holds_what_lies_in_it(values: np.ndarray, room: int) -> None:
    low, high = np.float32(-0.5), np.float32(0.75)
    band = np.empty(room, np.float32)
    below, inside = gather_band(values, low, high, band)
    expected = [value for value in values.tolist() if low <= value <= high]
    assert below == sum(value < low for value in values.tolist())
    assert inside == len(expected)
    assert band[: min(inside, room)].tolist() == expected[:room]


def test_descending_is_sgd_with_momentum_and_decay() -> None:
    rng = np.random.default_rng(1)
    scores, weights = (rng.normal(size=1000).astype(np.float32) for _ in range(2))
    gradients = [rng.normal(size=1000).astype(np.float32) for _ in range(3)]
    ours, velocity = scores.copy(), np.zeros_like(scores)
    theirs = torch.tensor(scores, requires_grad=True)
    optimiser = torch.optim.SGD([theirs], lr=0.1, momentum=0.9, weight_decay=0.01)
    for gradient in gradients:
        descend(ours, velocity, gradient, weights, np.float32(0.1), np.float32(0.9), np.float32(0.01))
        theirs.grad = torch.tensor(gradient * weights)
        optimiser.step()
    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-5, atol=1e-6)
