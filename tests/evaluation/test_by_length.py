"""Measures by the length of what is relevant."""

import pandas as pd
import pytest

from pyterrier_longdoc.evaluation.by_length import measure_by_length
from pyterrier_longdoc.plots.socialformer import plot_gain_by_length


def test_figure_6_by_hand():
    qrels = pd.DataFrame(
        [("1", "a", 1), ("2", "b", 1), ("3", "c", 2), ("3", "x", 0), ("4", "d", 1), ("4", "e", 1)],
        columns=["qid", "docno", "label"],
    )
    lengths = {"a": 10, "b": 100, "c": 20, "d": 100, "e": 300}
    best = pd.DataFrame([(q, d, 1.0) for q, d in ("1a", "2b", "3c", "4d")], columns=["qid", "docno", "score"])
    half = pd.DataFrame([("1", "x", 2.0), ("1", "a", 1.0), ("2", "b", 1.0)], columns=["qid", "docno", "score"])
    runs = {"best": best, "half": half}
    table = measure_by_length(runs, qrels, lengths, borders=[50, 150], measure="RR@10")
    rows = [tuple(row) for row in table.itertuples(index=False)]
    assert rows == [("<50", "best", 2, 1.0), ("<50", "half", 2, 0.25), ("50-150", "best", 1, 1.0),
                    ("50-150", "half", 1, 1.0), (">=150", "best", 1, 1.0), (">=150", "half", 1, 0.0)]
    table = measure_by_length(runs, qrels, pd.Series(lengths), borders=[50, 150], measure="RR@10")
    (ax,) = plot_gain_by_length(table, "RR@10").axes
    assert ax.get_ylabel() == "RR@10"
    assert [bar.get_height() for bar in ax.patches] == [1, 1, 1, 0.25, 1, 0]
    assert [label.get_text().split("\n")[0] for label in ax.get_xticklabels()] == ["<50", "50-150", ">=150"]


def test_bad_input():
    qrels = pd.DataFrame([("1", "a", 1)], columns=["qid", "docno", "label"])
    run = pd.DataFrame([("1", "a", 1.0)], columns=["qid", "docno", "score"])
    for runs, lengths, options, message in (
        ({}, {"a": 1}, {}, "at least one run"), ({"r": run}, {"b": 1}, {}, "lengths lack 1 documents, such as 'a'"),
        ({"r": run}, {"a": 1}, {"borders": [5, 2]}, "borders must ascend"),
        ({"r": run}, {"a": 1}, {"borders": []}, "be one at least"),
        ({"r": run}, {"a": 1}, {"min_label": 2}, "no document has a label of at least 2"),
    ):
        with pytest.raises(ValueError, match=message):
            measure_by_length(runs, qrels, lengths, **options)
    with pytest.raises(ValueError, match="no column 'run'"):
        plot_gain_by_length(pd.DataFrame({"length": ["<5"]}))
