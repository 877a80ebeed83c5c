"""The far-relevance probe: what it is made of, and who is at chance on it."""

import numpy as np
import pytest

import pyterrier_longdoc as longdoc
from pyterrier_longdoc.evaluation.probe import by_position, far_relevance
from tests.conftest import words

SIZES = {"topics": 24, "candidates": 6, "passage_words": 15, "query_words": 4, "after": 10}


@pytest.fixture(scope="module")
def corpus():
    """Texts of frequent words, each with a stretch of rarer ones."""
    generator = np.random.default_rng(0)
    rare = [" ".join(f"w{word}" for word in generator.choice(190, 20) + 10) for _ in range(40)]
    return [{"docno": f"t{n}", "text": f"{words(generator, 20)} {stretch}"} for n, stretch in enumerate(rare)]


def test_the_passage_stands_where_it_was_asked_for(corpus):
    probe = far_relevance(corpus, before=50, **SIZES)
    texts = {document["text"] for document in corpus}
    by_docno = probe.results.drop_duplicates("docno").set_index("docno")["text"]
    assert len(by_docno) == len(probe.topics) == len(probe.qrels) == 24
    for query, docno in zip(probe.topics["query"], probe.qrels["docno"], strict=True):
        tokens = by_docno[docno].split()
        assert len(tokens) == 50 + 15 + 10
        passage = " ".join(tokens[50:65])
        assert any(passage in text for text in texts)
        assert set(query.split()) <= set(passage.split())
        assert len(query.split()) == 4
    assert probe.before == 50


def test_each_query_has_one_relevant_document_somewhere(corpus):
    probe = far_relevance(corpus, before=20, **SIZES)
    assert (probe.results.groupby("qid").size() == 6).all()
    assert not probe.results.duplicated(["qid", "docno"]).any()
    merged = probe.results.merge(probe.qrels, on=["qid", "docno"])
    assert len(merged) == 24
    assert merged["rank"].nunique() > 3  # not always at the same place
    assert probe.chance == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4 + 1 / 5 + 1 / 6) / 6)


def test_a_seed_makes_the_probe(corpus):
    first, again, other = (far_relevance(corpus, before=20, seed=seed, **SIZES) for seed in (1, 1, 2))
    assert first.results.equals(again.results)
    assert not first.results.equals(other.results)
    assert far_relevance([each["text"] for each in corpus], before=20, seed=1, **SIZES).results.equals(first.results)


def test_who_reads_the_head_only_is_at_chance(corpus, tiny):
    """The same ranker, untrained, over all of a document and over its head."""
    rankers = {"all": longdoc.KNRM(tiny.words), "head": longdoc.KNRM(tiny.words, max_doc_tokens=60)}
    with pytest.warns(UserWarning, match="max_doc_tokens=60"):
        table = by_position(rankers, corpus, (0, 300), **SIZES).set_index(["before", "name"])["RR"]
    chance = table[300, "chance"]
    assert table[0, "all"] > 0.7 and table[0, "head"] > 0.7
    assert table[300, "all"] > chance + 0.25
    assert abs(table[300, "head"] - chance) < 0.15


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"before": -1}, "before must be a whole number of at least 0"),
        ({"topics": 1}, "topics must be a whole number of at least 2"),
        ({"candidates": 1}, "candidates must be a whole number of at least 2"),
        ({"query_words": 0}, "query_words must be a whole number of at least 1"),
        ({"passage_words": 3}, "passage_words must be a whole number of at least 4"),
        ({"candidates": 30}, "30 candidates need as many topics, got 24"),
        ({"topics": 41}, "41 topics need as many texts of 15 words; the corpus has 40"),
        ({"passage_words": 100}, "the corpus has 0"),
    ],
)
def test_bad_numbers(corpus, options, message):
    with pytest.raises(ValueError, match=message):
        far_relevance(corpus, **{**SIZES, **options})
