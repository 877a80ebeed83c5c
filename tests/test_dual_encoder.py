"""Dual encoders as encoders of pyterrier_dr: the same vectors on every way, and no others taken for theirs."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pyterrier as pt
import pyterrier_dr
import pytest
from pyterrier_dr import FlexIndex, SimFn

import pyterrier_longdoc as longdoc
from pyterrier_longdoc.models.dual_encoder import DualEncoderModel
from tests.conftest import RANKERS, shake

DUAL = [name for name in RANKERS if issubclass(getattr(longdoc, name.split("-")[0]), longdoc.DualEncoder)]


@pytest.fixture(scope="module", params=DUAL)
def encoder(request, tiny):
    return shake(RANKERS[request.param](tiny))


@pytest.fixture(scope="module")
def collection(documents):
    return pd.DataFrame({"docno": [f"d{n}" for n in range(len(documents))], "text": documents})


@pytest.fixture(scope="module")
def index(encoder, collection, tmp_path_factory):
    index = FlexIndex(tmp_path_factory.mktemp("index") / "flex", verbose=False)
    (encoder >> index).index(collection.to_dict("records"))
    return index


@pytest.fixture(scope="module")
def queries():
    return pt.new.queries(["w1 w2 w3", "w5 w150"], qid=["q1", "q2"])


@pytest.fixture(scope="module")
def retrieved(encoder, index, queries):
    return (encoder >> index.np_retriever())(queries)


def close(scores, expected):
    np.testing.assert_allclose(np.asarray(scores, float), np.asarray(expected, float), atol=2e-6)


def by_pair(results):
    return results.set_index(["qid", "docno"])["score"].sort_index()


def test_it_is_both(encoder):
    assert isinstance(encoder, longdoc.ReRanker)
    assert isinstance(encoder, pyterrier_dr.BiEncoder)
    assert isinstance(encoder, pt.Estimator)
    assert encoder.sim_fn is SimFn.dot
    assert encoder.max_length == encoder.max_doc_tokens


def test_columns_decide_what_it_does(encoder, collection, queries):
    encoded = encoder(queries)
    assert list(encoded.columns) == ["qid", "query", "query_vec"]
    encoded = encoder(collection)
    assert list(encoded.columns) == ["docno", "text", "doc_vec"]
    results = queries.merge(collection, how="cross")
    assert list(encoder(results).columns) == ["qid", "query", "docno", "text", "score", "rank"]


@pytest.mark.parametrize("side", ["query", "doc"])
def test_vectors_are_unit_float32(encoder, collection, queries, side):
    vectors = np.stack(encoder(queries)["query_vec"] if side == "query" else encoder(collection)["doc_vec"])
    assert vectors.dtype == np.float32
    assert vectors.shape[1] == encoder.model.dims
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_retrieving_and_reranking_give_the_same_scores(encoder, collection, queries, retrieved):
    assert len(retrieved) == 2 * len(collection)
    results = queries.merge(collection, how="cross")
    close(by_pair(retrieved), by_pair(encoder(results)))
    for scorer in (encoder.scorer(), encoder.text_scorer(batch_size=1)):
        close(by_pair(retrieved), by_pair(scorer(results)))


@pytest.mark.parametrize("kept", [["query", "doc_vec"], ["query_vec", "text"], ["query_vec", "doc_vec"]])
def test_vectors_take_the_place_of_missing_texts(encoder, index, collection, retrieved, kept):
    full = index.vec_loader()(retrieved.merge(collection, on="docno"))[["qid", "docno", *kept]]
    ranked = encoder(full)
    close(by_pair(ranked), by_pair(retrieved))
    pd.testing.assert_frame_equal(ranked[full.columns], full)


def test_vectors_of_another_model_are_not_taken_where_there_is_text(encoder, collection, queries):
    """The trap: a first stage leaves its query_vec, and with the same length nobody would notice."""
    results = queries.merge(collection, how="cross")
    other = np.eye(encoder.model.dims, dtype=np.float32)[0]
    foreign = results.assign(query_vec=[other] * len(results), doc_vec=[-other] * len(results))
    close(encoder(foreign)["score"], encoder(results)["score"])
    close(encoder.scorer()(foreign)["score"], encoder(results)["score"])


@pytest.mark.parametrize("wrong", [
    lambda dims: np.ones(dims + 1, np.float32), lambda dims: np.full(dims, 3, np.float32), lambda dims: None,
    lambda dims: np.full(dims, np.nan, np.float32), lambda dims: np.zeros(dims, np.float32), lambda dims: "0.1 0.2",
])
@pytest.mark.parametrize("column", ["query_vec", "doc_vec"])
def test_foreign_vectors_raise(encoder, index, retrieved, column, wrong):
    full = index.vec_loader()(retrieved)[["qid", "docno", "query_vec", "doc_vec"]]
    vectors = list(full[column])
    vectors[4] = wrong(encoder.model.dims)
    with pytest.raises(ValueError, match=f"1 of|{len(full)} rows hold a {column} that is not of this model") as error:
        encoder(full.assign(**{column: pd.Series(vectors, full.index, dtype=object)}))
    assert repr(full["docno"].iloc[4]) in str(error.value)


def test_result_frames_without_text_are_refused_not_encoded(encoder, queries):
    """pyterrier_dr would encode the queries again, and the results would keep the first stage's scores."""
    results = queries.assign(docno="d1", score=1.0, rank=0)
    with pytest.raises(pt.validate.InputValidationError, match="text"):
        encoder(results)
    with pytest.raises(pt.validate.InputValidationError, match="text"):
        encoder.scorer()(results)


def test_encoding_takes_any_iterable(encoder, documents):
    expected = encoder.encode_docs(documents)
    series = pd.Series(documents, index=range(9, 9 + len(documents)))
    for texts in (iter(documents), np.array(documents, object), series):
        np.testing.assert_array_equal(encoder.encode_docs(texts), expected)
    np.testing.assert_array_equal(encoder.encode_docs([np.nan, None]), encoder.encode_docs(["", ""]))
    np.testing.assert_allclose(encoder.encode_docs_torch(documents).detach().numpy(), expected, atol=2e-6)
    assert encoder.encode_queries_torch(["w1"]).requires_grad


@pytest.mark.parametrize("side", ["encode_queries", "encode_docs"])
def test_what_is_no_list_of_texts(encoder, side):
    encode = getattr(encoder, side)
    for each in (encode, getattr(encoder, f"{side}_torch")):
        with pytest.raises(TypeError, match=r"texts must be a list of texts, got one text: write \['w1 w2'\]"):
            each("w1 w2")
    with pytest.raises(TypeError, match=r"number 1 of the \w+ is int 5, not text"):
        encode(["w1", 5])
    if side == "encode_queries":  # the vector of another query would come back
        with pytest.raises(TypeError, match="number 0 of the queries is NoneType"):
            encode([None, "w1"])
    with pytest.raises(TypeError, match="number 1 of the documents is NoneType"):
        encoder.score_pairs(["w1"], ["w2", None], np.array([[0, 0], [0, 1]]))


def test_nothing_to_encode(encoder, collection, queries):
    for vectors in (encoder.encode_queries([]), encoder.encode_docs([])):
        assert vectors.shape == (0, encoder.model.dims)
        assert vectors.dtype == np.float32
    assert list(encoder(queries.iloc[:0]).columns) == ["qid", "query", "query_vec"]
    assert list(encoder(collection.iloc[:0]).columns) == ["docno", "text", "doc_vec"]
    empty = pd.DataFrame(columns=["qid", "docno", "query_vec", "doc_vec"])
    assert list(encoder(empty).columns) == [*empty.columns, "score", "rank"]


def counting(encode, seen):
    def counted(self, texts, budget):
        seen.append(len(texts))
        return encode(self, texts, budget)

    return counted


def test_each_different_text_is_encoded_once(encoder, collection, queries, monkeypatch):
    model, seen = type(encoder.model), []
    sides = ["encode_documents", "encode_queries"]
    if model.encode_queries is DualEncoderModel.encode_queries:  # which calls the other
        sides.pop()
    for side in sides:
        monkeypatch.setattr(model, side, counting(getattr(model, side), seen))
    twice = pd.concat([queries.merge(collection, how="cross")] * 2)
    encoder(twice)
    assert sum(seen) == len(collection) + len(queries)
    seen.clear()
    encoder(pd.concat([collection] * 3))
    assert sum(seen) == len(collection)


def test_missing_queries_and_texts(encoder, collection, queries):
    with pytest.raises(ValueError, match="1 of 2 rows have no query"):
        encoder(queries.assign(query=["w1", np.nan]))
    with pytest.warns(UserWarning, match="1 of .* rows have no 'text'"):
        out = encoder(collection.assign(text=[np.nan, *collection["text"][1:]]))
    np.testing.assert_allclose(out["doc_vec"].iloc[0], encoder.encode_docs([""])[0], atol=1e-6)


def test_vectors_that_are_not_finite_never_reach_an_index(tiny, collection):
    encoder = longdoc.HAN(tiny.words, hidden=6)
    row = encoder.tokenizer.encode("w9", add_special_tokens=False)[0]
    encoder.model.vectors.weight.data[row] = np.nan
    texts = ["w1", "w2 w9", "w3"]
    for encode, side in ((encoder.encode_queries, "queries"), (encoder.encode_docs, "documents")):
        with pytest.raises(FloatingPointError, match=f"vectors of 1 of 3 {side} are not finite.*number 1"):
            encode(texts)
    with pytest.raises(FloatingPointError):
        encoder(collection.assign(text="w9"))


def test_frames_without_ids_can_be_encoded(encoder):
    texts = pd.DataFrame({"text": ["w1", None]})
    with pytest.warns(UserWarning, match="no 'text'"):
        assert list(encoder.doc_encoder()(texts).columns) == ["text", "doc_vec"]
    assert list(encoder.query_encoder()(pd.DataFrame({"query": ["w1"]})).columns) == ["query", "query_vec"]
    with pytest.raises(ValueError, match="no query"):
        encoder.query_encoder()(pd.DataFrame({"query": ["w1", None]}))


def test_encoders_are_equal_where_weights_and_options_are(tiny):
    one, same, other = (longdoc.HAN(tiny.words, hidden=6, seed=seed) for seed in (1, 1, 2))
    for part in ("query_encoder", "doc_encoder", "scorer"):
        make = [getattr(each, part)() for each in (one, same, other)]
        assert make[0] == make[1] and hash(make[0]) == hash(make[1])
        assert make[0] != make[2]
        assert make[0] != getattr(one.apply_attributes(max_doc_tokens=7), part)()
    assert one.query_encoder() != one.scorer()
    assert repr(one.query_encoder()) == f"{one!r}.query_encoder()"


def test_experiments_keep_encoders_apart(tiny, collection, queries):
    """With plan='tree' equal transformers run once: two encoders must not pass for one."""
    from ir_measures import nDCG

    encoders = [longdoc.HAN(tiny.words, hidden=6, seed=seed) for seed in (1, 2)]
    results = pt.Transformer.from_df(queries.merge(collection, how="cross").assign(score=0.0, rank=0))
    qrels = pd.DataFrame({"qid": ["q1", "q2"] * 3, "docno": [f"d{n}" for n in (4, 7, 9, 11, 13, 14)], "label": 1})
    table = pt.Experiment(
        [results >> each.scorer() for each in encoders], queries, qrels, [nDCG @ 5], names=["a", "b"], plan="tree"
    )
    alone = pt.Experiment([results >> encoders[1].scorer()], queries, qrels, [nDCG @ 5], names=["b"])
    assert table["nDCG@5"].iloc[1] == alone["nDCG@5"].iloc[0]


def test_fit_changes_name_and_equality(tiny, collection, queries):
    encoder = longdoc.HAN(tiny.words, hidden=6)
    results = queries.merge(collection, how="cross")
    qrels = pd.DataFrame({"qid": ["q1", "q2"], "docno": ["d4", "d7"], "label": [1, 1]})
    name, before = encoder.model_name, encoder.query_encoder()(queries)["query_vec"]
    old = longdoc.HAN(tiny.words, hidden=6)
    encoder.fit(results, qrels, epochs=1, max_steps=1, verbose=False)
    assert encoder.model_name != name
    assert encoder.query_encoder() != old.query_encoder()
    assert not np.allclose(np.stack(encoder.query_encoder()(queries)["query_vec"]), np.stack(before))


def test_training_mode_scores_are_logits_of_cosines(encoder, documents):
    """scale·cos + bias, with the learned scale and bias."""
    from pyterrier_longdoc.devices import inference

    model, pairs = encoder.model, np.array([[0, 5], [1, 6]])
    texts = encoder.tokenize(["w1 w2", "w5"]), encoder.tokenize(documents)
    with inference("cpu", None):
        cosines = model(*texts, pairs, encoder.budget())
        assert cosines.abs().max() <= 1 + 1e-6
        try:
            logits = model.train()(*texts, pairs, encoder.budget()) if not _has_dropout(model) else None
        finally:
            model.eval()
        if logits is not None:
            np.testing.assert_allclose(logits, model.scale * cosines + model.bias, atol=1e-5)


def _has_dropout(model) -> bool:
    return any(getattr(module, "p", 0) for module in model.modules() if type(module).__name__ == "Dropout")


def test_only_the_dot_product_is_offered(encoder):
    with pytest.raises(ValueError, match="dot product"):
        encoder.scorer(sim_fn=SimFn.cos)


def test_without_pyterrier_dr_the_message_says_what_to_install():
    code = (
        "import sys; sys.modules['pyterrier_dr'] = None\n"
        "import pyterrier_longdoc\n"
        "try: pyterrier_longdoc.MatchBERT\n"
        "except ImportError as error: print(error)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pip install pyterrier-dr" in out


@pytest.mark.parametrize("size", [0, -1, 1.5])
def test_an_impossible_batch(encoder, size):
    for encode in (encoder.encode_queries, encoder.encode_docs):
        with pytest.raises(ValueError, match="batch_size must be"):
            encode(["w1"], batch_size=size)
