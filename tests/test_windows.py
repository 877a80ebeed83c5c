"""Windows over tokens, against loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_longdoc.text.sentences import Structured
from pyterrier_longdoc.text.titles import Titled
from pyterrier_longdoc.windows import Ragged, Windows, contiguous_windows

sequences = st.lists(st.lists(st.integers(0, 99), max_size=12), max_size=8)
lengths = st.lists(st.integers(0, 60), max_size=8)


@given(sequences)
def test_ragged_holds_lists(lists):
    ragged = Ragged.from_lists(lists)
    assert len(ragged) == len(lists)
    assert [sequence.tolist() for sequence in ragged] == lists
    assert ragged.lengths.tolist() == [len(each) for each in lists]
    assert ragged.values.dtype == np.int32
    assert ragged.offsets.dtype == np.int64


@given(sequences, st.data())
def test_take_and_padded_against_loops(lists, data):
    chosen = data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=6) if lists else st.just([]))
    taken = Ragged.from_lists(lists).take(np.array(chosen, np.int64))
    expected = [lists[i] for i in chosen]
    assert [sequence.tolist() for sequence in taken] == expected
    table, mask = taken.padded()
    width = max([1, *map(len, expected)])
    assert table.tolist() == [row + [0] * (width - len(row)) for row in expected]
    assert mask.tolist() == [[True] * len(row) + [False] * (width - len(row)) for row in expected]
    assert table.shape == mask.shape == (len(expected), width)


def test_ragged_keeps_other_types_and_its_bounds():
    ragged = Ragged.from_lists([[1.5], []], np.float64)
    assert ragged[0].tolist() == [1.5]
    for outside in (2, -1):
        with pytest.raises(IndexError, match=f"sequence {outside} of 2"):
            ragged[outside]


@given(lengths, st.integers(1, 20), st.integers(0, 9))
def test_windows_against_loops(lengths, core, context):
    windows = contiguous_windows(np.array(lengths), core, context)
    expected = [
        (document, list(range(max(0, first - context), min(first + core + context, length))), first)
        for document, length in enumerate(lengths)
        for first in range(0, length, core)
    ]
    assert len(windows) == len(expected)
    assert windows.document.tolist() == [document for document, _, _ in expected]
    assert windows.widths.tolist() == [len(tokens) for _, tokens, _ in expected]
    for row, (place, (_, tokens, first)) in enumerate(zip(windows.core, expected, strict=True)):
        positions = windows.positions[row]
        assert positions[: len(tokens)].tolist() == tokens
        assert (positions[len(tokens) :] == -1).all()
        assert positions[place[0]] == first


@given(lengths, st.one_of(st.none(), st.integers(1, 20)), st.integers(0, 9))
def test_every_token_is_in_exactly_one_core(lengths, core, context):
    windows = contiguous_windows(np.array(lengths), core, context)
    inside = windows.core_mask()
    assert (windows.positions[inside] >= 0).all()
    assert inside.shape == windows.positions.shape
    found = [(int(windows.document[w]), int(windows.positions[w, c])) for w, c in np.argwhere(inside)]
    assert sorted(found) == [(document, token) for document, length in enumerate(lengths) for token in range(length)]
    if core is not None:
        assert (inside.sum(1) <= core).all()
        assert (windows.widths <= core + 2 * context).all()


@given(lengths, st.integers(1, 20), st.integers(0, 9), st.data())
def test_windows_lead_back_to_their_tokens(lengths, core, context, data):
    documents = Ragged.from_lists([np.arange(length) + 100 * n for n, length in enumerate(lengths)])
    windows = contiguous_windows(documents.lengths, core, context)
    chosen = data.draw(st.lists(st.integers(0, len(windows) - 1), max_size=6) if len(windows) else st.just([]))
    part = windows.take(np.array(chosen, np.int64))
    index, mask = part.flat_index(documents)
    assert part.positions.shape[1] == max([1, *windows.widths[chosen]])
    assert (mask == (part.positions >= 0)).all()
    assert (index[~mask] == 0).all()
    for row, window in enumerate(chosen):
        tokens = documents.values[index[row][mask[row]]]
        positions = windows.positions[window]
        assert tokens.tolist() == (positions[positions >= 0] + 100 * windows.document[window]).tolist()
        assert (part.core_mask()[row][mask[row]] == windows.core_mask()[window][: mask[row].sum()]).all()


def test_rows_count_from_the_core():
    windows = contiguous_windows(np.array([100]), core=40, context=5)
    assert windows.core.tolist() == [[0, 40], [5, 45], [5, 25]]
    assert windows.rows()[:, 0].tolist() == [0, -5, -5]
    assert windows.rows()[np.arange(3), windows.core[:, 0]].tolist() == [0, 0, 0]


def test_neighbouring_windows_share_their_context():
    windows = contiguous_windows(np.array([80]), core=40, context=5)
    first, second = (set(row[row >= 0]) for row in windows.positions)
    assert first & second == set(range(35, 45))


def test_no_core_makes_one_window_a_document():
    windows = contiguous_windows(np.array([3, 0, 7]), core=None)
    assert windows.document.tolist() == [0, 2]
    assert windows.widths.tolist() == [3, 7]


def test_positions_need_not_be_contiguous():
    """A circle of tokens 4, 0, 2 of the second document."""
    documents = Ragged.from_lists([[1, 2], [10, 11, 12, 13, 14]])
    windows = Windows(np.array([[4, 0, 2, -1]], np.int32), np.array([1]), np.array([[0, 3]], np.int32))
    index, mask = windows.flat_index(documents)
    assert documents.values[index[mask]].tolist() == [14, 10, 12]


@pytest.mark.parametrize(("core", "context"), [(0, 0), (-3, 0), (5, -1)])
def test_sizes_are_checked(core, context):
    with pytest.raises(ValueError, match=f"core={core}, context={context}"):
        contiguous_windows(np.array([10]), core, context)


@given(lengths, st.integers(1, 12))
def test_windows_by_document(lengths, core):
    windows = contiguous_windows(np.array(lengths, np.int64), core)
    rows = windows.by_document(len(lengths))
    assert len(rows) == len(lengths)
    for number in range(len(lengths)):
        assert rows[number].tolist() == np.flatnonzero(windows.document == number).tolist()


def test_arrays_are_all_that_is_known():
    """Of a subclass too: what training hashes must not miss where sentences begin, nor a title."""
    plain = Ragged.from_lists([[1, 2], [3]])
    assert [array.tolist() for array in plain.arrays()] == [[1, 2, 3], [0, 2, 3]]
    structured = Structured(plain.values, plain.offsets, np.array([2, 0, 2], np.int8))
    assert [array.tolist() for array in structured.arrays()] == [[1, 2, 3], [0, 2, 3], [2, 0, 2]]
    titled = Titled.of(structured, Ragged.from_lists([[7], []]))
    arrays = [array.tolist() for array in titled.arrays()]
    assert [2, 0, 2] in arrays and arrays[-2:] == [[7], [0, 1, 1]]
