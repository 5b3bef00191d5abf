"""Initial weights and scores, derived from raw bits of the seed alone.

Uses only integer operations and the exactly rounded operations of IEEE 754 (+ - * / sqrt), so the
same 32-bit seed gives a bit-identical supernetwork on every machine, device and version.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedrank.randomness import Purpose, raw_words
from fedrank.rank import Layer, Layout

FloatArray = NDArray[np.float32]


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return fan_in and fan_out: the edges into one output and out of one input."""
    receptive_field = math.prod(shape[2:])
    return shape[1] * receptive_field, shape[0] * receptive_field


def signed_kaiming_constant(layer: Layer, words: NDArray[np.uint32]) -> FloatArray:
    """Return ±sqrt(2 / fan_in) with random signs (Ramanujan et al., 2020)."""
    sigma = np.float32(math.sqrt(2 / fans(layer.shape)[0]))
    return np.where(words >> np.uint32(31), -sigma, sigma)


def kaiming_normal(layer: Layer, words: NDArray[np.uint32]) -> FloatArray:
    """Return normal weights with standard deviation sqrt(2 / fan_in) (He et al., 2015)."""
    return standard_normal(words) * np.float32(math.sqrt(2 / fans(layer.shape)[0]))


def glorot_normal(layer: Layer, words: NDArray[np.uint32]) -> FloatArray:
    """Return normal weights with deviation sqrt(2 / (fan_in + fan_out)) (Glorot and Bengio, 2010)."""
    return standard_normal(words) * np.float32(math.sqrt(2 / sum(fans(layer.shape))))


def kaiming_uniform(layer: Layer, words: NDArray[np.uint32]) -> FloatArray:
    """Return values uniform in ±1 / sqrt(fan_in) (He et al., 2015, with torch's default slope)."""
    bound = np.float32(1 / math.sqrt(fans(layer.shape)[0]))
    centered = (words >> np.uint32(8)).astype(np.float32) * np.float32(2**-23) - np.float32(1)
    return centered * bound


WEIGHT_INITIALIZERS: dict[str, Callable[[Layer, NDArray[np.uint32]], FloatArray]] = {
    "signed-kaiming-constant": signed_kaiming_constant,
    "kaiming-normal": kaiming_normal,
    "glorot-normal": glorot_normal,
    "kaiming-uniform": kaiming_uniform,
}


def initial_weights(layout: Layout, seed: int, initializer: str) -> FloatArray:
    """Return the frozen random weights of all layers."""
    draw = WEIGHT_INITIALIZERS[initializer]
    return _draw(layout, seed, Purpose.WEIGHTS, draw)


def initial_scores(layout: Layout, seed: int) -> FloatArray:
    """Return the random scores that all clients start from."""
    return _draw(layout, seed, Purpose.SCORES, kaiming_uniform)


def _draw(
    layout: Layout,
    seed: int,
    purpose: Purpose,
    draw: Callable[[Layer, NDArray[np.uint32]], FloatArray],
) -> FloatArray:
    values = np.empty(layout.size, np.float32)
    for number, layer in enumerate(layout):
        values[layer.edges] = draw(layer, raw_words(seed, purpose, number, layer.size))
    return values


# Wichura (1988), Algorithm AS 241, PPND7: the normal quantile to about 7 digits.
_CENTER = (
    (59.109374720, 159.29113202, 50.434271938, 3.3871327179),
    (67.187563600, 78.757757664, 17.895169469, 1.0),
)
_TAIL = (
    (0.17023821103, 1.3067284816, 2.7568153900, 1.4234372777),
    (0.12021132975, 0.73700164250, 1.0),
)
_FAR_TAIL = (
    (0.017337203997, 0.42868294337, 3.0812263860, 6.6579051150),
    (0.012258202635, 0.24197894225, 1.0),
)


def standard_normal(words: NDArray[np.uint32]) -> FloatArray:
    """Convert raw words to standard normal numbers through the quantile function."""
    uniform = (words.astype(np.float64) + 0.5) * 2.0**-32
    q = uniform - 0.5
    r = 0.180625 - q * q
    normal = q * _ratio(_CENTER, r)
    outer = np.abs(q) > 0.425
    tail = np.minimum(uniform[outer], 1.0 - uniform[outer])
    r = np.sqrt(-_portable_log(tail))
    magnitude = np.where(r <= 5.0, _ratio(_TAIL, r - 1.6), _ratio(_FAR_TAIL, r - 5.0))
    normal[outer] = np.copysign(magnitude, q[outer])
    return normal.astype(np.float32)


def _ratio(
    coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: NDArray[np.float64]
) -> NDArray[np.float64]:
    numerator, denominator = (_horner(row, x) for row in coefficients)
    return numerator / denominator


def _horner(coefficients: tuple[float, ...], x: NDArray[np.float64]) -> NDArray[np.float64]:
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total


def _portable_log(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the natural logarithm by the artanh series: libraries' logarithms differ in the last bit."""
    mantissa, exponent = np.frexp(x)
    z = (mantissa - 1.0) / (mantissa + 1.0)
    odd_series = tuple(1.0 / k for k in range(31, 0, -2))
    return exponent * 0.6931471805599453 + 2.0 * z * _horner(odd_series, z * z)
