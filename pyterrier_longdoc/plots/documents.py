"""Pictures of what rankers see in documents: TKL's topography, its regions over a run, similarity at three levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pyterrier_longdoc.evaluation.analysis import region_positions, share_after
from pyterrier_longdoc.plots.figures import axes, colours, plain_logarithms, pyplot, snippet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pyterrier_longdoc.explain import Explanation
    from pyterrier_longdoc.explain.levels import Comparison
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
    ax = ax or axes(9, 3.4)
    ax.plot(topography["start_token"], topography["score"], color="#555555", linewidth=1)
    floor = topography["score"].min()
    ax.fill_between(topography["start_token"], floor, topography["score"], color="#999999", alpha=0.25, linewidth=0)
    for (number, weight, tokens, words), colour in zip(
        regions[["window", "weight", "tokens", "text"]].itertuples(index=False), colours(len(regions)), strict=True
    ):
        first, end = tokens[0]
        label = f"{_ordinal(number)} ({weight:.4g}) {snippet(words)}"
        ax.axvspan(first, end, color=colour, alpha=0.45, linewidth=0, label=label)
    ax.set(xlabel="position in the document (tokens)", ylabel="relevance of the region", title=snippet(query, 80))
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
    ax = ax or axes(6, 4)
    for (window, rows), colour in zip(table.groupby("window"), colours(table["window"].nunique()), strict=True):
        rows = rows[rows["regions"] > 0]
        label = f"{_ordinal(window)} region ({deep[window]:.1%} after token {_DEEP})"
        middle = np.sqrt(rows["first"] * rows["end"])
        ax.plot(middle, rows["density"], marker="o", markersize=3, color=colour, label=label)
    ax.set(xscale="log", yscale="log", xlabel="position in the document (tokens)", ylabel="share of regions per token")
    plain_logarithms(ax.xaxis)
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
    return snippet(name if section else label, 20) + section + (numbers if section else "")


def _ordinal(number: int) -> str:
    return _ORDINALS[number] if number < len(_ORDINALS) else f"{number + 1}th"
