"""Numbers that users give."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

from pyterrier_longdoc.checks import PlainSettings, check_number, check_whole, plain


@pytest.mark.parametrize("value", [1, 7, np.int64(3)])
def test_whole_numbers(value):
    check_whole("k", value)


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "3", None, np.float32(2)])
def test_others(value):
    with pytest.raises(ValueError, match="^k must be a whole number of at least 1, or None, got "):
        check_whole("k", value, instead=", or None")


def test_the_lowest():
    check_whole("k", 0, least=0)
    with pytest.raises(ValueError, match="at least 4, got 3"):
        check_whole("k", 3, least=4)


@pytest.mark.parametrize("value", [0, 2.5, np.float32(0.1), np.int64(3)])
def test_numbers(value):
    check_number("lr", value)


@pytest.mark.parametrize("value", [-1, True, "1", None, np.nan, np.inf, 1j])
def test_no_numbers(value):
    with pytest.raises(ValueError, match="^lr must be a finite number of at least 0, got "):
        check_number("lr", value)


def test_plain_values():
    given = {"a": np.int64(3), "b": [np.float32(0.5), (np.bool_(True),)], "c": np.array([1.0, 2.0]), "d": "x"}
    found = plain(given)
    assert found == {"a": 3, "b": [0.5, (True,)], "c": (1.0, 2.0), "d": "x"}
    assert plain(np.array(0.5)) == 0.5
    assert plain(np.array([[1, 2], [3, 4]])) == ((1, 2), (3, 4))
    assert type(found["a"]) is int and type(found["b"][0]) is float and found["b"][1][0] is True


@dataclass(frozen=True)
class Sizes(PlainSettings):
    width: int = 3
    centres: tuple[float, ...] = (1.0,)


def test_settings_are_plain_however_they_are_given():
    sizes = Sizes(np.int64(4), np.array([0.5, 1.0]))
    assert repr(sizes) == repr(Sizes(4, (0.5, 1.0)))
    assert json.loads(json.dumps(sizes.to_dict())) == {"width": 4, "centres": [0.5, 1.0]}
