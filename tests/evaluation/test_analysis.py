"""The numbers of the figures, by hand on small frames."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pyterrier_longdoc as longdoc
from pyterrier_longdoc.evaluation.analysis import length_bias, region_positions, share_after
from tests.conftest import as_frame, words


def regions(*begins: tuple[int, int]) -> pd.DataFrame:
    """Windows as (number, first token)."""
    return pd.DataFrame([{"window": window, "tokens": [(first, first + 30)]} for window, first in begins])


def test_positions_fall_into_doubling_bins():
    table = region_positions(regions((0, 0), (0, 2), (0, 5), (0, 6), (1, 6)))
    assert table["window"].tolist() == [0] * 3 + [1] * 3
    assert list(zip(table["first"], table["end"], strict=True)) == [(1, 2), (2, 4), (4, 8)] * 2
    assert table["regions"].tolist() == [1, 1, 2, 0, 0, 1]
    assert table["share"].tolist() == [0.25, 0.25, 0.5, 0, 0, 1]
    assert table["density"].tolist() == [0.25, 0.125, 0.125, 0, 0, 0.25]


def test_finer_bins_are_whole_tokens():
    table = region_positions(regions((0, 0), (0, 7)), bins_per_doubling=2)
    assert list(zip(table["first"], table["end"], strict=True)) == [
        (1, 2), (2, 3), (3, 4), (4, 6), (6, 8), (8, 11), (11, 16)
    ]
    assert table["regions"].tolist() == [1, 0, 0, 0, 0, 1, 0]


def test_share_after_a_position():
    share = share_after(regions((0, 499), (0, 500), (0, 900), (0, 0), (1, 3)), 500)
    assert share.to_dict() == {0: 0.5, 1: 0.0}


def test_positions_of_an_explanation(tiny):
    ranker = longdoc.TKL(tiny.words, heads=4, corpus=tiny.corpus)
    texts = [words(np.random.default_rng(seed), 300) for seed in range(4)]
    table = region_positions(ranker.explain(as_frame(*(("q", "w1", f"d{n}", text) for n, text in enumerate(texts)))))
    assert table.groupby("window")["regions"].sum().tolist() == [4, 4, 4]


def test_positions_of_nothing_and_of_other_frames():
    nothing = pd.DataFrame({"window": pd.Series(dtype=int), "tokens": pd.Series(dtype=object)})
    assert len(region_positions(nothing)) == 0
    with pytest.raises(ValueError, match="explanation has no column 'tokens'"):
        region_positions(pd.DataFrame({"window": [0]}))
    with pytest.raises(ValueError, match="bins_per_doubling must be a whole number of at least 1, got 0"):
        region_positions(regions((0, 1)), bins_per_doubling=0)


LENGTHS = {"d1": 10, "d2": 20, "d3": 30, "d4": 40, "d5": 50}
QRELS = pd.DataFrame(
    [("q1", "d1", 1), ("q1", "d4", 2), ("q1", "d5", 1), ("q1", "d2", 0), ("q2", "d5", 1), ("q3", "d1", 0)],
    columns=["qid", "docno", "label"],
)


def run(*rows: tuple[str, str, float]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=["qid", "docno", "score"])


SHORT = run(
    ("q1", "d1", 3.0), ("q1", "d4", 1.0), ("q1", "d2", 2.0), ("q2", "d3", 0.5), ("q2", "d1", 0.9), ("q3", "d5", 1.0)
)


def test_probabilities_of_relevance_and_of_retrieval():
    table = length_bias({"short": SHORT}, QRELS, LENGTHS, k=2, bins=2).set_index(["series", "bin"])
    assert table.loc["relevant", "documents"].tolist() == [3, 2]
    assert table.loc["relevant", "min_length"].tolist() == [10, 40]
    assert table.loc["relevant", "median_length"].tolist() == [20, 45]
    assert table.loc["relevant", "max_length"].tolist() == [30, 50]
    assert table.loc["relevant", "pairs"].tolist() == [1, 3]
    assert table.loc["relevant", "probability"].tolist() == [0.25, 0.75]
    # Top 2: d1, d2 for q1 and d1, d3 for q2; q3 has nothing relevant.
    assert table.loc["short", "pairs"].tolist() == [4, 0]
    assert table.loc["short", "probability"].tolist() == [1, 0]


def test_ranks_count_where_there_are_no_scores():
    ranked = SHORT.assign(rank=[0, 2, 1, 1, 0, 0]).drop(columns="score")
    by_rank = length_bias({"run": ranked}, QRELS, LENGTHS, k=2, bins=2)
    pd.testing.assert_frame_equal(by_rank, length_bias({"run": SHORT}, QRELS, LENGTHS, k=2, bins=2))


def test_stricter_labels():
    table = length_bias({}, QRELS, LENGTHS, bins=5, min_label=2)
    assert table["pairs"].tolist() == [0, 0, 0, 1, 0]


@pytest.mark.parametrize("kind", ["series", "frame", "texts"])
def test_lengths_in_every_form(kind):
    lengths = {
        "series": pd.Series(LENGTHS),
        "frame": pd.DataFrame({"docno": LENGTHS.keys(), "length": LENGTHS.values()}),
        "texts": pd.DataFrame({"docno": LENGTHS.keys(), "body": ["word " * length for length in LENGTHS.values()]}),
    }[kind]
    table = length_bias({"short": SHORT}, QRELS, lengths, k=2, bins=2, text_field="body")
    pd.testing.assert_frame_equal(table, length_bias({"short": SHORT}, QRELS, LENGTHS, k=2, bins=2))


def test_pairs_without_a_length_are_left_out_and_counted():
    known = {name: length for name, length in LENGTHS.items() if name != "d4"}
    with pytest.warns(UserWarning, match=r"1 of 4 pairs of 'relevant' are left out.*'d4'"):
        table = length_bias({}, QRELS, known, bins=2)
    assert table["pairs"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 0}, "k must be at least 1"),
        ({"bins": 6}, "bins from 1 to the 5 documents"),
        ({"qrels": QRELS.drop(columns="label")}, "qrels has no column 'label'"),
        ({"runs": {"a": SHORT.drop(columns="score")}}, "run 'a' has no column 'rank'"),
        ({"runs": {"relevant": SHORT}}, "cannot be named 'relevant'"),
        ({"lengths": pd.DataFrame({"docno": ["d1"]})}, "lengths has no column 'text'"),
        ({"min_label": 3}, "'relevant' has no pair"),
        ({"runs": {"a": SHORT[SHORT.qid == "q3"]}}, "'a' has no pair"),
    ],
)
def test_bad_input(change, message):
    arguments = {"runs": {"short": SHORT}, "qrels": QRELS, "lengths": LENGTHS, "bins": 2, **change}
    with pytest.raises(ValueError, match=message):
        length_bias(**arguments)


def test_length_limits(tiny, recwarn):
    """As if each ranker had been built with that limit; nothing is said about cuts that were asked for."""
    import pyterrier as pt
    from ir_measures import RR

    import pyterrier_longdoc as longdoc
    from pyterrier_longdoc.evaluation.analysis import length_limits
    from tests.conftest import as_frame, words

    generator = np.random.default_rng(0)
    res = as_frame(*((f"{q}", f"w{q} w1", f"d{n}", words(generator, 40)) for q in range(6) for n in range(5)))
    qrels = res[res["docno"] == "d3"][["qid", "docno"]].assign(label=1)
    rankers = {"KNRM": longdoc.KNRM(tiny.words), "TK": longdoc.TK(tiny.words, heads=4)}
    table = length_limits(rankers, res, qrels, (2, 30), "RR")
    assert not [each for each in recwarn if "max_doc_tokens" in str(each.message)]
    assert list(zip(table["limit"], table["name"], strict=True)) == [(2, "KNRM"), (2, "TK"), (30, "KNRM"), (30, "TK")]
    cut = res.assign(text=[" ".join(text.split()[:30]) for text in res["text"]])
    for name, ranker in rankers.items():
        expected = pt.Evaluate(ranker(cut), qrels, metrics=[RR])["RR"]
        assert table.set_index(["limit", "name"]).loc[(30, name), "RR"] == expected
    assert table["RR"].nunique() > 1
