"""Passages as rows: everything that pt.text does, without what it loses."""

import pickle
import re

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyterrier_longdoc as longdoc
from pyterrier_longdoc.text.tokens import tokenize
from tests.conftest import as_frame

FRAME = as_frame(
    ("1", "a", "d1", "one two three four five six seven"),
    ("1", "a", "d2", "alone"),
    ("2", "b", "d1", "one two three four five six seven"),
).assign(score=[3.0, 2.0, 1.0], rank=[0, 1, 0], url=["u1", "u2", "u1"])


def length_scorer():
    return pt.apply.doc_score(lambda row: float(len(row["text"])))


def test_passages_by_hand():
    out = longdoc.Passager(length=4, stride=3)(FRAME)
    assert out["docno"].tolist() == ["d1%p0", "d1%p1", "d2%p0", "d1%p0", "d1%p1"]
    assert out["text"].tolist()[:3] == ["one two three four", "four five six seven", "alone"]
    assert out["url"].tolist() == ["u1", "u1", "u2", "u1", "u1"]
    assert out["text_0"].tolist()[:3] == [FRAME["text"][0]] * 2 + ["alone"]
    assert out["score"].tolist() == [3, 3, 2, 1, 1]


def test_nothing_is_lost_where_pt_text_loses_it():
    words = [f"t{n}" for n in range(200)]
    frame = as_frame(("1", "a", "d", " ".join(words)))
    out = longdoc.Passager(length=150, stride=75)(frame)
    assert [text.split() for text in out["text"]] == [words[:150], words[75:]]
    assert len(pt.text.sliding("text", length=150, stride=75, prepend_attr=None)(frame)) == 1


@given(st.text(max_size=60), st.integers(1, 6), st.data())
def test_every_word_is_in_a_passage_as_it_stands(text, length, data):
    stride = data.draw(st.integers(1, length))
    out = longdoc.Passager(length=length, stride=stride)(as_frame(("1", "a", "d", text)))
    words = re.findall(r"\S+", text)
    found = [re.findall(r"\S+", each) for each in out["text"]]
    assert [word for n, each in enumerate(found) for word in (each if not n else each[length - stride :])] == words
    assert all(each in text for each in out["text"])
    assert out["docno"].tolist() == [f"d%p{n}" for n in range(len(out))]


def test_short_titled_and_missing_texts():
    """On each of these pt.text.sliding raises."""
    frame = as_frame(("1", "a", "d1", "short"), ("1", "a", "d2", np.nan), ("1", "a", "d3", "")).assign(
        title=["A title", "Of nothing", None]
    )
    out = longdoc.Passager(title_field="title")(frame)
    assert out["text"].tolist() == ["A title short", "Of nothing", ""]
    assert out["title"].tolist()[:2] == ["A title", "Of nothing"]


def test_titles_go_before_every_passage():
    frame = as_frame(("1", "a", "d", "one two three")).assign(title="Head")
    out = longdoc.Passager(length=2, stride=2, title_field="title")(frame)
    assert out["text"].tolist() == ["Head one two", "Head three"]


def test_empty_frames_keep_their_columns():
    for step in (longdoc.Passager(), longdoc.Passager() >> longdoc.PassageAggregator()):
        assert list(step(FRAME.iloc[:0]).columns) == list(step(FRAME).columns)


def test_tokens_of_a_model(tiny):
    tokenizer = longdoc.MaxP(tiny.encoder).tokenizer
    text = "w100 w1  W2, w150"  # of 2, 1, 1, 1 and 2 tokens
    out = longdoc.Passager(length=5, stride=5, tokenizer=tokenizer)(as_frame(("1", "a", "d", text)))
    assert out["text"].tolist() == ["w100 w1  W2,", "w150"]
    assert tokenize(tokenizer, out["text"].tolist()).lengths.tolist() == [5, 2]


def test_documents_without_a_query():
    out = longdoc.Passager(length=2, stride=2)(FRAME[["docno", "text"]].iloc[:1])
    assert out["docno"].tolist() == [f"d1%p{n}" for n in range(4)]


@pytest.mark.parametrize("options", [{"length": 0}, {"stride": 0}, {"length": 5, "stride": 6}])
def test_sizes_are_checked(options):
    with pytest.raises(ValueError, match="of a passage must be .* at least 1|stride must be"):
        longdoc.Passager(**options)


@pytest.mark.parametrize("column", ["docno", "text", "title"])
def test_missing_columns(column):
    with pytest.raises(pt.validate.InputValidationError, match=column):
        longdoc.Passager(title_field="title")(FRAME.assign(title="").drop(columns=column))


# Aggregation ----------------------------------------------------------------------------------------------------------


def scored(*rows):
    return pd.DataFrame(rows, columns=["qid", "docno", "score"]).assign(query="a", text="passage", text_0="whole")


PASSAGES = scored(("1", "d1%p0", 1.0), ("1", "d1%p1", 5.0), ("1", "d2%p0", 4.0), ("1", "d1%p2", 3.0), ("2", "d2%p0", 2))


@pytest.mark.parametrize(
    ("how", "expected"), [("max", 5), ("mean", 3), ("sum", 9), ("first", 1), ("kmax", 4)]
)
def test_aggregations_by_hand(how, expected):
    out = longdoc.PassageAggregator(how, k=2)(PASSAGES)
    assert out["docno"].tolist() == ["d1", "d2", "d2"]
    assert out["score"].tolist() == [expected, 4, 2]
    assert out["rank"].tolist() == [0, 1, 0] if expected > 4 else [1, 0, 0]
    assert out["text"].tolist() == ["whole"] * 3
    assert "text_0" not in out


@pytest.mark.parametrize(
    ("how", "theirs"),
    [
        ("max", pt.text.max_passage()), ("mean", pt.text.mean_passage()), ("first", pt.text.first_passage()),
        ("kmax", pt.text.kmaxavg_passage(2)),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_the_scores_of_pt_text(how, theirs):
    """Either half may be that of pt.text."""
    passages = length_scorer()(longdoc.Passager(length=4, stride=3)(FRAME))
    expected = theirs(passages).set_index(["qid", "docno"])["score"].sort_index()
    for ours in (passages, length_scorer()(pt.text.sliding("text", length=4, stride=3, prepend_attr=None)(FRAME))):
        found = longdoc.PassageAggregator(how, k=2)(ours).set_index(["qid", "docno"])["score"].sort_index()
        pd.testing.assert_series_equal(found, expected)


def test_documents_named_like_passages():
    """A docno with %p in it, which pt.text.max_passage cannot take."""
    frame = as_frame(("1", "a", "d%p7", "one two three"), ("1", "a", "d", "four"))
    pipeline = longdoc.Passager(length=2, stride=2) >> length_scorer() >> longdoc.PassageAggregator()
    assert pipeline(frame)["docno"].tolist() == ["d%p7", "d"]


def test_what_is_no_passage():
    for docno in ("d", "d%p", "d%px", "d%p-1"):
        with pytest.raises(ValueError, match=f"docno '{docno}' is none of a passage"):
            longdoc.PassageAggregator()(scored(("1", "d1%p0", 1.0), ("1", docno, 1.0)))


def test_options_are_checked():
    with pytest.raises(ValueError, match="how must be one of 'max'"):
        longdoc.PassageAggregator("min")
    with pytest.raises(ValueError, match="k must be a whole number of at least 1"):
        longdoc.PassageAggregator("kmax", k=0)


def test_missing_scores_and_names_of_other_types():
    with pytest.raises(ValueError, match=r"1 passages have no score \(first: 'd1%p1'\)"):
        longdoc.PassageAggregator("mean")(scored(("1", "d1%p0", 1.0), ("1", "d1%p1", None)))
    with pytest.raises(ValueError, match="column 'docno' holds 3, not text"):
        longdoc.Passager()(FRAME.assign(docno=3))


def test_drawn_offline(monkeypatch):
    def no_network(*args, **kwargs):
        raise OSError("the test has no network")

    monkeypatch.setattr("urllib.request.urlopen", no_network)
    pt.schematic.draw(longdoc.Passager() >> longdoc.PassageAggregator("mean"))


def test_pipelines_with_rankers(tiny):
    """MaxP over passages as rows is MaxP."""
    ranker = longdoc.MaxP(tiny.encoder, passage_tokens=40, overlap=0)
    generator = np.random.default_rng(0)
    texts = [" ".join(f"w{n}" for n in generator.integers(0, 60, length)) for length in (3, 40, 100)]
    frame = as_frame(*(("1", "w1 w2", f"d{n}", text) for n, text in enumerate(texts)))
    pipeline = longdoc.Passager(length=40, stride=40) >> ranker >> longdoc.PassageAggregator()
    out = pipeline(frame)
    assert out["score"].to_numpy() == pytest.approx(ranker(frame)["score"].to_numpy(), abs=1e-5)
    assert out["text"].tolist() == texts
    assert pt.inspect.transformer_outputs(pipeline, list(frame.columns)) == list(out.columns)
    assert pickle.loads(pickle.dumps(longdoc.Passager(length=3, stride=2)))(frame).equals(
        longdoc.Passager(length=3, stride=2)(frame)
    )
