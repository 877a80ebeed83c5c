"""For whom reading more pays: measures by the length of what is relevant (Figure 6 of the Socialformer paper).

:func:`~pyterrier_longdoc.plots.socialformer.plot_gain_by_length` draws it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt

_IR_COLUMNS = {"qid": "query_id", "docno": "doc_id", "label": "relevance"}


def measure_by_length(
    runs: Mapping[str, pd.DataFrame],
    qrels: pd.DataFrame,
    lengths: Mapping[str, int] | pd.Series,
    *,
    borders: Sequence[int] = (512, 1024, 2048),
    measure: Any = "RR@100",  # noqa: ANN401
    min_label: int = 1,
) -> pd.DataFrame:
    """A measure of several runs, by how long the relevant documents of the queries are.

    A query belongs where the mean length of its relevant documents lies; queries without any are left out.

    Args:
        runs: Name -> results of the same queries.
        qrels: Judgements with ``qid``, ``docno`` and ``label``.
        lengths: ``docno`` -> length of the relevant documents, in tokens or whatever ``borders`` count.
        borders: Lengths at which one group of queries ends and the next begins.
        measure: A measure of ``ir_measures``, or its name.
        min_label: Judgements from here on are relevant.

    Returns:
        One row for each group of queries that is not empty and each run: ``length`` (such as ``"512-1024"``), ``run``,
        ``queries`` (how many), ``value`` (mean of the measure; a query without results counts as 0).

    Raises:
        ValueError: If there are no runs, borders do not ascend, no query has a relevant document, or the length of one
            is unknown.
    """
    if not runs:
        raise ValueError("runs must hold at least one run")
    if not len(borders) or list(borders) != sorted(set(borders)):
        raise ValueError(f"borders must ascend, and be one at least; got {list(borders)}")
    pt.validate.columns(qrels, includes=["qid", "docno", "label"])
    relevant = qrels[qrels["label"] >= min_label]
    if not len(relevant):
        raise ValueError(f"no document has a label of at least {min_label}")
    size = relevant["docno"].map(lengths if isinstance(lengths, pd.Series) else dict(lengths))
    if size.isna().any():
        first = relevant["docno"][size.isna()].iloc[0]
        raise ValueError(f"lengths lack {int(size.isna().sum())} documents, such as {first!r}")
    means = size.groupby(relevant["qid"]).mean()
    group = pd.Series(np.searchsorted(borders, means, side="right"), index=means.index)
    names = [f"<{borders[0]}", *(f"{a}-{b}" for a, b in zip(borders, borders[1:], strict=False)), f">={borders[-1]}"]
    wanted = ir_measures.parse_measure(str(measure))
    judged, rows = qrels.rename(columns=_IR_COLUMNS), []
    for name, run in runs.items():
        found = ir_measures.iter_calc([wanted], judged, run.rename(columns=_IR_COLUMNS))
        values = {each.query_id: each.value for each in found}
        of_query = group.index.map(lambda qid, values=values: values.get(qid, 0.0))
        for place, part in pd.Series(of_query, index=group.index).groupby(group):
            rows.append({"length": names[place], "run": name, "queries": len(part), "value": part.mean(), "_": place})
    return pd.DataFrame(rows).sort_values("_", kind="stable", ignore_index=True).drop(columns="_")
