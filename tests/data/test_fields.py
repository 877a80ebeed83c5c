"""Joining and loading of fields, over a collection of our own and one that ir_datasets serves."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_longdoc.data.fields import (
    corpus_documents,
    corpus_texts,
    default_fields,
    join_fields,
    text_loader,
)
from tests.article_collection import ARTICLES, Articles, registered


@pytest.fixture
def irds():
    with registered("test-articles") as name:
        yield name


@pt.testing.transformer_test_class
def test_inspect_loader():
    return text_loader(Articles())


@pt.testing.transformer_test_class
def test_inspect_join():
    return join_fields(["title", "body"])


# Joining -------------------------------------------------------------------------------------------------------------


def test_fields_are_joined_in_the_given_order_and_nothing_else_changes():
    columns = {"docno": ["b", "a"], "body": ["Body b", "Body a"], "title": ["Title b", "Title a"], "note": [1, 2]}
    frame = pd.DataFrame(columns, index=[7, 7])
    before = frame.copy()
    out = join_fields(["title", "body"], to="all", separator=" | ")(frame)
    assert out["all"].tolist() == ["Title b | Body b", "Title a | Body a"]
    pd.testing.assert_frame_equal(out[frame.columns.tolist()], before)
    pd.testing.assert_frame_equal(frame, before)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_missing_and_empty_fields_are_left_out(missing):
    frame = pd.DataFrame({"title": ["T", missing, "", missing], "body": [missing, "B", "B", missing]}, dtype=object)
    texts = join_fields(["title", "body"])(frame)["text"].tolist()
    assert texts[:3] == ["T", "B", "B"]
    assert pd.isna(texts[3])  # a ranker warns about it, where "" would look like a document


def test_joining_may_replace_one_of_its_fields():
    frame = pd.DataFrame({"title": ["T"], "text": ["B"]})
    assert join_fields(["title", "text"])(frame)["text"].tolist() == ["T\nB"]


def test_joining_an_empty_frame_keeps_its_columns():
    out = join_fields(["title"])(pd.DataFrame({"docno": [], "title": []}))
    assert out.columns.tolist() == ["docno", "title", "text"]


def test_joining_says_what_is_wrong():
    with pytest.raises(pt.validate.InputValidationError, match="body"):
        join_fields(["title", "body"])(pd.DataFrame({"title": ["T"]}))
    with pytest.raises(TypeError, match="'title' holds int"):
        join_fields(["title"])(pd.DataFrame({"title": [3]}))
    with pytest.raises(ValueError, match="at least one field"):
        join_fields([])


def test_transformers_are_compared_by_what_they_do():
    assert join_fields(["a"]) == join_fields("a") != join_fields(["a"], to="b")
    assert pickle.loads(pickle.dumps(join_fields(["a"]))) == join_fields(["a"])
    collection = Articles()
    assert text_loader(collection) == text_loader(collection) != text_loader(collection, ["title"])
    assert hash(text_loader(collection)) == hash(text_loader(collection))


# Loading -------------------------------------------------------------------------------------------------------------


def test_default_fields():
    assert default_fields(["title", "text", "url"]) == ["text"]
    assert default_fields(["title", "body", "anchors", "url"]) == ["url", "title", "body"]
    assert default_fields(["title", "abstract"]) == ["title", "abstract"]


def results() -> pd.DataFrame:
    return pd.DataFrame(
        {"qid": ["1", "2", "2"], "docno": ["d1", "NA", "d1"], "title": ["mine", "mine", "mine"], "rank": [0, 0, 1]},
        index=[5, 3, 5],
    )


def test_texts_are_added_once_per_document_and_nothing_else_changes():
    frame, collection = results(), Articles()
    out = text_loader(collection)(frame)
    first, na = ("\n".join(ARTICLES[n][field] for field in ("url", "title", "body")) for n in (1, 2))
    assert out["text"].tolist() == [first, na, first]
    pd.testing.assert_frame_equal(out.drop(columns="text"), results())
    pd.testing.assert_frame_equal(frame, results())
    assert collection.loaded == ["d1", "NA"]


def test_an_old_text_is_replaced_and_an_empty_frame_loads_nothing():
    collection = Articles()
    loader = text_loader(collection, "body", to="title")
    assert loader(results())["title"].iloc[1] == ARTICLES[2]["body"]
    collection.loaded.clear()
    assert loader(results().head(0)).columns.tolist() == ["qid", "docno", "title", "rank"]
    assert collection.loaded == []


def test_a_cutoff_is_taken_before_texts_are_loaded():
    collection = Articles()
    first_stage = pt.Transformer.from_df(results().reset_index(drop=True).assign(query="q", score=1.0))
    pipeline = (first_stage >> text_loader(collection) % 1).compile()
    pipeline(pd.DataFrame({"qid": ["2"], "query": ["q"]}))
    assert collection.loaded == ["NA"]


def test_unknown_fields_and_documents_are_named():
    with pytest.raises(ValueError, match=r"no field 'txt', 'a'; it has url, title, body"):
        text_loader(Articles(), ["title", "txt", "a"])
    with pytest.raises(ValueError, match="no field 'txt'"):
        next(corpus_texts(Articles(), "txt"))
    with pytest.raises(ValueError, match=r"Articles\(\) lacks documents of these results: .*nope"):
        text_loader(Articles())(pd.DataFrame({"docno": ["d1", "nope"]}))
    with pytest.raises(ValueError, match="has no text_loader"):
        text_loader(pt.datasets.Dataset())
    with pytest.raises(KeyError, match="not found"):
        text_loader("irds:no-such-collection")


# The whole corpus ----------------------------------------------------------------------------------------------------


def test_the_corpus_gives_the_texts_that_the_loader_gives():
    collection = Articles()
    documents = list(corpus_documents(collection, to="body"))
    loaded = text_loader(collection)(pd.DataFrame({"docno": [document["docno"] for document in documents]}))
    assert [document["body"] for document in documents] == loaded["text"].tolist()
    assert list(corpus_texts(collection, ["title"])) == [article["title"] for article in ARTICLES]
    assert set(documents[0]) == {"docno", "body"}


def test_the_corpus_is_streamed():
    collection = Articles()
    assert next(corpus_texts(collection, "title")) == ARTICLES[0]["title"]
    assert collection.iterated == 1


def test_an_empty_corpus_is_an_error():
    collection = Articles([])
    with pytest.raises(ValueError, match="holds no document"):
        list(corpus_texts(collection, "title"))


# ir_datasets ---------------------------------------------------------------------------------------------------------


def test_ir_datasets_by_name(irds):
    loader = text_loader(irds)
    assert loader.fields == ("url", "title", "body")
    out = loader(results())
    assert out["text"].iloc[1] == "\n".join(ARTICLES[2][field] for field in ("url", "title", "body"))
    assert out.index.tolist() == [5, 3, 5]
    again = pickle.loads(pickle.dumps(loader))
    assert again == loader
    pd.testing.assert_frame_equal(again(results()), out)
    assert list(corpus_texts(irds)) == list(corpus_texts(Articles()))
    with pytest.raises(ValueError, match="lacks documents"):
        loader(pd.DataFrame({"docno": ["d1", "nope"]}))


def test_the_data_set_may_be_an_object(irds):
    assert text_loader(pt.get_dataset(irds)) == text_loader(irds)
