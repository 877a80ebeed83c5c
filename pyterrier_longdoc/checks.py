"""Numbers that users give, NumPy's (of a grid of settings, say) as good as Python's."""

from __future__ import annotations

import numbers
from dataclasses import asdict
from typing import Any

import numpy as np


def check_whole(name: str, value: int, least: int = 1, instead: str = "") -> None:
    """Checks a number of things.

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


def plain(value: Any) -> Any:  # noqa: ANN401
    """A NumPy number as Python's, which JSON knows; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def json_settings(settings: Any) -> dict[str, Any]:  # noqa: ANN401
    """The fields of a dataclass as JSON types."""
    return {name: plain(value) for name, value in asdict(settings).items()}
