"""A document's score is a function of query and text alone, and every token of the text counts."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_longdoc.document_cache import DocumentCache
from pyterrier_longdoc.text.tokens import character_spans, tokenize
from tests.conftest import as_frame, words
from tests.test_contract import assert_close


@pytest.fixture(scope="module")
def ranker(make_ranker):
    return make_ranker()


@pytest.fixture(scope="module")
def scored(ranker, _frame) -> pd.DataFrame:
    return ranker(_frame)


@settings(max_examples=25)
@given(st.data())
def test_any_subset_order_batch_and_cache(ranker, scored, data):
    rows = data.draw(st.lists(st.integers(0, len(scored) - 1), min_size=1, max_size=12))
    options = {"batch_size": data.draw(st.integers(1, 20)), "token_budget": data.draw(st.integers(1, 10_000))}
    changed = ranker.apply_attributes(**options)
    if hasattr(ranker, "document_cache"):
        known = data.draw(st.one_of(st.none(), st.lists(st.integers(0, len(scored) - 1), max_size=8)))
        changed.document_cache = None if known is None else DocumentCache()
        if known is not None:
            changed.encode_documents(scored.iloc[known])
    some = scored.iloc[rows]
    assert_close(changed(some)["score"], some["score"])


def test_every_row_alone(ranker, scored):
    alone = pd.concat([ranker(scored.iloc[[row]]) for row in range(len(scored))])
    assert_close(alone["score"], scored["score"])


@pytest.mark.parametrize("devices", [["cpu"], ["cpu", "cpu"], ["cpu"] * 5])
def test_any_number_of_devices(make_ranker, frame, scored, devices):
    assert_close(make_ranker(device=devices, batch_size=2)(frame)["score"], scored["score"])


def test_the_same_call_twice_gives_the_same_bits(ranker, frame):
    assert list(ranker(frame)["score"]) == list(ranker(frame)["score"])


def test_documents_made_of_one_phrase(ranker):
    """Equal regions everywhere: which of them is read must not depend on the company."""
    rows = [("1", "w1 w2", f"d{n}", " ".join(["w1 w4 w2 w3"[: 2 + 3 * (n % 4)]] * 10 * (n + 1))) for n in range(12)]
    frame = as_frame(*rows)
    together = ranker(frame)["score"]
    assert_close(pd.concat([ranker(frame.iloc[[n]]) for n in range(12)])["score"], together)
    assert_close(ranker.apply_attributes(token_budget=123)(frame)["score"], together)


def test_half_precision_is_for_the_encoder_only(make_ranker, frame, scored):
    """Scores are near those of float32 and have no more ties than those; nor do they overflow."""
    for dtype, tolerance in (("bfloat16", 0.2), ("float16", 0.05)):
        out = make_ranker(dtype=dtype)(frame)
        spread = scored["score"].std()
        assert np.abs(out["score"] - scored["score"]).mean() < tolerance * spread
        assert out["score"].nunique() >= 0.95 * scored["score"].nunique()


# Every token counts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 29, 38, 39, 40, 41, 198, 199, 430])
def test_the_last_sentence_counts(ranker, length):
    """Whatever comes last: among eight endings, not all score alike."""
    generator = np.random.default_rng(length)
    head = " ".join(["w199 w198"] * (length // 2))
    rows = [("1", "w1 w2 w3", f"d{n}", f"{head} w{n} {words(generator, n)}") for n in range(1, 9)]
    frame = as_frame(*rows)
    scores = ranker(frame)["score"]
    if getattr(ranker.model.config, "aggregation", None) in ("max", "kmax"):  # the tail need not be among the best
        scores = ranker.explain(frame).frame.groupby("docno")["weight"].last()
    assert scores.nunique() >= 4
    assert scores.std() > 1e-4


def test_the_last_query_term_counts(make_ranker):
    """Queries of any length are read whole, even where a document is cut."""
    ranker = make_ranker(max_doc_tokens=20)
    query = " ".join(f"w{n % 150}" for n in range(300))
    text = "w1 w180 w190 w3"
    assert ranker(as_frame(("1", f"{query} w180", "d", text), ("2", f"{query} w7", "d", text)))["score"].nunique() == 2


def test_truncation_is_counted_and_said_once(make_ranker, frame, documents):
    ranker = make_ranker(max_doc_tokens=50)
    tokens = tokenize(ranker.tokenizer, documents).lengths
    with pytest.warns(UserWarning, match="max_doc_tokens=50") as caught:
        out = ranker(frame)
    (message,) = (str(each.message) for each in caught if "max_doc_tokens" in str(each.message))
    assert repr(ranker) in message
    assert f"{(tokens > 50).sum()} of {len(documents)} documents" in message
    assert f"{(tokens - tokens.clip(max=50)).sum() / tokens.sum():.1%} of all tokens" in message
    assert out["text"].equals(frame["text"])


def test_truncation_reads_the_first_tokens(make_ranker, small):
    cutting, reading = make_ranker(max_doc_tokens=50), make_ranker()

    def cut(text: str) -> str:
        spans = character_spans(reading.tokenizer, text)
        return text if len(spans) <= 50 else text[: spans[49, 1]]

    with pytest.warns(UserWarning, match="max_doc_tokens=50"):
        out = cutting(small)
    assert_close(out["score"], reading(small.assign(text=small["text"].map(cut)))["score"])


def test_within_the_limit_nothing_is_said(make_ranker, small, recwarn):
    longest = max(tokenize(make_ranker().tokenizer, list(small["text"])).lengths)
    make_ranker(max_doc_tokens=int(longest))(small)
    assert not [each for each in recwarn if "max_doc_tokens" in str(each.message)]


def test_tk_reads_200_tokens_unless_told_otherwise(tiny, frame):
    import pyterrier_longdoc as longdoc

    with pytest.warns(UserWarning, match="max_doc_tokens=200"):
        longdoc.TK(tiny.words, heads=4)(frame)
    assert longdoc.TKL(tiny.words, heads=4).max_doc_tokens is None
