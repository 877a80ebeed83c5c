"""HAN and SMASH as transformers: their explanations add up, and every length of document is read."""

import numpy as np
import pytest

import pyterrier_longdoc as longdoc
from tests.conftest import as_frame, shake

TEXT = "w1 w2 w3. w4 w5 w6 w7.\n\nw8 w9. w10 w11 w12."


@pytest.fixture(params=["HAN", "SMASH"])
def ranker(request, tiny):
    return shake(getattr(longdoc, request.param)(tiny.words, hidden=6))


def test_weights_add_up_to_the_score(ranker, frame):
    """The cosine is linear in what the highest floor of each tower sums up."""
    explanation = ranker.explain(ranker(frame)).frame
    sums = explanation.groupby(["qid", "docno"])["weight"].sum()
    scores = explanation.groupby(["qid", "docno"])["score"].first()
    np.testing.assert_allclose(sums, scores, atol=1e-5)


def test_windows_are_sentences_and_paragraphs_of_the_text(ranker):
    shown = ranker.explain(as_frame(("q", "w1", "d", TEXT))).frame
    texts = shown.groupby("kind", sort=False)["text"].agg(list).to_dict()
    sentences = ["w1 w2 w3", "w4 w5 w6 w7", "w8 w9", "w10 w11 w12"]
    assert [text.rstrip(".") for text in texts["sentence"]] == sentences
    if isinstance(ranker, longdoc.SMASH):
        assert [text.rstrip(".") for text in texts["paragraph"]] == ["w1 w2 w3. w4 w5 w6 w7", "w8 w9. w10 w11 w12"]


def test_sentences_count_and_not_only_words(ranker):
    one, other = TEXT, TEXT.replace(".", "").replace("\n\n", " ")
    scores = ranker(as_frame(("q", "w1 w5. w9", "a", one), ("q", "w1 w5. w9", "b", other)))["score"]
    assert abs(scores.iloc[0] - scores.iloc[1]) > 1e-4


def test_token_vectors_learn_at_their_own_rate(tiny, frame):
    from tests.pair_task import encoder, pairs

    own = encoder()
    before = own.model.vectors.weight.detach().clone()
    own.fit_pairs(pairs(16), epochs=1, representation_lr=0.0, verbose=False)
    assert (own.model.vectors.weight == before).all()
