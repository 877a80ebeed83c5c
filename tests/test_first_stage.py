"""First stages over small collections: what they retrieve, and when they index."""

from __future__ import annotations

import json
import math
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_longdoc import first_stage
from pyterrier_longdoc.data.fields import text_loader
from pyterrier_longdoc.pisa import BM25
from tests.article_collection import ARTICLES, QUERIES, Articles, registered

TOPICS = pd.DataFrame(list(QUERIES.items()), columns=["qid", "query"])


@pytest.fixture
def retriever(tmp_path: Path) -> BM25:
    return first_stage.bm25(Articles(), tmp_path / "index", verbose=False)


def test_inspection(retriever):
    assert pt.inspect.transformer_inputs(retriever) == [["qid", "query"]]
    assert pt.inspect.transformer_outputs(retriever, ["qid", "query"]) == ["qid", "query", "docno", "score", "rank"]
    assert "BM25" in pt.schematic.draw(retriever >> text_loader(Articles()))


# BM25 ----------------------------------------------------------------------------------------------------------------


def test_the_right_documents_in_the_right_form(retriever):
    topics = TOPICS.assign(note=["a", "b", "c", "d"]).set_index(pd.Index([4, 4, 2, 1]))
    out = retriever(topics)
    assert out[out["rank"] == 0].set_index("qid")["docno"].to_dict() == {"1": "d0", "2": "d1", "10": "null"}
    assert out.columns.tolist() == ["qid", "query", "note", "docno", "score", "rank"]
    assert (out["score"].dtype, out["rank"].dtype) == (np.float64, np.int64)
    assert all(type(value) is str for column in ("qid", "docno", "query") for value in out[column])
    assert out.index.tolist() == list(range(len(out)))
    assert out[out.qid == "10"]["query"].unique().tolist() == [QUERIES["10"]]  # given on as it was
    pd.testing.assert_frame_equal(out, pt.model.add_ranks(out))


def test_scores_are_bm25(tmp_path):
    """BM25 as PISA has it: idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / mean)), in float32."""
    texts = {"a": "lock thread lock", "b": "thread", "c": "paper and ink", "d": "stone"}
    articles = [{"docno": docno, "url": "", "title": "", "body": text} for docno, text in texts.items()]
    out = first_stage.bm25(Articles(articles), tmp_path / "index", fields="body", k1=1.2, b=0.5, verbose=False)(
        pt.new.queries(["lock"])
    )
    idf, frequency, length, mean = math.log((4 - 1 + 0.5) / (1 + 0.5)), 2, 3, (3 + 1 + 3 + 1) / 4
    expected = idf * frequency * 2.2 / (frequency + 1.2 * (0.5 + 0.5 * length / mean))
    assert out["docno"].tolist() == ["a"]
    assert out["score"].iloc[0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "query", ['coffee "in" (a) café? ^2 ~: -AND+', "coffee\x00", "\ud800 coffee", "日本語 coffee\n\t", "CAFE coffee’s"]
)
def test_odd_queries_find_the_same(retriever, query):
    assert retriever(pt.new.queries([query]))["docno"].iloc[0] == "d1"


def test_accents_and_apostrophes_match_their_plain_forms(retriever):
    def best(query):
        return retriever(pt.new.queries([query]))[["docno", "score"]].iloc[0].tolist()

    assert best("naive") == best("naïve") == best("naïve")  # the last is decomposed
    assert best("isn't the same") == best("isn’t the same")


def test_queries_without_an_indexed_term_retrieve_nothing(retriever):
    out = retriever(pt.new.queries(["", "the of", "xylophone"]))
    assert len(out) == 0
    assert out.columns.tolist() == ["qid", "query", "docno", "score", "rank"]
    assert retriever(TOPICS.head(0)).columns.tolist() == out.columns.tolist()


def test_missing_queries_and_columns_are_errors(retriever):
    with pytest.raises(ValueError, match="1 of 2 rows have no query .first qid 'b'"):
        retriever(pd.DataFrame({"qid": ["a", "b"], "query": ["coffee", None]}))
    with pytest.raises(pt.validate.InputValidationError, match="query"):
        retriever(pd.DataFrame({"qid": ["a"]}))


def test_a_cutoff_is_pushed_down(retriever):
    pipeline = (retriever % 1).compile()
    assert isinstance(pipeline, BM25)
    assert pipeline.num_results == 1
    pd.testing.assert_frame_equal(pipeline(TOPICS), (retriever(TOPICS).query("rank < 1")).reset_index(drop=True))


def test_pickling_and_equality(retriever, tmp_path):
    again = pickle.loads(pickle.dumps(retriever))
    assert again == retriever
    assert hash(again) == hash(retriever)
    assert BM25(tmp_path / "index", k1=2.0) != retriever
    pd.testing.assert_frame_equal(again(TOPICS), retriever(TOPICS))


def test_grid_search_changes_the_parameters(retriever):
    qrels = pd.DataFrame({"qid": ["1", "2", "10"], "docno": ["d0", "d1", "null"], "label": 1})
    pt.GridSearch(retriever, {retriever: {"k1": [3.0], "b": [0.1]}}, TOPICS, qrels, "map", verbose=False)
    expected = BM25(retriever.path, k1=3.0, b=0.1)
    pd.testing.assert_frame_equal(retriever(TOPICS), expected(TOPICS))
    assert retriever == expected


@pytest.mark.parametrize("options", [{"num_results": 0}, {"k1": -1.0}, {"b": 1.5}])
def test_parameters_out_of_range(tmp_path, options):
    with pytest.raises(ValueError, match="are needed, got"):
        first_stage.bm25(Articles(), tmp_path / "index", verbose=False, **options)


def test_before_a_ranker_in_an_experiment(retriever):
    pipeline = retriever % 2 >> text_loader(Articles()) >> pt.apply.doc_score(lambda row: len(row["text"]))
    qrels = pd.DataFrame({"qid": ["1", "2"], "docno": ["d0", "d1"], "label": 1})
    table = pt.Experiment({"BM25": retriever, "length": pipeline}, TOPICS, qrels, ["recip_rank"], validate="error")
    assert table.set_index("name")["recip_rank"]["BM25"] == 1.0


# Indexes -------------------------------------------------------------------------------------------------------------


def test_the_collection_is_indexed_once(tmp_path):
    first, second = Articles(), Articles()
    one = first_stage.bm25(first, tmp_path / "index", verbose=False)
    two = first_stage.bm25(second, tmp_path / "index", verbose=False, k1=2.0)
    assert first.iterated == len(ARTICLES)
    assert second.iterated == 0
    assert one(TOPICS)["score"].iloc[0] != two(TOPICS)["score"].iloc[0]
    contents = json.loads((tmp_path / "index" / "longdoc_contents.json").read_text())
    assert contents["collection"] == "Articles()"
    assert contents["fields"] == ["url", "title", "body"]


def test_an_index_of_something_else_is_not_taken(tmp_path):
    path = tmp_path / "index"
    first_stage.bm25(Articles(), path, verbose=False)
    with pytest.raises(ValueError, match=r"with collection 'Articles\(\)', not collection 'Others\(\)'.*delete it"):
        first_stage.bm25(Articles(name="Others()"), path)
    with pytest.raises(ValueError, match=r"fields \['url', 'title', 'body'\], not fields \['title'\]"):
        first_stage.bm25(Articles(), path, fields=["title"])
    with pytest.raises(ValueError, match="stemmer 'porter2', not stemmer 'krovetz'"):
        first_stage.bm25(Articles(), path, stemmer="krovetz")
    again = Articles()
    again.corpus_id = "articles, second edition"
    with pytest.raises(ValueError, match="not collection 'articles, second edition'"):
        first_stage.bm25(again, path)
    (tmp_path / "mine").mkdir()
    with pytest.raises(ValueError, match="no index of this package"):
        first_stage.bm25(Articles(), tmp_path / "mine")


_NOTHING = {"docno": "d0", "url": "", "title": "", "body": ""}


class Broken(Articles):
    """Ends with an error in the middle."""

    def get_corpus_iter(self, verbose=True):
        yield from ARTICLES[:3]
        raise OSError("the disk is gone")


@pytest.mark.parametrize(
    ("collection", "error", "message"),
    [
        (Broken(), OSError, "the disk is gone"),
        (Articles([]), ValueError, "holds no document"),
        (Articles([{**ARTICLES[0], "docno": "two words"}]), ValueError, "'two words' cannot stand in a run file"),
        (Articles([ARTICLES[0], {**ARTICLES[1], "docno": ""}]), ValueError, "'' cannot stand in a run file"),
        (Articles([ARTICLES[0], {**ARTICLES[1], "body": 3}]), TypeError, "'body' holds int"),
        (Articles([{"docno": "d0", "url": "", "title": "日本語", "body": ""}]), ValueError, "no word of ASCII letters"),
        (Articles([_NOTHING, {**ARTICLES[1], "docno": "two words"}]), ValueError, "cannot stand"),
    ],
)
def test_a_failed_build_leaves_nothing(tmp_path, collection, error, message):
    with pytest.raises(error, match=message):
        first_stage.bm25(collection, tmp_path / "index", verbose=False)
    assert list(tmp_path.iterdir()) == []


def test_documents_without_text_are_kept(tmp_path):
    articles = [_NOTHING, {**ARTICLES[1], "url": None, "title": float("nan"), "body": ""}, ARTICLES[2]]
    retriever = first_stage.bm25(Articles(articles), tmp_path / "index", verbose=False)
    assert retriever(pt.new.queries(["missing value"]))["docno"].iloc[0] == "NA"


def test_torn_weights_are_never_seen(tmp_path):
    """A process killed while PISA computes term weights for new parameters leaves an index that still works."""
    index = tmp_path / "index"
    expected = first_stage.bm25(Articles(), index, k1=1.5, verbose=False)(TOPICS)
    for file in index.glob("bm25.*"):
        file.unlink()
    command = (
        "import os, sys, pyterrier_pisa as pisa; from pyterrier_longdoc.pisa import BM25\n"
        "def killed(*_): os._exit(9)\n"
        "os.replace = killed\n"
        f"BM25({str(index)!r}, k1=1.5)"
    )
    assert subprocess.run([sys.executable, "-c", command], check=False).returncode == 9
    assert list(index.glob("bm25.*")) == []
    pd.testing.assert_frame_equal(BM25(index, k1=1.5)(TOPICS), expected)


def test_data_sets_over_one_collection_share_an_index(tmp_path):
    with registered("test-first-stage") as name:
        retriever = first_stage.bm25(name, tmp_path / "index", verbose=False)
        contents = json.loads((tmp_path / "index" / "longdoc_contents.json").read_text())
        assert contents["collection"] == "irds:test-first-stage"
        again = first_stage.bm25("irds:test-first-stage", tmp_path / "index", verbose=False)
        pd.testing.assert_frame_equal(again(TOPICS), retriever(pt.get_dataset(name).get_topics()))


def test_nothing_is_written_to_standard_output(tmp_path, capfd):
    first_stage.bm25(Articles(), tmp_path / "index", verbose=False)(TOPICS)
    print("still here")
    assert capfd.readouterr().out == "still here\n"


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyterrier_pisa", None)
    monkeypatch.setitem(sys.modules, "pyterrier_dr", None)
    with pytest.raises(ImportError, match="pip install pyterrier-pisa"):
        first_stage.bm25(Articles(), tmp_path / "index")
    with pytest.raises(ImportError, match="pip install pyterrier-dr"):
        first_stage.ance(Articles(), tmp_path / "index")


# ANCE ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def encoder():
    """Counts letters: a bi-encoder small enough for a test, whose vectors can be worked out by hand."""
    torch = pytest.importorskip("torch")
    dense = pytest.importorskip("pyterrier_dr")

    class Letters(dense.BiEncoder):
        model_name = "letters"

        def encode_queries_torch(self, texts, batch_size=None):
            return torch.from_numpy(self.encode_docs(texts))

        def encode_docs(self, texts, batch_size=None):
            rows = [[text.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]
            return np.array(rows, np.float32).reshape(-1, 26)

    return Letters()


def test_dense_retrieval(tmp_path, encoder):
    pipeline = first_stage.ance(Articles(), tmp_path / "index", encoder=encoder, num_results=3, verbose=False)
    out = pipeline(TOPICS)
    assert out.groupby("qid").size().to_dict() == dict.fromkeys(QUERIES, 3)
    assert "query_vec" not in out.columns
    texts = text_loader(Articles())(pd.DataFrame({"docno": [article["docno"] for article in ARTICLES]}))
    scores = encoder.encode_docs(texts["text"]) @ encoder.encode_docs([QUERIES["2"]])[0]
    expected = texts.assign(score=scores).nlargest(3, "score")
    assert out[out.qid == "2"]["docno"].tolist() == expected["docno"].tolist()
    assert out[out.qid == "2"]["score"].tolist() == expected["score"].tolist()


def test_vectors_are_computed_once_and_belong_to_their_encoder(tmp_path, encoder):
    again = Articles()
    first_stage.ance(Articles(), tmp_path / "index", encoder=encoder, verbose=False)
    first_stage.ance(again, tmp_path / "index", encoder=encoder, verbose=False)
    assert again.iterated == 0
    encoder.model_name = "other letters"
    with pytest.raises(ValueError, match="encoder 'letters', not encoder 'other letters'"):
        first_stage.ance(Articles(), tmp_path / "index", encoder=encoder, verbose=False)
    with pytest.raises(OSError, match="the disk is gone"):
        first_stage.ance(Broken(), tmp_path / "broken", encoder=encoder, verbose=False)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


# Terrier -------------------------------------------------------------------------------------------------------------


def test_terrier_without_its_jars(tmp_path):
    """In a process of its own: without a network, Java or jars the message says what is missing and what to do."""
    command = (
        "from pyterrier_longdoc import first_stage; import pyterrier as pt; assert not pt.java.started()\n"
        "from tests.article_collection import Articles\n"
        "pt.java.mavenresolver.offline()\n"
        f"first_stage.terrier_bm25(Articles(), {str(tmp_path / 'index')!r})"
    )
    environment = {**os.environ, "PYTERRIER_HOME": str(tmp_path / "home"), "PYTHONPATH": str(Path(__file__).parents[1])}
    result = subprocess.run(
        [sys.executable, "-c", command], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert "RuntimeError: Terrier does not start: it needs Java 11" in result.stderr
    assert "first_stage.bm25 needs neither" in result.stderr


def _has_terrier() -> bool:
    return any(Path(pt.io.pyterrier_home()).glob("terrier-assemblies-*.jar"))


@pytest.mark.skipif(not _has_terrier(), reason="Terrier's jars are not here")
def test_terrier(tmp_path):
    retriever = first_stage.terrier_bm25(Articles(), tmp_path / "index", verbose=False)
    out = retriever(TOPICS)
    assert out[out["rank"] == 0].set_index("qid")["docno"].to_dict() == {"1": "d0", "2": "d1", "10": "null"}
    assert out[out.qid == "10"]["query"].unique().tolist() == [QUERIES["10"]]
