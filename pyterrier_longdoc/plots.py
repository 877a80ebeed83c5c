"""Pictures of where rankers look: the topography of one document, and two figures of the TKL paper over whole runs.

All return matplotlib axes, or a figure of several, and show nothing themselves; notebooks do at the end of a cell. They
need matplotlib, the extra ``plot``; the numbers of the figures, in :mod:`pyterrier_longdoc.analysis`, do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pyterrier_longdoc.analysis import length_bias, region_positions, require, share_after
from pyterrier_longdoc.figures import colours, panels, pyplot, without_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    from pyterrier_longdoc.explain import Explanation
    from pyterrier_longdoc.levels import Comparison
    from pyterrier_longdoc.tkl import TKL

_DEEP = 500
_ORDINALS = ("1st", "2nd", "3rd")


def plot_topography(ranker: TKL, query: str, text: str, *, ax: Axes | None = None) -> Axes:
    """Draws TKL's relevance topography over a document, with the regions that made its score.

    Args:
        ranker: A TKL ranker.
        query: The query's text.
        text: The document's text.
        ax: Where to draw; a new figure if ``None``.

    Returns:
        The axes: position in the document (tokens) against the score of the region that begins there.

    Raises:
        TypeError: If the ranker has no topography.
        ValueError: If the document has no tokens.
    """
    if not hasattr(ranker, "topography"):
        raise TypeError(f"{ranker} has no topography of relevance; only TKL has one")
    topography = ranker.topography(query, text)
    if not len(topography):
        raise ValueError("the document has no tokens, so there is no topography to draw")
    pair = pd.DataFrame([{"qid": "q", "query": query, "docno": "d", ranker.text_field: text}])
    regions = ranker.explain(pair).frame
    ax = ax or _axes(9, 3.4)
    ax.plot(topography["start_token"], topography["score"], color="#555555", linewidth=1)
    floor = topography["score"].min()
    ax.fill_between(topography["start_token"], floor, topography["score"], color="#999999", alpha=0.25, linewidth=0)
    for (number, weight, tokens, words), colour in zip(
        regions[["window", "weight", "tokens", "text"]].itertuples(index=False), colours(len(regions)), strict=True
    ):
        first, end = tokens[0]
        label = f"{_ordinal(number)} ({weight:.4g}) {_snippet(words)}"
        ax.axvspan(first, end, color=colour, alpha=0.45, linewidth=0, label=label)
    ax.set(xlabel="position in the document (tokens)", ylabel="relevance of the region", title=_snippet(query, 80))
    ax.margins(x=0.01)
    ax.legend(title="regions picked", fontsize="small", loc="upper left", bbox_to_anchor=(0, -0.2), frameon=False)
    return ax


def plot_region_positions(
    explanation: Explanation | pd.DataFrame, *, bins_per_doubling: int = 2, ax: Axes | None = None
) -> Axes:
    """Draws Figure 3 of the TKL paper: where the regions of a run lie, on logarithmic scales.

    The legend tells how many begin after the 500th token, which a model of the documents' heads never sees.

    Args:
        explanation: Of a whole run, or its frame.
        bins_per_doubling: See :func:`region_positions`.
        ax: Where to draw; a new figure if ``None``.

    Raises:
        ValueError: If there are no windows.
    """
    table = region_positions(explanation, bins_per_doubling=bins_per_doubling)
    if not len(table):
        raise ValueError("there are no windows to draw; explain documents that are not empty")
    deep = share_after(explanation, _DEEP)
    ax = ax or _axes(6, 4)
    for (window, rows), colour in zip(table.groupby("window"), colours(table["window"].nunique()), strict=True):
        rows = rows[rows["regions"] > 0]
        label = f"{_ordinal(window)} region ({deep[window]:.1%} after token {_DEEP})"
        middle = np.sqrt(rows["first"] * rows["end"])
        ax.plot(middle, rows["density"], marker="o", markersize=3, color=colour, label=label)
    ax.set(xscale="log", yscale="log", xlabel="position in the document (tokens)", ylabel="share of regions per token")
    _logarithmic(ax.xaxis)
    ax.legend(frameon=False, fontsize="small")
    return ax


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
    ax = ax or _axes(6, 4)
    for (name, rows), colour in zip(table.groupby("series", sort=False), colours(len(runs) + 1, True), strict=True):
        relevant = name == "relevant"
        ax.plot(
            rows["median_length"].clip(lower=1), rows["probability"], marker="o", markersize=3.5, color=colour,
            linestyle="--" if relevant else "-", label="relevant" if relevant else f"{name}, top {k}",
        )
    ax.set(xscale="log", xlabel="document length (median of the bin)", ylabel="probability of the bin")
    _logarithmic(ax.xaxis)
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False, fontsize="small")
    return ax


def plot_comparison(
    comparison: Comparison, levels: Sequence[str] = ("document", "section", "chunk", "attention")
) -> Figure:
    """Draws Figure 4 of the CoLDE paper: heat maps of how alike documents, sections and chunks are.

    Args:
        comparison: The documents.
        levels: The maps, from left to right; ``"attention"``, how much chunks look at each other, is left out for
            rankers that have none.

    Raises:
        ValueError: If there is no such level.
    """
    shown = [level for level in levels if level != "attention" or comparison.attention is not None]
    tables = [comparison.matrix(level) for level in shown]
    sizes = [max(2.2, min(7.0, 0.9 + 0.42 * len(table))) for table in tables]
    figure = pyplot().figure(figsize=(sum(sizes) + 1.1 * len(sizes), max(sizes) + 0.7), layout="constrained")
    axes = figure.subplots(1, len(shown), width_ratios=sizes, squeeze=False)[0]
    for ax, level, table in zip(axes, shown, tables, strict=True):
        _heat_map(ax, table, level)
    return figure


def _heat_map(ax: Axes, table: pd.DataFrame, level: str) -> None:
    values = table.to_numpy()
    image = ax.imshow(values, cmap="Oranges")
    places = range(len(table))
    labels = [_part_label(label) for label in table.index]
    ax.set_xticks(places, labels, rotation=90, fontsize="small")
    ax.set_yticks(places, labels, fontsize="small")
    ax.set_title("attention of chunks" if level == "attention" else f"{level}s", fontsize="medium")
    owners = [label.rsplit(" §", 1)[0] for label in table.index]
    for place in places[1:]:
        if level != "document" and owners[place] != owners[place - 1]:
            ax.axhline(place - 0.5, color="#333333", linewidth=0.8)
            ax.axvline(place - 0.5, color="#333333", linewidth=0.8)
    dark = values.min() + 0.6 * (values.max() - values.min())
    if len(table) <= 12:
        for row, column in np.ndindex(values.shape):
            colour = "white" if values[row, column] > dark else "black"
            text = f"{values[row, column]:.2f}"
            ax.text(column, row, text, ha="center", va="center", fontsize="x-small", color=colour)
    ax.figure.colorbar(image, ax=ax, shrink=0.6)


def _part_label(label: str) -> str:
    """A label whose document's name is cut if it is long, but never the numbers of its section and chunk."""
    name, section, numbers = label.rpartition(" §")
    return _snippet(name if section else label, 20) + section + (numbers if section else "")


def plot_cost(
    table: pd.DataFrame, measure: str = "nDCG@10", cost: str = "GFLOP/doc", *, ax: Axes | None = None
) -> Axes:
    """Draws effectiveness against cost, one point a ranker; up and to the left is better.

    Args:
        table: Columns ``name``, the measure and the cost, such as a table of ``pt.Experiment`` merged with one of
            :func:`~pyterrier_longdoc.comparison.costs`; rows without a cost (a first stage) become a dashed line.
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
    ax = ax or _axes(7, 4.2)
    ax.scatter(known[cost], known[measure], s=28, color=colours(2)[1], zorder=2)
    for name, value, price in known[["name", measure, cost]].itertuples(index=False):
        ax.annotate(name, (price, value), xytext=(4, 4), textcoords="offset points", fontsize="small")
    for name, value in table.loc[table[cost].isna(), ["name", measure]].itertuples(index=False):
        ax.axhline(value, color="#333333", linestyle="--", linewidth=1, zorder=1, label=name)
    if len(known) < len(table):
        ax.legend(frameon=False, fontsize="small")
    ax.set(xscale="log", xlabel=cost, ylabel=measure)
    ax.margins(x=0.12, y=0.12)
    return ax


def plot_by_position(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draws the far-relevance probe: how well rankers find a passage that stands ever later.

    Args:
        table: What :func:`~pyterrier_longdoc.probe.by_position` returns; ``"chance"`` becomes a dashed line.
        ax: Where to draw; a new figure if ``None``.

    Raises:
        ValueError: If a column is missing.
    """
    ax = _lines(table, "before", "RR", ax)
    ax.set(xlabel="words before the relevant passage", ylabel="mean reciprocal rank", ylim=(0, 1.02))
    return ax


def plot_length_limits(table: pd.DataFrame, measure: str = "nDCG@10", *, ax: Axes | None = None) -> Axes:
    """Draws Figure 2 of the TKL paper: effectiveness by how much of each document is read.

    Args:
        table: What :func:`~pyterrier_longdoc.analysis.length_limits` returns.
        measure: Its measure.
        ax: Where to draw; a new figure if ``None``.

    Raises:
        ValueError: If a column is missing.
    """
    ax = _lines(table, "limit", measure, ax)
    ax.set(xscale="log", xlabel="tokens of a document that are read", ylabel=measure)
    _logarithmic(ax.xaxis)
    return ax


def _lines(table: pd.DataFrame, across: str, up: str, ax: Axes | None) -> Axes:
    """One line for each name; a dashed one for chance."""
    require(table, [across, "name", up], "table")
    ax = ax or _axes(6, 4)
    groups = list(table.groupby("name", sort=False))
    for (name, rows), colour in zip(groups, colours(len(groups)), strict=True):
        style = {"color": "#333333", "linestyle": "--"} if name == "chance" else {"color": colour, "marker": "o"}
        ax.plot(rows[across], rows[up], markersize=3.5, label=name, **style)
    ax.legend(frameon=False, fontsize="small")
    return ax


def _ordinal(number: int) -> str:
    return _ORDINALS[number] if number < len(_ORDINALS) else f"{number + 1}th"


def _snippet(text: str, width: int = 60) -> str:
    words = " ".join(text.split())
    return (words if len(words) <= width else words[: width - 1] + "\N{HORIZONTAL ELLIPSIS}").replace("$", r"\$")


def _axes(width: float, height: float) -> Axes:
    return without_frame(panels(1, width, height)[1][0])


def _logarithmic(axis: Axis) -> None:
    """Ticks at 1, 2 and 5, as plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axis.set_minor_formatter(NullFormatter())
    axis.set_tick_params(labelsize="small")
