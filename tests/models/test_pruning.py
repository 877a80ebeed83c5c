"""Which passages are read when not all are."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_longdoc.models.pruning import SELECTORS, best, first, sampled, selector_of, term_overlap


def test_term_overlap_by_hand():
    """Passages [5 6], [6 6], [7]; the query's 6 is in two passages of three, its 7 in one, its 9 in none."""
    positions = np.array([[0, 1], [2, 3], [4, -1]])
    scores = term_overlap(np.array([6, 7, 9, 6]), np.array([5, 6, 6, 6, 7]), positions)
    common, rare = np.log(1 + 3 / 2), np.log(1 + 3 / 1)
    assert scores == pytest.approx([common * 1 / 2, common * 2 / 3, rare * 1 / 2])


tokens = st.lists(st.integers(0, 5), max_size=12)


@given(tokens, tokens, st.integers(1, 4))
def test_term_overlap_against_loops(query, document, size):
    starts = range(0, max(len(document), 1), size)
    positions = np.array([[at if at < len(document) else -1 for at in range(start, start + size)] for start in starts])
    passages = [document[start : start + size] for start in starts]
    expected = [
        sum(
            np.log(1 + len(passages) / sum(term in each for each in passages))
            * passage.count(term) / (passage.count(term) + 1)
            for term in set(query) if term in passage
        )
        for passage in passages
    ]
    found = term_overlap(np.array(query, np.int32), np.array(document, np.int32), positions)
    assert found == pytest.approx(expected)


def test_the_first_passages():
    assert best(first(None, None, np.zeros((5, 2))), 3).tolist() == [0, 1, 2]


def test_the_best_in_the_order_of_the_text():
    assert best(np.array([0.0, 3, 1, 3, 2]), 3).tolist() == [1, 3, 4]
    assert best(np.array([1.0, 1, 1, 1]), 2).tolist() == [0, 1]  # of equal ones the first
    with pytest.raises(ValueError, match="no score"):
        best(np.array([1.0, np.nan]), 1)


@given(st.integers(1, 30), st.integers(1, 12), st.integers(0, 9))
def test_samples_keep_the_ends(passages, count, seed):
    torch.manual_seed(seed)
    chosen = sampled(passages, count).tolist()
    assert len(chosen) == min(passages, count)
    assert chosen == sorted(set(chosen))
    assert chosen[0] == 0
    assert count == 1 or chosen[-1] == passages - 1
    torch.manual_seed(seed)
    assert sampled(passages, count).tolist() == chosen


def test_samples_reach_every_passage():
    torch.manual_seed(0)
    assert {place for _ in range(100) for place in sampled(10, 3).tolist()} == set(range(10))


def test_selectors_have_names(monkeypatch):
    assert selector_of("overlap") is term_overlap
    with pytest.raises(ValueError, match="selector must be one of 'overlap', 'first', got 'longest'"):
        selector_of("longest")
    monkeypatch.setitem(SELECTORS, "longest", lambda query, document, positions: (positions >= 0).sum(axis=1))
    assert selector_of("longest")(None, None, np.array([[0, -1], [1, 2]])).tolist() == [1, 2]
