"""Numbers that users give."""

import numpy as np
import pytest

from pyterrier_longdoc.checks import check_whole


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
