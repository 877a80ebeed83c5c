"""What the figures of this package share: matplotlib when it is needed, its colours and frames."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_PALETTE = ("#d97706", "#2563eb", "#059669", "#9333ea", "#db2777", "#64748b")


def pyplot() -> ModuleType:
    """``matplotlib.pyplot``.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install matplotlib") from error
    return plt


def panels(count: int, width: float, height: float, **options: Any) -> tuple[Figure, np.ndarray]:  # noqa: ANN401
    """A figure of so many axes side by side; sizes in inches, options of ``subplots``."""
    figure, axes = pyplot().subplots(
        1, count, figsize=(width, height), layout="constrained", squeeze=False, **options
    )
    return figure, axes[0]


def without_frame(ax: Axes) -> Axes:
    """Takes away the lines at the top and on the right."""
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def colours(count: int, grey_first: bool = False) -> list[str]:
    """Colours that are told apart, repeated where there are not enough; the first one dark grey on demand."""
    chosen = [_PALETTE[number % len(_PALETTE)] for number in range(count)]
    return ["#333333", *chosen[: count - 1]] if grey_first else chosen


def line_styles(count: int) -> list[dict[str, str]]:
    """Styles of lines with points that are told apart: first by colour, then by dashes and points."""
    kinds = (("-", "o"), ("-.", "s"), (":", "^"), ("-", "D"), ("-.", "v"), (":", "P"))
    chosen = [kinds[number // len(_PALETTE) % len(kinds)] for number in range(count)]
    return [
        {"color": colour, "linestyle": line, "marker": marker}
        for colour, (line, marker) in zip(colours(count), chosen, strict=True)
    ]


def axes(width: float, height: float) -> Axes:
    """New axes of so many inches, without a frame."""
    return without_frame(panels(1, width, height)[1][0])


def plain_logarithms(axis: Axis) -> None:
    """Ticks at 1, 2 and 5 of an axis, as plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axis.set_minor_formatter(NullFormatter())
    axis.set_tick_params(labelsize="small")


def snippet(text: str, width: int = 60) -> str:
    """The text on one line, cut if it is long, as matplotlib takes it literally."""
    words = " ".join(text.split())
    return (words if len(words) <= width else words[: width - 1] + "\N{HORIZONTAL ELLIPSIS}").replace("$", r"\$")
