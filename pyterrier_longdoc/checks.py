"""Numbers that users give, NumPy's (of a grid of settings, say) as good as Python's."""

from __future__ import annotations

import math
import numbers
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np


def check_whole(name: str, value: int, least: int = 1, instead: str = "") -> None:
    """Checks a number of things.

    Args:
        name: Name of the parameter.
        value: What was given.
        least: Lowest number.
        instead: What may be given in place of a number, for the message.

    Raises:
        ValueError: If it is no whole number, or under ``least``.
    """
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}{instead}, got {value!r}")


def check_number(name: str, value: float, least: float = 0.0) -> None:
    """Checks a number that is finite, and at least ``least``; arguments as in :func:`check_whole`.

    Raises:
        ValueError: If it is not.
    """
    real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not real or not math.isfinite(value) or value < least:
        lowest = "" if least == -math.inf else f" of at least {least:g}"
        raise ValueError(f"{name} must be a finite number{lowest}, got {value!r}")


def plain(value: Any) -> Any:  # noqa: ANN401
    """A number or array of NumPy, or what holds some, in types that JSON and all libraries know."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return tuple(map(plain, value)) if value.ndim else value.item()
    if type(value) in (list, tuple):
        return type(value)(plain(each) for each in value)
    return {name: plain(each) for name, each in value.items()} if type(value) is dict else value


@dataclass(frozen=True)
class PlainSettings:
    """Base of settings: they hold plain values, so that equal ones make equal models, hashes and files."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():  # JSON gives back a list where a tuple was
            object.__setattr__(self, name, plain(tuple(value) if isinstance(value, list) else value))

    def to_dict(self) -> dict[str, Any]:
        """The settings as JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> Self:
        """Settings that :meth:`to_dict` wrote."""
        return cls(**settings)
