"""Pictures of how rankers do: by the length of documents, by what they read, by cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from pyterrier_longdoc.evaluation.analysis import length_bias, require
from pyterrier_longdoc.plots.figures import axes, colours, line_styles, plain_logarithms

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation

#: Lines of which the legend has room between them; that of more stands beside.
_LEGEND_WITHIN = 6


def plot_length_bias(
    runs: Mapping[str, pd.DataFrame],
    qrels: pd.DataFrame,
    lengths: Mapping[str, int] | pd.Series | pd.DataFrame,
    *,
    k: int = 30,
    bins: int = 10,
    min_label: int = 1,
    text_field: str = "text",
    ax: Axes | None = None,
) -> Axes:
    """Draws Figure 1 of the TKL paper; arguments as in :func:`length_bias`, and ``ax``, a new figure if ``None``."""
    table = length_bias(runs, qrels, lengths, k=k, bins=bins, min_label=min_label, text_field=text_field)
    ax = ax or axes(6, 4)
    for (name, rows), colour in zip(table.groupby("series", sort=False), colours(len(runs) + 1, True), strict=True):
        relevant = name == "relevant"
        ax.plot(
            rows["median_length"].clip(lower=1), rows["probability"], marker="o", markersize=3.5, color=colour,
            linestyle="--" if relevant else "-", label="relevant" if relevant else f"{name}, top {k}",
        )
    ax.set(xscale="log", xlabel="document length (median of the bin)", ylabel="probability of the bin")
    plain_logarithms(ax.xaxis)
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False, fontsize="small")
    return ax


def plot_length_limits(table: pd.DataFrame, measure: str = "nDCG@10", *, ax: Axes | None = None) -> Axes:
    """Draws Figure 2 of the TKL paper: effectiveness by how much of each document is read.

    Args:
        table: What :func:`~pyterrier_longdoc.evaluation.analysis.length_limits` returns.
        measure: Its measure.
        ax: Where to draw; a new figure if ``None``. The legend of more than 6 lines stands beside it.

    Raises:
        ValueError: If a column is missing.
    """
    ax = _lines(table, "limit", measure, ax)
    ax.set(xscale="log", xlabel="tokens of a document that are read", ylabel=measure)
    plain_logarithms(ax.xaxis)
    return ax


def plot_by_position(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draws the far-relevance probe: how well rankers find a passage that stands ever later.

    Args:
        table: What :func:`~pyterrier_longdoc.evaluation.probe.by_position` returns; ``"chance"`` becomes a dashed line.
        ax: Where to draw; a new figure if ``None``.

    Raises:
        ValueError: If a column is missing.
    """
    ax = _lines(table, "before", "RR", ax)
    ax.set(xlabel="words before the relevant passage", ylabel="mean reciprocal rank", ylim=(0, 1.02))
    return ax


def _lines(table: pd.DataFrame, across: str, up: str, ax: Axes | None) -> Axes:
    """One line for each name; a dashed one for chance."""
    require(table, [across, "name", up], "table")
    ax = ax or axes(6, 4)
    groups = list(table.groupby("name", sort=False))
    styles = iter(line_styles(len(groups)))
    for name, rows in groups:
        style = {"color": "#333333", "linestyle": "--"} if name == "chance" else next(styles)
        ax.plot(rows[across], rows[up], markersize=3.5, label=name, **style)
    beside = {"loc": "center left", "bbox_to_anchor": (1, 0.5)} if len(groups) > _LEGEND_WITHIN else {}
    ax.legend(frameon=False, fontsize="small", **beside)
    return ax


def plot_cost(
    table: pd.DataFrame, measure: str = "nDCG@10", cost: str = "GFLOP/doc", *, ax: Axes | None = None
) -> Axes:
    """Draws effectiveness against cost, one point a ranker; up and to the left is better.

    Args:
        table: Columns ``name``, the measure and the cost, such as a table of ``pt.Experiment`` merged with one of
            :func:`~pyterrier_longdoc.evaluation.comparison.costs`; rows without a cost (a first stage) become a
            dashed line.
        measure: Column on the vertical axis.
        cost: Column on the horizontal axis, which is logarithmic.
        ax: Where to draw; a new figure if ``None``.

    Raises:
        ValueError: If a column is missing or no row has a cost.
    """
    require(table, ["name", measure, cost], "table")
    known = table[table[cost].notna()]
    if not len(known):
        raise ValueError(f"no row of the table has a cost in {cost!r}")
    ax = ax or axes(7, 4.2)
    ax.scatter(known[cost], known[measure], s=28, color=colours(2)[1], zorder=2)
    labels = [
        ax.annotate(name, (price, value), xytext=(4, 4), textcoords="offset points", fontsize="small")
        for name, value, price in known[["name", measure, cost]].itertuples(index=False)
    ]
    for name, value in table.loc[table[cost].isna(), ["name", measure]].itertuples(index=False):
        ax.axhline(value, color="#333333", linestyle="--", linewidth=1, zorder=1, label=name)
    if len(known) < len(table):
        ax.legend(frameon=False, fontsize="small")
    ax.set(xscale="log", xlabel=cost, ylabel=measure)
    ax.margins(x=0.12, y=0.12)
    _lift(labels, ax)
    return ax


def _lift(labels: Sequence[Annotation], ax: Axes) -> None:
    """Lifts the labels of points, from the lowest upwards, until none lies on another."""
    ax.figure.canvas.figure.draw_without_rendering()  # only now is known where they are
    placed = []
    for label in sorted(labels, key=lambda label: label.xy[1]):
        if not ax.bbox.contains(*ax.transData.transform(label.xy)):
            continue  # nothing is drawn of it
        for _ in range(int(ax.bbox.height)):
            if not any(label.get_window_extent().overlaps(other) for other in placed):
                break
            right, up = label.get_position()
            label.set_position((right, up + 1))
        placed.append(label.get_window_extent())
