"""What every ranker promises about frames: rows, columns, bad input, memory, and what PyTerrier may ask of it."""

import pickle
import signal
import threading
import time
import unittest

import numpy as np
import pandas as pd
import pyterrier as pt
import pyterrier_dr
import pytest
import torch

import pyterrier_longdoc as longdoc
from tests.conftest import as_frame

TUNABLES = {"batch_size": 3, "token_budget": 77, "max_doc_tokens": 50, "verbose": True}


@pytest.fixture(scope="module")
def ranker(make_ranker):
    return make_ranker()


def assert_close(scores, expected, tolerance: float = 1e-5) -> None:
    scores, expected = np.asarray(scores), np.asarray(expected)
    error = np.abs(scores - expected) / np.maximum(1, np.abs(expected))
    assert len(scores) == len(expected)
    assert not len(error) or error.max() <= tolerance, f"{error.max():.1e}"


def without_work(columns) -> list[str]:
    """Columns without the one in which rankers that read only some passages say how many they read."""
    return [name for name in columns if name != "passages_read"]


# Rows and columns -----------------------------------------------------------------------------------------------------


def test_rows_order_index_and_other_columns_are_kept(ranker, frame):
    before = frame.copy()
    out = ranker(frame)
    pd.testing.assert_frame_equal(frame, before)  # the input is never changed
    others = ["qid", "query", "docno", "text", "note"]
    pd.testing.assert_frame_equal(out[others], frame[others])
    assert without_work(out.columns) == ["qid", "query", "docno", "text", "score", "note", "rank"]
    assert out["score"].dtype == np.float64
    assert not np.allclose(out["score"], frame["score"])


def test_ranks_are_those_of_the_scores(ranker, frame):
    out = ranker(frame)
    assert out["rank"].dtype == np.int64
    for _, rows in out.groupby("qid"):
        assert sorted(rows["rank"]) == list(range(len(rows)))
        assert (np.diff(rows.sort_values("rank")["score"]) <= 0).all()


@pytest.mark.parametrize("index", ["reversed", "duplicated", "strings"])
def test_any_index_will_do(ranker, small, index):
    count = len(small)
    labels = {"reversed": range(count, 0, -1), "duplicated": [7] * count, "strings": list("abcdefghijklmnopqrst")}
    other = small.set_axis(list(labels[index]), axis=0)
    out = ranker(other)
    assert list(out.index) == list(other.index)
    assert list(out["score"]) == list(ranker(small)["score"])


def test_rows_that_occur_twice_are_scored_twice(ranker, small):
    out = ranker(pd.concat([small, small.iloc[:7], small.iloc[:7]]))
    assert len(out) == len(small) + 14
    expected = ranker(small)["score"]
    assert list(out["score"]) == [*expected, *expected[:7], *expected[:7]]
    for _, rows in out.groupby("qid"):
        assert sorted(rows["rank"]) == list(range(len(rows)))


def test_equal_texts_score_alike_and_different_ones_do_not(ranker, small):
    out = ranker(pd.concat([small, small.assign(docno="copy")]))
    assert out.groupby(["qid", "text"])["score"].nunique().eq(1).all()
    assert out.groupby("qid")["score"].nunique().ge(8).all()


@pytest.mark.parametrize("columns", [[], ["score"], ["rank", "score", "note"]])
def test_empty_frames_have_the_same_columns(ranker, small, columns):
    some = small[["qid", "query", "docno", "text", *columns]]
    out = ranker(some.iloc[:0])
    assert len(out) == 0
    assert list(out.columns) == list(ranker(some).columns)
    assert out["score"].dtype == np.float64
    assert out["rank"].dtype == np.int64
    assert pt.inspect.transformer_outputs(ranker, list(some.columns)) == list(out.columns)


def test_another_text_column(make_ranker, small):
    ranker = make_ranker(text_field="body")
    out = ranker(small.rename(columns={"text": "body"}))
    assert list(out["score"]) == list(make_ranker()(small)["score"])
    with pytest.raises(pt.validate.InputValidationError, match="body"):
        ranker(small)


def test_lists_of_rows(ranker):
    frame = as_frame(("1", "w1", "a", "w1 w2"), ("1", "w1", "b", "w3"))
    assert [row["score"] for row in ranker(frame.to_dict("records"))] == list(ranker(frame)["score"])


# Bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["qid", "query", "docno", "text"])
def test_a_missing_column_names_the_ranker(ranker, small, column):
    with pytest.raises(pt.validate.InputValidationError) as error:
        ranker(small.drop(columns=column))
    assert repr(ranker) in str(error.value)
    assert column in str(error.value)


@pytest.mark.parametrize("nothing", [None, np.nan, pd.NA])
def test_missing_texts_are_empty_documents_and_said_once(ranker, small, nothing):
    texts = small["text"].astype(object).copy()
    texts.iloc[[3, 5]] = nothing
    with pytest.warns(UserWarning, match="no 'text'") as caught:
        out = ranker(small.assign(text=texts))
    (message,) = (str(each.message) for each in caught if "no 'text'" in str(each.message))
    assert repr(ranker) in message
    assert f"2 of {len(small)} rows" in message
    assert small["docno"].iloc[3] in message
    assert out["text"].isna().sum() == 2
    texts.iloc[[3, 5]] = ""
    assert list(out["score"]) == list(ranker(small.assign(text=texts))["score"])


def test_a_frame_without_any_text(ranker, small):
    with pytest.warns(UserWarning, match=f"{len(small)} of {len(small)} rows"):
        out = ranker(small.assign(text=np.nan))
    assert np.isfinite(out["score"]).all()


@pytest.mark.parametrize("nothing", [None, np.nan, pd.NA])
def test_a_missing_query_raises(ranker, small, nothing):
    queries = small["query"].astype(object).copy()
    queries.iloc[4] = nothing
    with pytest.raises(ValueError, match=f"1 of {len(small)} rows have no query.*{small['qid'].iloc[4]}"):
        ranker(small.assign(query=queries))


@pytest.mark.parametrize(("column", "value"), [("text", 5), ("text", ["w1"]), ("text", b"w1"), ("query", 5.5)])
def test_what_is_no_text_raises(ranker, small, column, value):
    values = small[column].astype(object).copy()
    values.iloc[2] = value
    with pytest.raises(TypeError, match=f"{column}.*{type(value).__name__}.*{small['docno'].iloc[2]}"):
        ranker(small.assign(**{column: values}))


def test_queries_and_documents_without_tokens(ranker):
    texts = ["", "   ", "w1 w2", "unheard"]
    rows = [(f"q{q}", query, f"d{n}", text) for n, text in enumerate(texts) for q, query in enumerate(texts)]
    out = ranker(as_frame(*rows))
    assert np.isfinite(out["score"]).all()
    assert len(out) == 16


def test_signs_that_break_tokenizers(ranker):
    texts = ["w1 \ud83d w2", "w1 \0 w5", "w1 \0 w9", "w1\u2028w2\r\n", "\U0001f600" * 5, "ﷺ w1", "w1\u200bw2"]
    out = ranker(as_frame(*(("1", "w1 \udc00", f"d{n}", text) for n, text in enumerate(texts))))
    assert np.isfinite(out["score"]).all()
    assert out["score"].iloc[1] != out["score"].iloc[2]  # what follows a zero sign counts


def test_scores_that_are_not_finite_raise(make_ranker, small):
    ranker = make_ranker()
    with torch.no_grad():
        for parameter in ranker.model.parameters():
            parameter.fill_(torch.nan)
    with pytest.raises(FloatingPointError, match=f"{len(small)} of {len(small)} scores are not finite") as error:
        ranker(small)
    assert repr(ranker) in str(error.value)
    assert small["docno"].iloc[0] in str(error.value)


def test_one_broken_vector_is_counted(make_ranker):
    """Only the documents that hold its term; in half precision the message says what to try."""
    ranker = make_ranker(dtype="bfloat16")
    tables = ("vectors.weight", "word_embeddings.weight")
    name = next(name for name, _ in ranker.model.named_parameters() if name.endswith(tables))
    texts = ["w1 w2", "w3 w9 w3", " ".join(["w2"] * 90)]
    broken = as_frame(*(("1", "w1", f"d{n}", text) for n, text in enumerate(texts, 1)))
    (row,) = ranker.tokenizer.encode("w9", add_special_tokens=False)
    with torch.no_grad():
        ranker.model.get_parameter(name)[row] = torch.nan
    with pytest.raises(FloatingPointError, match=r"1 of 3 scores are not finite.*'d2'.*float32"):
        ranker(broken)


@pytest.mark.parametrize("name", ["batch_size", "token_budget", "max_doc_tokens"])
@pytest.mark.parametrize("value", [0, -5, 2.5, "7", True])
def test_options_are_checked_whenever_they_are_set(make_ranker, name, value):
    with pytest.raises(ValueError, match=f"{name} must be a whole number of at least 1"):
        make_ranker(**{name: value})
    ranker = make_ranker()
    with pytest.raises(ValueError, match=f"{name} must be"):
        ranker.set_parameter(name, value)
    with pytest.raises(ValueError, match=f"{name} must be"):
        ranker.apply_attributes(**{name: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "cuda:99"}, "device 'cuda:99' cannot be used here"),
        ({"device": "abacus"}, "device 'abacus' cannot be used here"),
        ({"device": []}, "empty list"),
        ({"dtype": "float8"}, "dtype must be 'auto' or one of"),
    ],
)
def test_devices_and_precision_are_checked(make_ranker, options, message):
    with pytest.raises(ValueError, match=message):
        make_ranker(**options)


def test_unknown_options_raise(make_ranker):
    with pytest.raises(TypeError, match="bach_size"):
        make_ranker(bach_size=3)
    with pytest.raises(ValueError, match="Invalid parameter name bach_size"):
        make_ranker().set_parameter("bach_size", 3)


# Memory ---------------------------------------------------------------------------------------------------------------


def break_above(model: torch.nn.Module, method: str, limit: int, error: Exception, monkeypatch) -> list[int]:
    """Lets a method of a model run out of memory for batches of more than ``limit`` items."""
    compute, sizes = getattr(model, method), []
    counted = 0 if method in ("contextualize_windows", "encode_documents") else 1

    def limited(*args, **kwargs):
        if len(args[counted]) > limit:
            raise error
        sizes.append(len(args[counted]))
        return compute(*args, **kwargs)

    monkeypatch.setattr(model, method, limited)
    return sizes


def steps(ranker) -> set[str]:
    """The methods of its model by which a ranker scores."""
    if isinstance(ranker, longdoc.DualEncoder):
        return {"encode_documents"}
    return {name for name in ("forward", "contextualize_windows", "interact") if hasattr(ranker.model, name)}


@pytest.mark.parametrize("method", ["forward", "contextualize_windows", "interact", "encode_documents"])
@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_memory_that_runs_out_is_not_the_end(make_ranker, small, monkeypatch, method, error):
    ranker = make_ranker()
    if method not in steps(ranker):
        pytest.skip(f"{ranker} does not score by {method}")
    small = small[small["qid"] == "q1"]
    expected = ranker(small)["score"]
    sizes = break_above(ranker.model, method, 1, error, monkeypatch)
    with pytest.warns(RuntimeWarning, match="out of memory: going on with batches of"):
        out = ranker(small)
    assert_close(out["score"], expected)
    assert sizes
    assert max(sizes) == 1


def test_one_document_that_does_not_fit_raises(make_ranker, small, monkeypatch):
    ranker = make_ranker()
    method = "encode_documents" if isinstance(ranker, longdoc.DualEncoder) else "forward"
    break_above(ranker.model, method, 0, torch.OutOfMemoryError("CUDA out of memory."), monkeypatch)
    with pytest.raises(torch.OutOfMemoryError), pytest.warns(RuntimeWarning, match="out of memory"):
        ranker(small)


def _break() -> None:
    raise KeyError("broken")


def _interrupt() -> None:
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


@pytest.mark.parametrize(("fail", "error"), [(_break, KeyError), (_interrupt, KeyboardInterrupt)])
def test_an_error_on_one_device_or_ctrl_c_stops_all(make_ranker, frame, monkeypatch, fail, error):
    """Nobody wants to wait for the rest of the pool."""
    ranker, calls = make_ranker(device=["cpu", "cpu"], batch_size=1), []

    def compute(self, model, queries, documents, pairs, budget):
        calls.append(1)
        if len(calls) == 3:
            fail()
        time.sleep(0.02)
        return torch.zeros(len(pairs))

    def encode(self, documents, budget):
        if len(documents.values) > 10:  # no query
            compute(ranker, self, None, documents, [0], budget)
        return torch.zeros(len(documents), self.dims)

    monkeypatch.setattr(type(ranker), "_score_group", compute)
    if isinstance(ranker, longdoc.DualEncoder):
        monkeypatch.setattr(type(ranker.model), "encode_documents", encode)
    with pytest.raises(error):
        ranker(frame)
    assert len(calls) < 10  # of 18 different texts


# What PyTerrier may ask -----------------------------------------------------------------------------------------------


def test_inspectable_and_drawn_offline(ranker, monkeypatch):
    def no_network(*args, **kwargs):
        raise OSError("the test has no network")

    monkeypatch.setattr("socket.socket.connect", no_network)
    monkeypatch.setattr("urllib.request.urlopen", no_network)
    case = pt.testing.transformer_test_class(lambda: ranker)
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    assert result.testsRun == 2
    assert not result.errors + result.failures
    first, *others = pt.inspect.transformer_inputs(ranker)
    assert first == ["qid", "docno", "query", "text"]
    assert not others or isinstance(ranker, pyterrier_dr.BiEncoder)  # which encodes, too
    assert type(ranker).__name__ in ranker._repr_html_()
    pt.schematic.draw(pt.Transformer.identity() >> ranker % 3)


def test_outputs_are_known_without_scoring(ranker, monkeypatch):
    monkeypatch.setattr(type(ranker), "score_pairs", None)
    outputs = pt.inspect.transformer_outputs(ranker, ["qid", "query", "docno", "text", "url"])
    assert without_work(outputs) == ["qid", "query", "docno", "text", "url", "score", "rank"]


def test_attributes_are_options_not_weights(ranker):
    shown = {attribute.name: attribute.value for attribute in pt.inspect.transformer_attributes(ranker)}
    assert TUNABLES.keys() | {"model_name", "text_field"} <= shown.keys()
    assert all(value is None or isinstance(value, str | int) for value in shown.values())
    assert pt.inspect.subtransformers(ranker) == {}


def test_other_options_share_the_weights(make_ranker, small):
    ranker = make_ranker()
    changed = pt.inspect.transformer_apply_attributes(ranker, **TUNABLES)
    assert changed.model is ranker.model
    assert {name: getattr(changed, name) for name in TUNABLES} == TUNABLES
    assert ranker.max_doc_tokens is None
    with pytest.warns(UserWarning, match="max_doc_tokens=50"):
        assert not np.allclose(changed(small)["score"], ranker(small)["score"])


def test_hash_and_repr_do_not_change_with_options(make_ranker):
    ranker = make_ranker()
    before = hash(ranker), repr(ranker)
    for name, value in TUNABLES.items():
        ranker.set_parameter(name, value)
        assert ranker.get_parameter(name) == value
    assert (hash(ranker), repr(ranker)) == before


def test_other_weights_and_settings_have_other_names(make_ranker):
    without_seed = {"KNRM": {"exact_width": 0.01}, "MatchBERT": {"pooling": "mean"}}  # nothing in them is random
    other = without_seed.get(make_ranker.name, {"seed": 1})
    names = {repr(make_ranker()), repr(make_ranker(**other))}
    assert len(names) == 2
    assert repr(make_ranker()) in names


def test_copies_travel_by_pickle(ranker, small):
    copied = pickle.loads(pickle.dumps(ranker))
    assert (hash(copied), repr(copied)) == (hash(ranker), repr(ranker))
    assert list(copied(small)["score"]) == list(ranker(small)["score"])
    assert copied.model is not ranker.model


def test_frozen_scores_alike_and_is_never_fitted(ranker, small):
    frozen = ranker.frozen()
    assert not isinstance(frozen, pt.Estimator)
    pd.testing.assert_frame_equal(frozen(small), ranker(small))
    assert pt.inspect.transformer_outputs(frozen, list(small.columns)) == list(frozen(small).columns)
    assert list(pickle.loads(pickle.dumps(frozen))(small)["score"]) == list(ranker(small)["score"])
    assert repr(frozen) == f"{ranker!r}.frozen()"
    with pytest.raises(pt.validate.InputValidationError):
        frozen(small.drop(columns="text"))


def test_scoring_leaves_the_global_random_state_alone(ranker, small):
    torch.manual_seed(0)
    np.random.seed(0)
    before = torch.rand(1), np.random.rand()
    torch.manual_seed(0)
    np.random.seed(0)
    ranker(small)
    assert (torch.rand(1), np.random.rand()) == before


def test_building_leaves_the_global_random_state_alone(make_ranker):
    torch.manual_seed(0)
    before = torch.rand(1)
    torch.manual_seed(0)
    make_ranker(shaken=False)
    assert torch.rand(1) == before


def test_a_seed_makes_the_weights(make_ranker, small):
    if make_ranker.name == "MatchBERT":
        pytest.skip("all of it comes from its encoder")
    first, again, other = (make_ranker(shaken=False, seed=seed) for seed in (3, 3, 4))
    assert list(first(small)["score"]) == list(again(small)["score"])
    if make_ranker.name != "KNRM":  # in which nothing starts at random
        assert list(first(small)["score"]) != list(other(small)["score"])


def test_progress_is_shown_on_request(make_ranker, small, capsys):
    ranker = make_ranker()
    capsys.readouterr()
    ranker(small)
    assert capsys.readouterr().err == ""
    ranker = make_ranker(verbose=True)
    capsys.readouterr()
    ranker(small)
    shown = capsys.readouterr().err
    assert type(ranker).__name__ in shown
    assert "10/10" in shown  # documents
    ranker(small.iloc[:0])
    assert capsys.readouterr().err == ""


def test_a_model_that_exists_can_be_wrapped(make_ranker, small):
    ranker = make_ranker()
    wrapped = type(ranker).from_model(ranker.model, ranker.tokenizer, model_name="mine", max_doc_tokens=None)
    assert repr(wrapped) == f"{type(ranker).__name__}('mine')"
    assert list(wrapped(small)["score"]) == list(ranker(small)["score"])
