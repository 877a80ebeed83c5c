"""Robustness functions: what shuffling, lengths and numbers of sections do to a matcher."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pyterrier_longdoc as longdoc
from pyterrier_longdoc.evaluation.pair_measures import evaluate_pairs
from pyterrier_longdoc.evaluation.robustness import section_counts, shuffle_texts, shuffled_sections, training_lengths
from pyterrier_longdoc.pairs import score_pairs
from tests.conftest import shake, words

TEXT = "Abstract\nw1 w2. w3 w4.\n\nMethods\nw5 w6. w7 w8.\n\nResults\nw9. w10 w11."


@pytest.fixture(scope="module")
def pairs() -> pd.DataFrame:
    generator = np.random.default_rng(2)
    texts = [" ".join(f"{words(generator, 12)}." for _ in range(8)) for _ in range(24)]
    rows = [(texts[n], f"{texts[n]} {texts[n + 12]}" if n % 2 else texts[n + 12], n % 2) for n in range(12)]
    return pd.DataFrame(rows, columns=["text_a", "text_b", "label"])


@pytest.fixture(scope="module")
def colde(tiny):
    return shake(longdoc.CoLDE(tiny.encoder, chunk_tokens=50, hidden=8, dims=8))


def test_shuffled_texts():
    (moved,) = shuffle_texts([TEXT], 2)
    first, second = TEXT[: TEXT.index("Methods")], TEXT[TEXT.index("Methods") :]
    assert moved == "\n\n".join([second, first.rstrip("\n")])
    for seed in range(5):
        (three,) = shuffle_texts([TEXT], 3, seed)
        assert three != TEXT
        assert sorted(three.split("\n\n")) == sorted(TEXT.split("\n\n"))
    assert shuffle_texts(["w1", ""], 3) == ["w1", ""]
    assert shuffle_texts(["other text", TEXT], 3, 1)[1] == shuffle_texts([TEXT], 3, 1)[0]
    with pytest.raises(ValueError, match="sections must be"):
        shuffle_texts([TEXT], 9)


def test_numbered_sections_may_be_shuffled_and_others_not(colde, pairs):
    found = shuffled_sections(colde, pairs, pairs, samples=200).set_index("shuffled")
    assert list(found.index) == ["text", "numbered"]
    numbered = found.loc["numbered"]
    assert abs(numbered["change"]) < 1e-6 and numbered["absolute_change"] < 1e-6
    assert numbered["accuracy_difference"] == numbered["AUC_difference"] == 0
    assert found.loc["text", "absolute_change"] > 1e-5
    assert found.loc["text", "change_low"] <= found.loc["text", "change"] <= found.loc["text", "change_high"]
    scored = score_pairs(colde, pairs)
    expected = evaluate_pairs(scored, scored, measures=())
    assert found["accuracy"].tolist() == [expected["accuracy"]] * 2
    assert found["AUC"].tolist() == [expected["AUC"]] * 2


def test_another_number_of_sections_is_measured_before_too(colde, pairs):
    found = shuffled_sections(colde, pairs, pairs, sections=4, samples=50).set_index("shuffled")
    for name, ranker in (("text", colde), ("numbered", colde.with_sections(4))):
        scored = score_pairs(ranker, pairs)
        expected = evaluate_pairs(scored, scored, measures=())
        assert found.loc[name, ["accuracy", "AUC"]].tolist() == [expected["accuracy"], expected["AUC"]]
    assert abs(found.loc["numbered", "absolute_change"]) < 1e-6


def test_copies_are_told_apart(colde):
    moved = colde.with_shuffled_sections(1)
    assert len({each.weights_id() for each in (colde, moved, colde.with_shuffled_sections(2))}) == 3
    assert moved.doc_encoder() != colde.doc_encoder()


def test_rankers_without_sections_are_shuffled_as_texts(tiny, pairs):
    ranker = longdoc.MatchBERT(tiny.encoder, pooling="mean")
    found = shuffled_sections(ranker, pairs, pairs, samples=50)
    assert found["shuffled"].tolist() == ["text"]
    moved = pairs.assign(**{f"text_{side}": shuffle_texts(pairs[f"text_{side}"]) for side in "ab"})
    change = score_pairs(ranker, moved)["score"] - score_pairs(ranker, pairs)["score"]
    assert found["change"].iloc[0] == pytest.approx(change.mean())


def test_another_number_of_sections_over_the_same_weights(colde, tiny, pairs):
    other = colde.with_sections(4)
    assert other.model.projection.weight is colde.model.projection.weight
    assert colde.model.config.sections == 2
    assert other.model_name != colde.model_name
    text = pairs["text_a"][0]
    assert other.tokenize([text]).section.max() > colde.tokenize([text]).section.max()
    assert other.with_sections(2).score_pairs([text], [text[:90]], np.array([[0, 0]])) == pytest.approx(
        colde.score_pairs([text], [text[:90]], np.array([[0, 0]]))
    )
    with pytest.raises(ValueError, match="sections must be"):
        colde.with_sections(0)


def test_what_is_not_read_cannot_be_shuffled_in(tiny, pairs):
    """Limits cut documents before they are cut into sections, and these are shuffled last."""
    for options in ({"max_tokens": 30}, {"max_doc_tokens": 30}):
        ranker = longdoc.CoLDE(tiny.encoder, chunk_tokens=20, hidden=8, dims=8, **options)
        with pytest.warns(UserWarning, match="max_(doc_)?tokens=30"):
            plain, moved = (each._read(pairs["text_b"].tolist()) for each in (ranker, ranker.with_shuffled_sections()))
        assert plain.lengths.max() == 30
        assert set(plain.section) == {0, 1}
        assert sorted(plain.values) == sorted(moved.values)
        assert plain.values.tolist() != moved.values.tolist()


def test_shuffling_by_seed(colde, pairs):
    texts = pairs["text_a"].tolist()
    shuffled = colde.with_sections(5).with_shuffled_sections(3)
    first, alone = shuffled.tokenize(texts), shuffled.tokenize(texts[4:5])
    assert first.take(np.array([4])).values.tolist() == alone.values.tolist()
    plain = colde.with_sections(5).tokenize(texts)
    assert sorted(first.values) == sorted(plain.values)
    assert first.values.tolist() != plain.values.tolist()


def test_lengths_and_numbers_of_sections(tiny, pairs):
    def make(sections: int = 2):
        return longdoc.CoLDE(tiny.encoder, sections=sections, chunk_tokens=50, hidden=6, dims=6)

    settings = {"epochs": 1, "batch_size": 12, "verbose": False}
    lengths = training_lengths(make, pairs, pairs, pairs, lengths=[10, 40], **settings)
    assert list(lengths.columns) == ["tokens", "accuracy", "precision", "recall", "F1", "AUC"]
    assert lengths["tokens"].tolist() == [10, 40]
    counts = section_counts(make, pairs, pairs, pairs, counts=[1, 3], **settings)
    assert counts["sections"].tolist() == [1, 3]
    expected = make(3)
    expected.fit_pairs(pairs, pairs, **settings)
    assert counts["AUC"].iloc[1] == pytest.approx(expected.evaluate_pairs(pairs, pairs)["AUC"])
