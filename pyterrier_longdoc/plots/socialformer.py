"""Figures 4 to 6 of the Socialformer paper: what the patterns connect, how large circles are, and where it helps.

All return matplotlib figures and show nothing themselves. They need matplotlib, the extra ``plot``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pyterrier_longdoc.evaluation.analysis import require
from pyterrier_longdoc.graph import friend_circles, sample_graph
from pyterrier_longdoc.plots.figures import colours, panels, without_frame

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pyterrier_longdoc.socialformer import Socialformer


def plot_patterns(ranker: Socialformer, query: str, text: str, *, sparsity: float = 0.9, seed: int = 0) -> Figure:
    """Draws Figure 4: the adjacency matrix that each pattern alone makes of a document, and that of their mixture.

    Args:
        ranker: A Socialformer; patterns that it does not use are left out.
        query: The query's text.
        text: The document's text, read up to ``max_doc_tokens``.
        sparsity: Share of the pairs of tokens that are not connected.
        seed: Seed of the graphs.

    Raises:
        ValueError: If the document has no tokens.
    """
    weights = _filled(ranker, query, text).weights
    off = {"static_distance": False} | dict.fromkeys(("static_centrality", "dynamic_distance", "dynamic_centrality"))
    shown = {name.replace("_", " "): replace(weights, **{**off, name: getattr(weights, name)})
             for name in weights.patterns}
    shown["mixture" if weights.patterns else "random edges"] = weights
    figure, axes = panels(len(shown), width=2.6 * len(shown), height=3.0)
    for ax, (name, each) in zip(axes, shown.items(), strict=True):
        matrix = sample_graph(each, 1 - sparsity, seed).dense()
        ax.imshow(matrix, cmap="Blues", interpolation="antialiased", vmin=0, vmax=1)
        ax.set(title=name, xlabel="token", xticks=[0, weights.n - 1], yticks=[0, weights.n - 1])
    return figure


def plot_circle_sizes(
    ranker: Socialformer,
    query: str,
    text: str,
    *,
    sparsities: Sequence[float] = (0.99, 0.97, 0.95, 0.93),
    n_circles: int = 32,
    seed: int = 0,
) -> Figure:
    """Draws Figure 5: how many tokens the first circles hold, by sparsity, for both partitions.

    Args:
        ranker: A Socialformer.
        query: The query's text.
        text: The document's text, read up to ``max_doc_tokens``.
        sparsities: Shares of the pairs of tokens that are not connected.
        n_circles: Circles that are cut.
        seed: Seed of the graphs.

    Raises:
        ValueError: If the document has no tokens.
    """
    weights, limit = _filled(ranker, query, text).weights, ranker.model.config.max_nodes
    figure, axes = panels(2, width=8, height=3.2, sharey=True)
    for ax, partition in zip(axes, ("edge", "node"), strict=True):
        for sparsity, colour in zip(sparsities, colours(len(sparsities)), strict=True):
            graph = sample_graph(weights, 1 - sparsity, seed)
            sizes = [len(circle) for circle in friend_circles(graph, n_circles, limit, partition, weights)]
            label = f"sparsity {sparsity:g}"
            ax.plot(np.arange(1, n_circles + 1), sizes + [0] * (n_circles - len(sizes)), color=colour, label=label)
        ax.set(title=f"{partition} partition", xlabel="circle", ylim=(0, limit * 1.05))
        without_frame(ax)
    axes[0].set_ylabel("tokens")
    axes[0].legend(frameon=False, fontsize="small")
    return figure


def plot_gain_by_length(table: pd.DataFrame, measure: str = "RR@100") -> Figure:
    """Draws Figure 6: a measure of several runs, by how long the relevant documents of the queries are.

    Args:
        table: What :func:`~pyterrier_longdoc.evaluation.by_length.measure_by_length` returns.
        measure: What was measured, for the axis.

    Raises:
        ValueError: If a column is missing.
    """
    require(table, ["length", "run", "queries", "value"], "table")
    runs = list(dict.fromkeys(table["run"]))
    groups = list(dict.fromkeys(table["length"]))
    figure, (ax,) = panels(1, width=1.5 + 1.4 * len(groups), height=3.4)
    width = 0.8 / len(runs)
    for place, (name, colour) in enumerate(zip(runs, colours(len(runs)), strict=True)):
        rows = table[table["run"] == name]
        left = np.arange(len(groups)) + (place - (len(runs) - 1) / 2) * width
        ax.bar(left, rows["value"], width=0.92 * width, color=colour, label=name)
    queries = table.drop_duplicates("length")["queries"]
    labels = [f"{group}\n{count} queries" for group, count in zip(groups, queries, strict=True)]
    ax.set(ylabel=measure, xlabel="length of the relevant document (tokens)")
    ax.set_xticks(range(len(groups)), labels)
    ax.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    without_frame(ax)
    return figure


def _filled(ranker: Socialformer, query: str, text: str) -> Any:  # noqa: ANN401
    if not hasattr(ranker, "social_graph"):
        raise TypeError(f"{ranker} draws no social graph; only Socialformer does")
    graph = ranker.social_graph(query, text)
    if not graph.weights.n:
        raise ValueError("the document has no tokens, so there is no graph to draw")
    return graph
