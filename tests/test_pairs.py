"""Pairs of documents: their form, their measures against scikit-learn and by hand, and what training makes of them."""

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyterrier_longdoc as longdoc
from pyterrier_longdoc.pairs import (
    as_pairs,
    as_results,
    auc,
    best_threshold,
    classification,
    evaluate_pairs,
    hard_negatives,
    paired_bootstrap,
    score_pairs,
)
from tests.pair_task import LEARN, encoder, pairs

LABELS_AND_SCORES = st.lists(
    st.tuples(st.booleans(), st.integers(-5, 5)), min_size=2, max_size=30
).filter(lambda rows: 0 < sum(label for label, _ in rows) < len(rows))


def scored(labels, scores, **columns):
    return pd.DataFrame({"label": labels, "score": scores, **columns})


@pytest.fixture(scope="module")
def trained():
    return encoder().fit_pairs(pairs(), pairs(60, seed=1), **LEARN)


# Their form -----------------------------------------------------------------------------------------------------------


def test_texts_get_ids_and_ids_get_texts():
    texts = pd.DataFrame({"text_a": list("xxy"), "text_b": list("yzz"), "label": [1, 0, 1], "note": list("abc")})
    out = as_pairs(texts)
    assert list(out.columns) == ["id_a", "text_a", "id_b", "text_b", "label", "note"]
    assert out["id_a"].nunique() == 2 and out["id_a"].iloc[2] == out["id_b"].iloc[0]  # equal texts, equal ids
    ids = pd.DataFrame({"id_a": ["1", "1"], "id_b": ["2", "3"], "label": [1, 0]})
    documents = {"1": "one", "2": "two", "3": "three", "4": "four"}
    out = as_pairs(ids, documents)
    assert out["text_a"].tolist() == ["one", "one"] and out["text_b"].tolist() == ["two", "three"]
    frame = pd.DataFrame({"docno": list(documents), "body": list(documents.values())})
    pd.testing.assert_frame_equal(as_pairs(ids, frame, text_field="body"), out)
    pd.testing.assert_frame_equal(as_pairs(out), out)


def test_the_input_is_left_alone():
    texts = pairs(6)
    before = texts.copy()
    as_pairs(texts)
    score_pairs(encoder(), texts)
    pd.testing.assert_frame_equal(texts, before)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda f: f.drop(columns="label"), ValueError, "need a column 'label'"),
        (lambda f: f.assign(label="yes"), ValueError, "'label' of the pairs must hold a number"),
        (lambda f: f.assign(label=[1.0, np.nan]), ValueError, "'label' of the pairs must hold a number"),
        (lambda f: f.drop(columns="text_b"), ValueError, "need a column 'text_b', or 'id_b' and documents="),
        (lambda f: f.assign(text_a=["x", None]), TypeError, "'text_a' of the pairs holds"),
        (lambda f: f.assign(text_a=["x", 5]), TypeError, "'text_a' of the pairs holds int 5, not text"),
        (lambda f: f.assign(id_b=["1", None]), ValueError, "1 of 2 pairs have no 'id_b'"),
        (lambda f: f.assign(id_a="1"), ValueError, "id_a='1' stands beside different texts in 'text_a'"),
        (lambda f: f.to_dict("records"), TypeError, "pairs must be a frame, got list"),
    ],
)
def test_unfit_pairs(change, error, message):
    frame = pd.DataFrame({"text_a": ["x", "y"], "text_b": ["y", "z"], "label": [1, 0]})
    with pytest.raises(error, match=message):
        as_pairs(change(frame))


def test_ids_without_a_text():
    ids = pd.DataFrame({"id_a": ["1", "9"], "id_b": ["2", "8"], "label": [1, 0]})
    with pytest.raises(ValueError, match=r"1 of 'id_a' have no text in documents \(first '9'\)"):
        as_pairs(ids, {"1": "one", "2": "two", "8": "eight"})
    with pytest.raises(ValueError, match="documents need a column 'docno'"):
        as_pairs(ids, pd.DataFrame({"text": ["x"]}))


def test_no_pairs_at_all():
    none = pd.DataFrame(columns=["text_a", "text_b", "label"])
    assert list(score_pairs(encoder(), none).columns) == ["id_a", "text_a", "id_b", "text_b", "label", "score"]


def test_columns_of_results_give_way_to_those_of_the_pairs():
    some = pairs(4).assign(docno="other", qid="other", text="w9", note="kept")
    out = as_results(some)
    assert sorted(out.columns) == ["docno", "label", "note", "qid", "query", "text"]
    assert list(out["text"]) == list(some["text_b"])
    own = encoder()
    scores = score_pairs(own, some)
    assert list(scores["score"]) == list(score_pairs(own, pairs(4))["score"])
    assert list(scores["docno"]) == ["other"] * 4


def test_any_ranker_scores_pairs(tiny, trained):
    some = pairs(20, seed=5)
    knrm = longdoc.KNRM(tiny.words, text_field="body")
    out = score_pairs(knrm, some)
    results = as_results(some, "body")
    assert list(results.columns) == ["qid", "query", "docno", "body", "label"]
    assert list(out["score"]) == list(knrm(results)["score"])
    both = pd.concat([some, some.iloc[:4]], ignore_index=True)  # pairs that occur twice
    assert score_pairs(trained, both)["score"].iloc[-4:].tolist() == score_pairs(trained, some)["score"][:4].tolist()


def test_a_transformer_that_drops_rows_is_refused():
    with pytest.raises(ValueError, match="returned 3 of 6 pairs; it must keep all rows"):
        score_pairs(pt.apply.generic(lambda res: res.iloc[:3].assign(score=1.0)), pairs(6))


# Measures -------------------------------------------------------------------------------------------------------------


def test_measures_by_hand():
    values = evaluate_pairs(
        scored([1, 1, 0, 0, 1], [0.9, 0.4, 0.5, 0.1, 0.6], id_a=list("xxxyy"), id_b=list("abcde")),
        threshold=0.45, measures=["RR", "P@1"],
    )
    assert values == {
        "accuracy": 0.6, "precision": pytest.approx(2 / 3), "recall": pytest.approx(2 / 3),
        "F1": pytest.approx(2 / 3), "AUC": pytest.approx(5 / 6), "threshold": 0.45, "RR": 1.0, "P@1": 1.0,
    }


@given(LABELS_AND_SCORES, st.integers(-6, 6))
def test_measures_are_those_of_scikit_learn(rows, threshold):
    sklearn = pytest.importorskip("sklearn.metrics")
    labels, scores = np.array(rows)[:, 0] > 0, np.array(rows)[:, 1].astype(float)
    assert auc(labels, scores) == pytest.approx(sklearn.roc_auc_score(labels, scores))
    called, values = scores > threshold, classification(labels, scores, threshold)
    for name in ("precision", "recall", "F1"):
        expected = getattr(sklearn, f"{name.lower()}_score")(labels, called, zero_division=0)
        assert values[name] == pytest.approx(expected)
    assert values["accuracy"] == pytest.approx(sklearn.accuracy_score(labels, called))


@given(LABELS_AND_SCORES, st.sampled_from(["accuracy", "F1"]))
def test_no_threshold_is_better_than_the_best(rows, best):
    labels, scores = np.array(rows)[:, 0] > 0, np.array(rows)[:, 1].astype(float)
    threshold = best_threshold(labels, scores, best)
    value = classification(labels, scores, threshold)[best]
    every = np.arange(-6, 6, 0.5)
    assert value == pytest.approx(max(classification(labels, scores, each)[best] for each in every))
    assert value == 1 or threshold not in scores or threshold == scores.max()  # between two scores


def test_a_threshold_between_neighbouring_numbers_is_under_the_higher_one():
    for low in (0.5, np.nextafter(0.5, 1)):  # half their sum is rounded down for one, up for the other
        labels, scores = np.array([False, True]), np.array([low, np.nextafter(low, 1)])
        assert classification(labels, scores, best_threshold(labels, scores))["accuracy"] == 1


def test_pairs_that_occur_twice_are_ranked_once_as_matches():
    once = scored([1, 0, 0], [0.5, 0.9, 0.1], id_a="x", id_b=list("abc"))
    again = pd.concat([once, once.assign(label=0)])
    expected = evaluate_pairs(once, threshold=0.3, measures="RR")["RR"]
    assert expected == 0.5
    for frame in (again, again.iloc[::-1]):
        assert evaluate_pairs(frame, threshold=0.3, measures=["RR"])["RR"] == expected


def test_the_threshold_comes_from_the_validation_pairs():
    test = scored([1, 0, 1, 0], [0.8, 0.7, 0.3, 0.1])
    validation = scored([1, 0], [0.9, 0.75])
    values = evaluate_pairs(test, validation, measures=[])
    assert values["threshold"] == pytest.approx(0.825)
    assert values["recall"] == 0
    assert evaluate_pairs(test, scored([1, 0], [0.3, 0.1]), measures=[])["threshold"] == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either validation pairs.*or a threshold"),
        ({"threshold": 0.5, "validation": scored([1, 0], [1, 0])}, "either validation pairs.*or a threshold"),
        ({"scored": scored([1, 1], [1, 0]), "threshold": 0}, "2 of 2 pairs match.*both kinds are needed"),
        ({"scored": scored([1, 0], [1, np.nan]), "threshold": 0}, "'score' of the pairs must hold a finite number"),
        ({"scored": pd.DataFrame({"label": [1, 0]}), "threshold": 0}, "need a column 'score'"),
        ({"validation": scored([1, 0], [1, 0]), "best": "recall"}, "best must be 'accuracy' or 'F1'"),
        ({"threshold": np.nan}, "threshold must be a number, got nan"),
        ({"threshold": "0.5"}, "threshold must be a number, got '0.5'"),
        ({"scored": scored(["a", "b"], [1, 0]), "threshold": 0}, "'label' of the pairs must hold a finite number"),
        ({"scored": scored([1, 0], [1, 0]), "threshold": 0, "measures": "AP"}, "ranking measures need 'id_a'"),
        (
            {"scored": scored([1, 0], [1, 0], id_a=["x", None], id_b="y"), "threshold": 0, "measures": ["AP"]},
            "ranking measures need 'id_a' in every row",
        ),
        (
            {"scored": scored([1, 0], [1, 0], id_a="x", id_b=["y", "z"]), "threshold": 0, "measures": ["AAP"]},
            "measure 'AAP' is none of ir_measures",
        ),
    ],
)
def test_what_cannot_be_measured(arguments, message):
    with pytest.raises(ValueError, match=message):
        evaluate_pairs(**{"scored": scored([1, 0], [0.4, 0.6]), "measures": [], **arguments})


def test_the_bootstrap_interval_is_paired():
    random = np.random.default_rng(0)
    labels = random.random(300) < 0.5
    first = labels + random.normal(0, 1, 300)
    better = scored(labels, first + 0.4 * labels)
    out = paired_bootstrap(scored(labels, first), better, samples=200)
    assert 0 < out["low"] < out["difference"] < out["high"]
    assert out["difference"] == pytest.approx(auc(labels, better["score"].to_numpy()) - auc(labels, first))
    assert out["high"] - out["low"] < 0.1  # an interval of unpaired differences would be wider
    assert out == paired_bootstrap(scored(labels, first), better, samples=200)
    assert paired_bootstrap(better, better, samples=20) == {"difference": 0, "low": 0, "high": 0}
    for measure in ("accuracy", "F1"):
        assert paired_bootstrap(scored(labels, first), better, (better, better), measure=measure, samples=50)["low"] < 1


def test_unfit_bootstraps():
    one = scored([1, 0], [1, 0])
    with pytest.raises(ValueError, match="the same pairs in the same order"):
        paired_bootstrap(one, scored([0, 1], [1, 0]))
    with pytest.raises(ValueError, match="the same pairs in the same order"):
        paired_bootstrap(one.assign(id_b=["x", "y"]), one.assign(id_b=["y", "x"]))
    with pytest.raises(ValueError, match="none of 1 samples of 2 pairs holds both kinds"):
        paired_bootstrap(one, one, samples=1, seed=0)  # draws one of the two pairs twice
    for settings in ({"samples": 0}, {"confidence": 95}):
        with pytest.raises(ValueError, match=r"samples must be at least 1 and confidence in \(0, 1\)"):
            paired_bootstrap(one, one, **settings)
    with pytest.raises(ValueError, match="needs the validation pairs of both"):
        paired_bootstrap(one, one, measure="accuracy")
    with pytest.raises(ValueError, match="measure must be one of 'AUC', 'accuracy'"):
        paired_bootstrap(one, one, measure="MAP")


def test_the_bootstraps_thresholds_are_the_best_for_what_is_said():
    validation = scored([1, 0, 0, 0, 1, 0], [0.6, 0.5, 0.4, 0.3, 0.2, 0.1])  # accuracy: over .5; F1: over .1 or .5
    test = scored([1, 0, 1, 0], [0.45, 0.15, 0.15, 0.05])
    worse = test.assign(score=[0.0, 0.0, 0.0, 0.0])
    for best in ("accuracy", "F1"):
        expected = [evaluate_pairs(each, validation, best=best, measures=[])["F1"] for each in (worse, test)]
        found = paired_bootstrap(worse, test, (validation, validation), measure="F1", best=best, samples=50)
        assert found["difference"] == pytest.approx(expected[1] - expected[0])


# Learning -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["binary", "in_batch"])
def test_a_dual_encoder_learns_which_documents_match(loss):
    train, validation, test = pairs(), pairs(60, seed=1), pairs(60, seed=2)
    own = encoder()
    before = own.evaluate_pairs(test, validation)
    own.fit_pairs(train, validation, loss=loss, **LEARN)
    after = own.evaluate_pairs(test, validation)
    assert after["AUC"] > max(0.95, before["AUC"] + 0.1)
    assert after["F1"] > before["F1"]
    assert {"loss", "accuracy_tr", "AUC", "accuracy", "F1"} <= set(own.history.columns)


def test_scale_and_bias_are_learned(trained):
    start = encoder().model
    assert trained.model.scale != start.scale
    assert trained.model.bias != start.bias


def test_hard_negatives_are_near_and_new(trained):
    some = as_pairs(pairs(30, seed=3))
    out = hard_negatives(trained, some, count=2)
    pd.testing.assert_frame_equal(out.iloc[:30], some, check_dtype=False)
    added = out.iloc[30:]
    assert len(added) == 2 * (some["label"] > 0).sum()
    assert (added["label"] == 0).all()
    assert not out.duplicated(["id_a", "id_b"]).any()
    farther = hard_negatives(trained, some, count=2, skip=4).iloc[30:]
    assert score_pairs(trained, added)["score"].mean() > score_pairs(trained, farther)["score"].mean() + 0.05
    with pytest.raises(ValueError, match="count must be a whole number of at least 1"):
        hard_negatives(trained, some, count=0)


@pytest.mark.parametrize("skip", [0, 3])
def test_hard_negatives_are_those_of_a_naive_loop(trained, skip):
    some = as_pairs(pairs(40, seed=5))
    added = hard_negatives(trained, some, count=2, skip=skip).iloc[40:]
    texts = list(dict.fromkeys(some["text_b"]))
    matching = some[some["label"] > 0]
    expected = []
    for text in matching.drop_duplicates("id_a")["text_a"]:
        taken = {text, *some.loc[some["text_a"] == text, "text_b"], *matching.loc[matching["text_b"] == text, "text_a"]}
        free = pd.DataFrame({"text_a": text, "text_b": [each for each in texts if each not in taken]})
        scores = score_pairs(trained, as_pairs(free.assign(label=0)))
        best = scores.sort_values("score", ascending=False, kind="stable")["text_b"]
        expected += [(text, each) for each in best[skip : skip + 2]]
    assert [(row.text_a, row.text_b) for row in added.itertuples()] == expected


def test_neither_a_source_nor_its_match_the_other_way_round_is_a_hard_negative(trained):
    texts = {"a": "w1 w2", "b": "w1 w3", "c": "w2 w3", "d": "w50"}
    rows = [("a", "b", 1), ("c", "a", 1), ("d", "d", 0), ("d", "c", 1)]
    some = pd.DataFrame([(texts[a], texts[b], label) for a, b, label in rows], columns=["text_a", "text_b", "label"])
    added = hard_negatives(trained, some.assign(id_a=list("1234"), id_b=list("5678")).drop(columns="id_a"), count=4)
    found = {(row.text_a, row.text_b) for row in added.iloc[4:].itertuples()}
    letters = {(a, b) for a in texts for b in texts if (texts[a], texts[b]) in found}
    assert letters == {("a", "d"), ("c", "b"), ("d", "a"), ("d", "b")}
