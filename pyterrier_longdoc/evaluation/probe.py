"""The far-relevance probe: does a ranker find what stands late in a document?

In most collections relevant passages stand early, so that a ranker of the first 512 tokens does nearly as well as one
that reads everything, and a test set cannot tell them apart (Boytsov et al., arXiv 2207.01262, whose MS MARCO
FarRelevant this follows). Here the relevant passage stands where one wants it: behind so many words that have nothing
to do with the query. What comes before says nothing about relevance, so a ranker that reads only that is at chance.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_longdoc.checks import check_whole

if TYPE_CHECKING:
    from pyterrier_longdoc.reranker import ReRanker


@dataclass(frozen=True)
class Probe:
    """Documents with one relevant passage each, for one query of several.

    Attributes:
        topics: Columns qid and query.
        results: What a first stage without any knowledge would give: qid, query, docno, text, score (0) and rank.
        qrels: Columns qid, docno and label; one relevant document a query.
        before: Words that stand before the passages.
    """

    topics: pd.DataFrame
    results: pd.DataFrame
    qrels: pd.DataFrame
    before: int

    @property
    def chance(self) -> float:
        """The mean reciprocal rank of a ranker that knows nothing: (1 + 1/2 + ... + 1/n) / n for n documents."""
        count = len(self.results) // len(self.topics)
        return float((1 / np.arange(1, count + 1)).mean())


def far_relevance(
    corpus: Iterable[Mapping[str, str] | str],
    *,
    before: int = 600,
    after: int = 100,
    topics: int = 100,
    candidates: int = 10,
    passage_words: int = 40,
    query_words: int = 5,
    seed: int = 0,
) -> Probe:
    """Makes a probe out of any collection of texts.

    A passage is a stretch of one text; its query are the words of it that fewest texts hold, in their order. Each query
    has ``candidates`` documents, of which one holds its passage and the others those of other queries, all at the same
    place among words of still other texts.

    Args:
        corpus: Texts, or documents with ``text``, such as those of
            :func:`~pyterrier_longdoc.data.fields.corpus_documents`.
        before: Words that stand before the passage.
        after: Words that stand behind it.
        topics: Queries.
        candidates: Documents of each query.
        passage_words: Words of a passage.
        query_words: Words of a query.
        seed: Of every choice.

    Raises:
        ValueError: If a number is out of range, or the collection has too few texts with a passage.
    """
    for name, value, least in (
        ("before", before, 0), ("after", after, 0), ("topics", topics, 2), ("candidates", candidates, 2),
        ("query_words", query_words, 1), ("passage_words", passage_words, query_words),
    ):
        check_whole(name, value, least)
    if candidates > topics:
        raise ValueError(f"{candidates} candidates need as many topics, got {topics}")
    texts = [(text if isinstance(text, str) else text["text"] or "").split() for text in corpus]
    long = [number for number, words in enumerate(texts) if len(words) >= passage_words]
    if len(long) < topics:
        raise ValueError(f"{topics} topics need as many texts of {passage_words} words; the corpus has {len(long)}")
    random = np.random.default_rng(seed)
    sources = random.permutation(long)[:topics]
    passages = [_stretch(texts[number], passage_words, random) for number in sources]
    frequency = Counter(term for words in texts for term in set(_terms(words)))
    queries = [_query(passage, frequency, query_words) for passage in passages]
    filler = _Filler(texts, random)
    documents = [" ".join([*filler.take(before), *passage, *filler.take(after)]) for passage in passages]
    return _probe(queries, documents, candidates, before, random)


def by_position(
    rankers: Mapping[str, ReRanker | pt.Transformer],
    corpus: Iterable[Mapping[str, str] | str],
    positions: Sequence[int] = (0, 200, 600, 1_200),
    **options: Any,  # noqa: ANN401
) -> pd.DataFrame:
    """How well rankers find a passage that stands ever later.

    Args:
        rankers: Rankers by name.
        corpus: As in :func:`far_relevance`.
        positions: Words that stand before the passages.
        **options: As in :func:`far_relevance`.

    Returns:
        One row for each position and ranker, and one named ``"chance"``: ``before``, ``name``, ``RR``.
    """
    texts, rows = list(corpus), []
    for before in positions:
        probe = far_relevance(texts, before=before, **options)
        for name, ranker in rankers.items():
            (value,) = pt.Evaluate(ranker(probe.results), probe.qrels, metrics=[ir_measures.RR]).values()
            rows.append({"before": before, "name": name, "RR": value})
        rows.append({"before": before, "name": "chance", "RR": probe.chance})
    return pd.DataFrame(rows)


class _Filler:
    """Words of the collection, a text after the other in random order, from the beginning again when they run out."""

    def __init__(self, texts: list[list[str]], random: np.random.Generator) -> None:
        self._words = [word for number in random.permutation(len(texts)) for word in texts[number]]
        self._place = 0

    def take(self, count: int) -> list[str]:
        taken = [self._words[(self._place + step) % len(self._words)] for step in range(count)]
        self._place += count
        return taken


def _stretch(words: list[str], count: int, random: np.random.Generator) -> list[str]:
    start = int(random.integers(len(words) - count + 1))
    return words[start : start + count]


def _terms(words: list[str]) -> list[str]:
    """The words without punctuation, in lower case."""
    return re.findall(r"[^\W_]+", " ".join(words).lower())


def _query(passage: list[str], frequency: Counter[str], count: int) -> str:
    terms = list(dict.fromkeys(_terms(passage)))
    rarest = sorted(range(len(terms)), key=lambda place: (frequency[terms[place]], place))[:count]
    return " ".join(terms[place] for place in sorted(rarest))


def _probe(
    queries: list[str], documents: list[str], candidates: int, before: int, random: np.random.Generator
) -> Probe:
    rows = []
    for number, query in enumerate(queries):
        others = np.delete(np.arange(len(documents)), number)
        chosen = random.permutation(np.r_[number, random.choice(others, candidates - 1, replace=False)])
        rows += [(f"q{number}", query, f"d{document}", documents[document]) for document in chosen]
    results = pd.DataFrame(rows, columns=["qid", "query", "docno", "text"]).assign(score=0.0)
    qrels = pd.DataFrame(
        {"qid": f"q{number}", "docno": f"d{number}", "label": 1} for number in range(len(queries))
    )
    topics = pd.DataFrame({"qid": qrels["qid"], "query": queries})
    return Probe(topics, pt.model.add_ranks(results), qrels, before)
