"""Encoded documents are kept, found again, and never mistaken for others."""

import pickle
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch

import pyterrier_longdoc as longdoc
from pyterrier_longdoc.document_cache import DocumentCache
from pyterrier_longdoc.windows import Ragged
from tests.conftest import shake
from tests.test_contract import assert_close


class Encoder:
    """Encodes each token as [token, 10 * token]; remembers how many documents it was asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, documents: Ragged) -> torch.Tensor:
        self.asked.append(len(documents))
        values = torch.from_numpy(documents.values).float()
        return torch.stack([values, 10 * values], dim=1)


@pytest.fixture(params=["memory", "file"])
def path(request, tmp_path):
    return None if request.param == "memory" else str(tmp_path / "cache.sqlite")


@pytest.fixture
def make_ranker(make_ranker):
    """Those that keep encoded documents."""
    if not hasattr(getattr(longdoc, make_ranker.name.split("-")[0]), "encode_documents"):
        pytest.skip(f"{make_ranker.name} keeps no encoded documents")
    return make_ranker


def test_only_unknown_documents_are_encoded(path):
    cache, encode = DocumentCache(path), Encoder()
    first = Ragged.from_lists([[1, 2], [], [3]])
    second = Ragged.from_lists([[4], [3], [1, 2], [], [4]])
    for documents in (first, first, second):
        vectors = cache.vectors("s", documents, encode)
        assert vectors.dtype == torch.float32
        assert vectors.tolist() == [[token, 10 * token] for token in documents.values.tolist()]
    assert len(encode.asked) == 2
    assert encode.asked[0] == 3
    assert len(cache) == 4


def test_other_settings_are_other_entries(path):
    cache, encode = DocumentCache(path), Encoder()
    for settings in ("a", "b", "a"):
        cache.vectors(settings, Ragged.from_lists([[1, 2]]), encode)
    assert encode.asked == [1, 1]


def test_nearly_equal_documents_are_told_apart(path):
    """Keys are made of bytes: where settings end and tokens begin must not matter, nor where documents end."""
    cache, encode = DocumentCache(path), Encoder()
    for lists in ([[1, 2], [3]], [[1], [2, 3]], [[1, 2, 3]], [[1, 2, 3, 0]]):
        vectors = cache.vectors("s", Ragged.from_lists(lists), encode)
        assert vectors[:, 0].tolist() == [token for each in lists for token in each]


def test_documents_without_tokens(path):
    cache, encode = DocumentCache(path), Encoder()
    for _ in range(2):
        assert cache.vectors("s", Ragged.from_lists([[], []]), encode).shape == (0, 2)
    assert len(encode.asked) == 1


def test_a_file_serves_later_sessions_and_other_processes(tmp_path):
    encode = Encoder()
    DocumentCache(tmp_path / "cache").vectors("s", Ragged.from_lists([[1, 2], [3]]), encode)
    again = DocumentCache(str(tmp_path / "cache"))
    assert len(again) == 2
    assert again.vectors("s", Ragged.from_lists([[3]]), encode).tolist() == [[3, 30]]
    assert encode.asked == [2]


def test_the_documents_longest_unused_go_first():
    cache, encode = DocumentCache(max_bytes=3 * 2 * 4), Encoder()  # three tokens of two floats
    for lists in ([[1]], [[2]], [[3]], [[1]], [[4]]):
        cache.vectors("s", Ragged.from_lists(lists), encode)
    assert len(cache) == 3
    encode.asked.clear()
    cache.vectors("s", Ragged.from_lists([[1], [3], [4]]), encode)
    assert encode.asked == []
    cache.vectors("s", Ragged.from_lists([[2]]), encode)
    assert encode.asked == [1]


def test_a_call_may_be_larger_than_the_memory():
    cache, encode = DocumentCache(max_bytes=8), Encoder()
    documents = Ragged.from_lists([[1, 2], [3], [4, 5, 6]])
    assert cache.vectors("s", documents, encode)[:, 0].tolist() == [1, 2, 3, 4, 5, 6]
    assert len(cache) == 1


def test_threads_share_a_cache(path):
    cache, encode = DocumentCache(path), Encoder()

    def work(seed: int) -> None:
        generator = np.random.default_rng(seed)
        for _ in range(10):
            lists = [[int(token)] * 3 for token in generator.integers(0, 9, 4)]
            vectors = cache.vectors("s", Ragged.from_lists(lists), encode)
            assert vectors[:, 0].tolist() == [token for each in lists for token in each]

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert len(cache) == 9


def test_pickled_caches_keep_their_file_only(tmp_path):
    documents, encode = Ragged.from_lists([[1, 2]]), Encoder()
    for cache, known in ((DocumentCache(), 0), (DocumentCache(tmp_path / "cache"), 1)):
        cache.vectors("s", documents, encode)
        copied = pickle.loads(pickle.dumps(cache))
        assert len(copied) == known
        assert copied.max_bytes == cache.max_bytes


@pytest.mark.parametrize("content", [b"this is no database, but some text that is long enough" * 30, None])
def test_a_file_that_is_no_cache_is_named(tmp_path, content):
    file = tmp_path / "notes.txt"
    if content is None:
        with sqlite3.connect(file) as database:
            database.execute("CREATE TABLE documents (title TEXT)")
    else:
        file.write_bytes(content)
    with pytest.raises(ValueError, match=r"notes\.txt is no document cache"):
        DocumentCache(file)
    assert content is None or file.read_bytes() == content


def test_a_cache_in_a_new_folder(tmp_path):
    DocumentCache(tmp_path / "new" / "cache")
    assert (tmp_path / "new" / "cache").exists()


# In a ranker ----------------------------------------------------------------------------------------------------------


def test_documents_are_encoded_once(make_ranker, small, monkeypatch, path):
    ranker = make_ranker()
    expected = ranker(small)["score"]
    assert ranker.encode_documents(small, path) is ranker
    assert len(ranker.document_cache) == small["text"].nunique()

    def refuse(*args, **kwargs):
        raise AssertionError("a document was encoded again")

    monkeypatch.setattr(ranker.model, "encode_documents", refuse)
    assert_close(ranker(small)["score"], expected)
    asked = small.assign(query="w9 w8 w7")
    assert_close(ranker(asked)["score"], make_ranker()(asked)["score"])


def test_from_a_corpus_iterator_with_missing_texts(make_ranker, small):
    ranker = make_ranker()
    ranker.encode_documents({"docno": str(n), "text": text} for n, text in enumerate(["w1", None, "w2 w3", "w1"]))
    assert len(ranker.document_cache) == 3
    ranker.encode_documents(small.iloc[:0])
    assert len(ranker.document_cache) == 3
    ranker.encode_documents([])
    assert len(ranker.document_cache) == 3


def test_new_documents_join(make_ranker, small):
    ranker = make_ranker().encode_documents(small.iloc[:2])
    before = len(ranker.document_cache)
    assert_close(ranker(small)["score"], make_ranker()(small)["score"])
    assert before < len(ranker.document_cache) == small["text"].nunique()


def test_longer_limits_and_other_weights_never_meet_stale_entries(make_ranker, small, path):
    short = make_ranker(max_doc_tokens=20)
    with pytest.warns(UserWarning, match="max_doc_tokens"):
        short.encode_documents(small, path)
    for options in ({}, {"seed": 3}, {"dtype": "bfloat16"}):
        other = make_ranker(**options)
        other.document_cache = short.document_cache
        assert_close(other(small)["score"], make_ranker(**options)(small)["score"])


def test_no_weight_changes_unnoticed(make_ranker, small):
    """Whichever parameter changes, in place as an optimiser changes it, scores are those of the new weights."""
    ranker = make_ranker().encode_documents(small)
    for number, (name, parameter) in enumerate(ranker.model.named_parameters()):
        generator = torch.Generator().manual_seed(number)
        with torch.no_grad():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
        found = ranker(small)["score"]
        fresh = type(ranker).from_model(ranker.model, ranker.tokenizer, model_name=name, max_doc_tokens=None)
        assert_close(found, fresh(small)["score"])


def test_settings_that_leave_no_trace_in_the_weights(tiny, small, path):
    """Two or four heads, cores of 40 or 30 tokens: the same parameters, but not the same vectors."""
    shared = DocumentCache(path)
    for settings in ({}, {"heads": 2}, {"core": 30, "context": 10}):
        ranker, fresh = (shake(longdoc.TKL(tiny.words, **{"heads": 4, **settings})) for _ in range(2))
        ranker.document_cache = shared
        assert_close(ranker(small)["score"], fresh(small)["score"])


def test_a_cache_serves_several_devices_and_copies(make_ranker, frame, path):
    ranker = make_ranker(device=["cpu", "cpu"], batch_size=2).encode_documents(frame.iloc[:10], path)
    expected = make_ranker()(frame)["score"]
    assert_close(ranker(frame)["score"], expected)
    copied = pickle.loads(pickle.dumps(ranker))
    assert_close(copied(frame)["score"], expected)
    changed = ranker.apply_attributes(token_budget=50)
    assert changed.document_cache is ranker.document_cache
    assert_close(pd.Series(changed(frame)["score"]), expected)
