"""Splitting: nothing lost, nothing too long, no passage inside another, sentences whole wherever they fit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_longdoc.text.split import sentence_windows, sliding_windows
from pyterrier_longdoc.windows import Ragged

sizes = st.integers(1, 12).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size - 1)))


def ranges(windows, document=0):
    rows = windows.positions[windows.document == document]
    return [(int(row[0]), int(row.max()) + 1) if row[0] >= 0 else (0, 0) for row in rows]


@pytest.mark.parametrize(
    ("length", "size", "overlap", "expected"),
    [
        (200, 150, 75, [(0, 150), (75, 200)]),  # of which pt.text.sliding reads the first only
        (12, 5, 3, [(0, 5), (2, 7), (4, 9), (6, 11), (8, 12)]),
        (8, 5, 0, [(0, 5), (5, 8)]),
        (10, 5, 0, [(0, 5), (5, 10)]),
        (9, 5, 1, [(0, 5), (4, 9)]),
        (3, 5, 0, [(0, 3)]),
        (0, 5, 0, [(0, 0)]),
    ],
)
def test_sliding_windows_by_hand(length, size, overlap, expected):
    assert ranges(sliding_windows(np.array([length]), size, overlap)) == expected


@given(st.lists(st.integers(0, 40), max_size=5), sizes)
def test_sliding_windows_keep_everything(lengths, size):
    windows = sliding_windows(np.array(lengths, np.int64), *size)
    check(windows, lengths, *size)
    for number in range(len(lengths)):
        starts = [start for start, _ in ranges(windows, number)]
        assert (np.diff(starts) == size[0] - size[1]).all()


def check(windows, lengths, size, overlap):
    assert (np.diff(windows.document) >= 0).all()
    assert sorted(set(windows.document.tolist())) == list(range(len(lengths)))
    for number, length in enumerate(lengths):
        found = ranges(windows, number)
        assert found[0][0] == 0
        assert found[-1][1] == length
        for (before, end), (start, after) in zip(found, found[1:], strict=False):
            assert before < start <= end < after  # no gap, and something new
            assert end - start <= overlap
        assert all(end - start <= size for start, end in found)
    assert (windows.widths == windows.core[:, 1]).all()


@pytest.mark.parametrize(
    ("starts", "length", "size", "overlap", "expected"),
    [
        ([0, 4, 7, 9], 12, 8, 0, [(0, 7), (7, 12)]),
        ([0, 4, 7, 9], 12, 8, 3, [(0, 7), (4, 12)]),  # the sentence 4:7 is read with both neighbours
        ([0, 4], 30, 10, 0, [(0, 4), (4, 14), (14, 24), (24, 30)]),  # one of 26 tokens is cut
        ([0, 5], 15, 10, 5, [(0, 5), (5, 15)]),  # sharing 0:5 would cut the second one
        ([], 0, 10, 0, [(0, 0)]),
    ],
)
def test_whole_sentences_by_hand(starts, length, size, overlap, expected):
    windows = sentence_windows(np.array([length]), Ragged.from_lists([starts], np.int64), size, overlap)
    assert ranges(windows) == expected


@given(st.lists(st.lists(st.integers(1, 9), max_size=8), max_size=4), sizes)
def test_whole_sentences_keep_everything(sentences, size):
    lengths = [sum(each) for each in sentences]
    starts = Ragged.from_lists([np.cumsum([0, *each])[:-1] for each in sentences], np.int64)
    windows = sentence_windows(np.array(lengths, np.int64), starts, *size)
    check(windows, lengths, *size)
    for number, each in enumerate(sentences):
        borders = {0, *np.cumsum(each).tolist()}
        if all(length <= size[0] for length in each):
            assert all({start, end} <= borders for start, end in ranges(windows, number))


@pytest.mark.parametrize(("size", "overlap"), [(0, 0), (5, 5), (5, -1), (2.5, 1), (5, 1.5), ("5", 0), (True, 0)])
def test_sizes_are_checked(size, overlap):
    with pytest.raises(ValueError, match="passage"):
        sliding_windows(np.array([3]), size, overlap)
    with pytest.raises(ValueError, match="passage"):
        sentence_windows(np.array([3]), Ragged.from_lists([[0]]), size, overlap)
