import numpy as np
import pytest

from fedrank.arguments import check_number, shown, whole_number
from fedrank.errors import ConfigError


def test_numbers_of_numpy_are_numbers() -> None:
    number = whole_number("epochs", np.int64(3))
    assert (number, type(number)) == (3, int)
    check_number("rate", np.float32(0.5), above=0, below=1)


@pytest.mark.parametrize("value", [True, 2.0, "2", None, np.float64(2), [2]])
def test_nothing_else_is_a_whole_number(value: object) -> None:
    with pytest.raises(ConfigError, match="n must be a whole number, got"):
        whole_number("n", value)


@pytest.mark.parametrize("value", [0, 1.5, float("nan"), float("inf")])
def test_a_number_has_bounds(value: float) -> None:
    with pytest.raises(ConfigError, match="rate must be more than 0 and at most 1, got"):
        check_number("rate", value, above=0, most=1)


def test_long_values_are_named_by_their_type() -> None:
    assert shown(object()) == "an object"
    assert shown("x" * 100) == "a str"
    assert shown({"epochs": 2}) == "{'epochs': 2}"
