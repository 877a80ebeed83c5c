"""Indexes come out the same bit for bit, whatever was killed and whoever encoded what; foreign ones are refused."""

import json
import os
import signal
import threading

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from pyterrier_dr import FlexIndex

from pyterrier_longdoc.index_scorer import IndexScorer, check_index
from pyterrier_longdoc.indexing import build_index
from tests.index_task import SHARD, build, build_and_die, content, corpus, encoder


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return build(tmp_path_factory.mktemp("whole") / "index")


@pytest.fixture(scope="module")
def expected(whole):
    return content(whole.index_path)


@pytest.fixture(scope="module")
def queries():
    return pt.new.queries(["w1 w2 w3", "w120"], qid=["q1", "q2"])


@pytest.fixture(scope="module")
def results(queries):
    some = pd.DataFrame(corpus()).iloc[5:300:9]
    return queries.merge(some, how="cross").sample(frac=1, random_state=1)


def shards(path):
    return sorted(each.name for each in path.with_name(path.name + ".shards").glob("[0-9]*.npz"))


def test_an_index_holds_all_documents_in_order(whole):
    docnos, vectors, meta = whole.payload()
    own = encoder()
    assert list(docnos) == [document["docno"] for document in corpus()]
    np.testing.assert_allclose(vectors, own.encode_docs([document["text"] for document in corpus()]), atol=1e-6)
    assert meta["encoder"] == {"encoder": "HAN", "weights": own.weights_id(), "max_doc_tokens": None}
    assert not list(whole.index_path.parent.glob("*.shards")) and not list(whole.index_path.parent.glob(".*"))


def test_the_pipeline_builds_it(expected, tmp_path):
    index = FlexIndex(tmp_path / "pipeline", verbose=False)
    assert (encoder() >> index).index(corpus(), batch_size=SHARD) is index
    assert content(index.index_path) == expected
    check_index(encoder(), index)
    with pytest.raises(ValueError, match="was encoded by another encoder"):
        check_index(encoder(seed=1), index)
    plain = FlexIndex(tmp_path / "plain", verbose=False)
    (encoder().doc_encoder() >> plain).index(corpus(), batch_size=SHARD)
    assert content(plain.index_path) == expected


def test_a_pipeline_that_was_interrupted_goes_on(expected, tmp_path):
    def cut_off():
        yield from corpus()[: 3 * SHARD + 5]
        raise KeyboardInterrupt

    index = FlexIndex(tmp_path / "index", verbose=False)
    with pytest.raises(KeyboardInterrupt):
        (encoder() >> index).index(cut_off(), batch_size=SHARD)
    assert len(shards(index.index_path)) == 3 and not index.built()
    (encoder() >> index).index(corpus(), batch_size=SHARD)
    assert content(index.index_path) == expected


def test_the_pipeline_shares_its_work_and_shows_progress(expected, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("1", "0"):
        monkeypatch.setenv("RANK", rank)
        index = FlexIndex(tmp_path / "index")
        (encoder() >> index).index(iter(corpus()), batch_size=SHARD)
        assert index.built() == (rank == "0")
        assert "HAN indexes" in capsys.readouterr().err
    assert content(index.index_path) == expected


def test_only_an_index_behind_the_encoder_itself_is_built_so(tmp_path):
    own, index = encoder(), FlexIndex(tmp_path / "index", verbose=False)
    other = pt.apply.generic(lambda frame: frame.assign(text="w9"))
    assert type(own >> index.indexer(mode="overwrite")) is type(other >> own)
    (other >> (own >> index)).index(corpus()[:3])
    np.testing.assert_allclose(index.payload()[1], own.encode_docs(["w9"] * 3), atol=1e-6)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_at_every_awkward_moment(expected, tmp_path):
    path = tmp_path / "index"
    for event, number, done in (("writing", 2, 1), ("wrote", 3, 4), ("writing", 1, 4), ("joining", 0, 10)):
        assert build_and_die(path, event, number) == -signal.SIGKILL
        assert len(shards(path)) == done
        assert not path.exists()
    assert build_and_die(path, "joined", 0) == -signal.SIGKILL
    assert path.exists() and shards(path)
    index = build(path)
    assert content(index.index_path) == expected
    assert [each.name for each in tmp_path.iterdir()] == ["index"]  # no kill left anything behind


def test_finished_shards_are_not_encoded_again(expected, tmp_path, monkeypatch):
    path, own, counts = tmp_path / "index", encoder(), []
    encode = type(own).encode_docs

    def counted(self, texts):
        if len(counts) == 4:
            raise KeyboardInterrupt
        counts.append(len(texts))
        return encode(self, texts)

    monkeypatch.setattr(type(own), "encode_docs", counted)
    with pytest.raises(KeyboardInterrupt):
        build(path)
    assert len(shards(path)) == 4
    counts[:] = [0] * 5  # no more interrupts
    assert content(build(path).index_path) == expected
    assert counts[5:] == [SHARD] * 5 + [600 - 9 * SHARD]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_processes_share_the_shards(expected, tmp_path, order):
    path = tmp_path / "index"
    for rank in order:
        index = build(path, rank=rank, world_size=3)
        assert index.built() == (rank == order[-1])
    assert content(path) == expected


def test_processes_at_the_same_time(expected, tmp_path):
    path = tmp_path / "index"
    own = [encoder() for _ in range(3)]
    workers = [
        threading.Thread(target=build, args=(path, own[n]), kwargs={"rank": n, "world_size": 3}) for n in range(3)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert content(build(path).index_path) == expected


def test_rank_and_world_size_come_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert not build(tmp_path / "index").built()
    assert shards(tmp_path / "index") == [f"{n:06d}.npz" for n in (1, 3, 5, 7, 9)]


@pytest.mark.parametrize(("rank", "world_size"), [(2, 2), (-1, 2), (0, 0)])
def test_places_that_do_not_exist(tmp_path, rank, world_size):
    with pytest.raises(ValueError, match="rank must be from 0 to world_size - 1"):
        build(tmp_path / "index", rank=rank, world_size=world_size)


def test_frames_iterators_and_the_method(expected, tmp_path):
    frame = encoder().build_index(pd.DataFrame(corpus()), tmp_path / "a", shard_size=SHARD, verbose=False)
    stream = encoder().build_index(iter(corpus()), str(tmp_path / "b"), shard_size=SHARD, verbose=False)
    assert content(frame.index_path) == content(stream.index_path) == expected


def test_a_finished_index_is_given_back(whole, expected, monkeypatch):
    monkeypatch.setattr(type(encoder()), "encode_docs", None)
    assert build(whole.index_path, shard_size=9).index_path == whole.index_path
    assert content(whole.index_path) == expected


def test_a_finished_index_of_other_documents_is_not(whole, expected):
    for documents in (corpus()[1:], corpus()[::-1], corpus(601), []):
        with pytest.raises(ValueError, match="already holds an index of other documents"):
            build_index(encoder(), documents, whole.index_path, verbose=False)
    assert content(whole.index_path) == expected


def test_progress_is_shown_on_request(tmp_path, capsys):
    build(tmp_path / "quiet")
    assert capsys.readouterr().err == ""
    build(tmp_path / "loud", verbose=True)
    assert "HAN indexes" in (shown := capsys.readouterr().err) and "600/600" in shown


# What is refused ------------------------------------------------------------------------------------------------------


def interrupted(path):
    build(path, rank=0, world_size=2)
    return path


def test_shards_of_another_encoder_or_setting(tmp_path):
    path = interrupted(tmp_path / "index")
    others = (encoder(seed=1), encoder(max_doc_tokens=5), encoder(dtype="bfloat16"))
    for other, size in (*((other, SHARD) for other in others), (encoder(), SHARD + 1)):
        with pytest.raises(ValueError, match=r"holds shards of another encoder or other settings.*begin anew"):
            build_index(other, corpus(), path, shard_size=size, verbose=False)


@pytest.mark.parametrize("change", ["text", "docno", "order", "shorter"])
def test_another_collection(tmp_path, change):
    path, documents = interrupted(tmp_path / "index"), corpus()
    if change == "order":
        documents = documents[::-1]
    elif change == "shorter":
        documents = documents[1:]
    else:
        documents[3] = {**documents[3], change: "other"}
    with pytest.raises(ValueError, match="was encoded from other documents"):
        build_index(encoder(), documents, path, shard_size=SHARD, verbose=False)


def test_an_index_that_is_there(whole, tmp_path):
    with pytest.raises(ValueError, match="already holds an index"):
        build_index(encoder(seed=1), corpus(), whole.index_path, verbose=False)
    (tmp_path / "else").mkdir()
    with pytest.raises(ValueError, match="is no index"):
        build(tmp_path / "else")


def test_what_lies_where_shards_would_is_never_removed(tmp_path):
    mine = tmp_path / "index.shards" / "thesis.txt"
    mine.parent.mkdir()
    mine.write_text("years of work")
    with pytest.raises(ValueError, match="is where shards would lie, but holds 'thesis.txt'"):
        build(tmp_path / "index")
    assert [each.name for each in mine.parent.iterdir()] == ["thesis.txt"]


def test_a_docno_that_occurs_twice_is_found_before_its_shard_is_encoded(tmp_path):
    documents = [*corpus()[: 2 * SHARD], corpus()[0], *corpus()[2 * SHARD :]]
    with pytest.raises(ValueError, match="holds docno 'd0' twice"):
        build_index(encoder(), documents, tmp_path / "index", shard_size=SHARD, verbose=False)
    assert len(shards(tmp_path / "index")) == 2


@pytest.mark.parametrize(
    ("documents", "error", "message"),
    [
        ([], ValueError, "holds no documents"),
        ([{"docno": "a", "text": "w1"}, {"docno": "a", "text": "w2"}], ValueError, "docno 'a' twice"),
        ([{"docno": 1, "text": "w1"}], ValueError, "a docno must be a string, got"),
        ([{"docno": "a", "body": "w1"}], pt.validate.InputValidationError, "text"),
        ([{"docno": "a", "text": 5}], TypeError, "holds int"),
    ],
)
def test_unfit_collections(tmp_path, documents, error, message):
    with pytest.raises(error, match=message):
        build_index(encoder(), documents, tmp_path / "index", verbose=False)
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("size", [0, 2.5, True, "9"])
def test_an_impossible_shard(tmp_path, size):
    with pytest.raises(ValueError, match="shard_size must be a whole number of at least 1"):
        build(tmp_path / "index", shard_size=size)


def test_missing_texts_are_said_and_encoded_as_empty(tmp_path):
    with pytest.warns(UserWarning, match="1 of 2 rows have no 'text'"):
        index = build_index(
            encoder(), [{"docno": "a", "text": None}, {"docno": "b", "text": "w1"}], tmp_path / "index", verbose=False
        )
    np.testing.assert_allclose(index.payload()[1][0], encoder().encode_docs([""])[0], atol=1e-6)


# What it is good for --------------------------------------------------------------------------------------------------


def ranking(results):
    return {qid: list(rows.sort_values("rank")["docno"]) for qid, rows in results.groupby("qid")}


def test_every_retriever_finds_the_same(whole, queries):
    own = encoder()
    found = {}
    for name in ("np", "torch", "faiss_hnsw"):
        if name == "faiss_hnsw":
            pytest.importorskip("faiss")
        found[name] = (own >> getattr(whole, f"{name}_retriever")() % 10)(queries)
    for results in found.values():
        assert ranking(results) == ranking(found["np"])


def test_reranking_from_the_index_needs_no_text(whole, results):
    own = encoder()
    expected = own(results)
    out = own.index_scorer(whole)(results.drop(columns="text"))
    np.testing.assert_allclose(out["score"], expected["score"], atol=1e-6)
    pd.testing.assert_frame_equal(out.drop(columns=["score", "rank"]), results.drop(columns="text"))
    assert list(out["rank"]) == list(expected["rank"])
    assert out["score"].dtype == np.float64


def test_reranking_from_the_index_ignores_vectors_and_texts_of_the_frame(whole, results):
    scorer = encoder().index_scorer(whole)
    foreign = results.assign(text="w9", query_vec=[np.ones(3)] * len(results), doc_vec=[np.ones(3)] * len(results))
    out = scorer(foreign)
    assert list(out["score"]) == list(scorer(results)["score"])
    assert list(out["text"]) == ["w9"] * len(results)


def test_any_index_of_a_frame_and_rows_that_occur_twice(whole, results):
    scorer = encoder().index_scorer(whole)
    twice = pd.concat([results, results.iloc[:3]]).set_axis([7] * (len(results) + 3), axis=0)
    out = scorer(twice)
    assert list(out["score"]) == [*scorer(results)["score"], *scorer(results)["score"].iloc[:3]]
    assert list(out.index) == [7] * len(out)


def test_a_document_that_is_not_in_the_index_raises(whole, results):
    """FlexIndex itself would take the vector of the last document."""
    with pytest.raises(ValueError, match=r"2 of .* documents are not in the index \(first docno 'unheard'\)"):
        encoder().index_scorer(whole)(results.assign(docno=["unheard", "of", *results["docno"][2:]]))


def test_inspection_of_the_index_scorer(whole, queries):
    scorer = encoder().index_scorer(whole)
    assert pt.inspect.transformer_inputs(scorer) == [["qid", "docno", "query"]]
    outputs = pt.inspect.transformer_outputs(scorer, ["qid", "query", "docno"])
    assert outputs == ["qid", "query", "docno", "score", "rank"]
    assert pt.inspect.subtransformers(scorer) == {}
    assert "HAN" in scorer._repr_html_()
    assert isinstance(scorer, IndexScorer) and "index_scorer(FlexIndex(" in repr(scorer)


def test_an_index_of_other_vectors_is_refused(whole, tmp_path):
    check_index(encoder(), whole)
    for other in (encoder(seed=1), encoder(max_doc_tokens=3)):
        with pytest.raises(ValueError, match="was encoded by another encoder"):
            other.index_scorer(whole)
        with pytest.raises(ValueError, match="was encoded by another encoder"):
            other >> whole.np_retriever()
    queries = pd.DataFrame({"qid": ["1"], "query": ["w1 w2"]})
    found = [(each >> whole.np_retriever(num_results=3))(queries) for each in (encoder(), encoder().query_encoder())]
    assert list(found[0]["docno"]) == list(found[1]["docno"]) and len(found[0]) == 3
    assert encoder(seed=1) >> whole.vec_loader()
    (tmp_path / "empty").mkdir()
    for unfinished in ("later", "empty"):
        assert encoder() >> FlexIndex(tmp_path / unfinished, verbose=False).np_retriever()
    foreign = (("wide", np.ones(9), "vectors of 9 values"), ("long", np.ones(8), "length 2.83, not 1"))
    for name, vector, message in foreign:
        index = FlexIndex(tmp_path / name, verbose=False)
        index.index([{"docno": docno, "doc_vec": vector} for docno in ("a", "bc")])
        with pytest.raises(ValueError, match=message):
            encoder().index_scorer(index)


def test_indexes_of_other_pipelines_do_not_say_whose_they_are(tmp_path, results):
    own = encoder()
    index = FlexIndex(tmp_path / "index", verbose=False)
    (own.doc_encoder() >> index).index(corpus())
    assert "encoder" not in json.loads((index.index_path / "pt_meta.json").read_text())
    np.testing.assert_allclose(own.index_scorer(index)(results)["score"], own(results)["score"], atol=1e-6)
