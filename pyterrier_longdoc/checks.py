"""Checks of numbers that users give."""

from __future__ import annotations

import numbers


def check_whole(name: str, value: int, least: int = 1, instead: str = "") -> None:
    """Checks a number of things; NumPy's whole numbers are as good as Python's.

    Args:
        name: Name of the parameter.
        value: What was given.
        least: The lowest number that makes sense.
        instead: What else may be given, for the message.

    Raises:
        ValueError: If it is no whole number, or too low.
    """
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}{instead}, got {value!r}")
