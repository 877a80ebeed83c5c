"""Sections lie where the text has them, keep their numbers, and their chunks hold every token once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_longdoc.text.sections import (
    Sectioned,
    head_of_sections,
    section_chunks,
    sections_of,
    shuffle_sections,
    split_sections,
    tokenize_sections,
)
from pyterrier_longdoc.text.sentences import HEADING, PARAGRAPH, SENTENCE
from pyterrier_longdoc.text.tokens import load_tokenizer, tokenize
from pyterrier_longdoc.windows import Ragged

MARKDOWN = "# Title\n\nSome words.\n\n```\n# no heading\n```\n\nA short line\n\n## Second *one* ##\nText.\n"
PLAIN = "Abstract\nIn this paper we test.\n\nIntroduction\nWords.\n\nNo heading, as:\nso.\n2.1 Related work\nIt is."


@pytest.fixture(scope="module")
def tokenizer(tiny):
    return load_tokenizer(tiny.encoder)


def begins(length: int, **levels: list[int]) -> np.ndarray:
    array = np.zeros(length, np.int8)
    for level in (SENTENCE, PARAGRAPH, HEADING):
        array[levels.get({SENTENCE: "sentences", PARAGRAPH: "paragraphs", HEADING: "headings"}[level], [])] = level
    array[:1] = max(PARAGRAPH, int(array[:1].max(initial=0)))
    return array


@pytest.mark.parametrize(
    ("array", "count", "expected"),
    [
        (begins(20, sentences=[3, 9, 14]), 1, []),
        (begins(20, sentences=[3, 9, 14]), 2, [9]),  # the nearest to 10
        (begins(20, sentences=[3, 9, 14], paragraphs=[14]), 2, [14]),  # a paragraph before a nearer sentence
        (begins(20, sentences=[9], paragraphs=[11], headings=[6]), 2, [6]),  # a heading before all
        (begins(20, sentences=[9], headings=[2, 17]), 2, [9]),  # but not one that leaves hardly anything
        (begins(30, sentences=[4, 11, 19, 28]), 3, [11, 19]),
        (begins(30, sentences=[2]), 3, []),  # no border near: a short text is not cut
        (begins(200), 2, [100]),  # a long one is
        (begins(0), 5, []),
        (begins(1), 5, []),
    ],
)
def test_borders_of_sections(array, count, expected):
    assert (np.flatnonzero(np.diff(sections_of(array, count))) + 1).tolist() == expected


@given(st.lists(st.integers(0, 3), max_size=400), st.integers(1, 5))
def test_sections_are_in_order_and_never_too_many(levels, count):
    section = sections_of(np.array(levels, np.int8), count)
    assert len(section) == len(levels)
    assert (np.diff(section) >= 0).all() and (np.diff(section) <= 1).all()
    if len(section):
        assert section[0] == 0 and section[-1] < count
        # Borders move by at most half a part, so no section is longer than two parts or more
        if len(section) / count >= 64:
            assert np.bincount(section).max() <= 2 * len(section) / count + 1


def test_tokens_are_those_of_the_whole_text(tokenizer):
    texts = ["", "w1. w2 w3.", PLAIN, MARKDOWN * 5]
    whole, cut = tokenize(tokenizer, texts), tokenize_sections(tokenizer, texts, 3)
    assert cut.values.tolist() == whole.values.tolist()
    assert cut.offsets.tolist() == whole.offsets.tolist()
    assert len(cut.section) == len(cut.values)


def test_a_section_begins_at_its_heading(tokenizer):
    text = "Abstract\n" + "w1 w2. " * 10 + "\n\nMethods\n" + "w3 w4. " * 9
    tokens = tokenize_sections(tokenizer, [text], 2)
    first = int(np.flatnonzero(tokens.section)[0])
    spans = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)["offset_mapping"]
    assert spans[first][0] == text.index("Methods")
    assert split_sections(text, 2) == [text[: text.index("Methods")], text[text.index("Methods") :]]


@given(st.text(alphabet="ab. \nAB#", max_size=300), st.integers(1, 5))
def test_split_texts_are_the_text(text, count):
    parts = split_sections(text, count)
    assert "".join(parts) == text
    assert 1 <= len(parts) <= count


@pytest.mark.parametrize("count", [0, 6, -1, 2.0, True, "2", None])
def test_numbers_of_sections_are_checked(tokenizer, count):
    with pytest.raises(ValueError, match="sections must be a whole number from 1 to 5"):
        tokenize_sections(tokenizer, ["w1"], count)
    with pytest.raises(ValueError, match="sections must be"):
        split_sections("w1", count)


# Documents of sections ------------------------------------------------------------------------------------------------


def sectioned(*documents: list[int]) -> Sectioned:
    """Documents whose tokens are numbered through, given the section of each token."""
    lengths = [len(each) for each in documents]
    section = np.array([number for each in documents for number in each], np.int8)
    tokens = Ragged.from_lists([range(100 * place, 100 * place + length) for place, length in enumerate(lengths)])
    return Sectioned(tokens.values, tokens.offsets, np.zeros(len(section), np.int8), section)


documents_of = st.lists(
    st.lists(st.integers(1, 6), max_size=5).map(lambda sizes: np.repeat(range(len(sizes)), sizes).tolist()),
    min_size=1, max_size=5,
)


def test_runs_of_sections():
    document, section, rows = sectioned([], [0, 0, 1], [0], [], [1, 1, 0]).runs()
    assert document.tolist() == [0, 1, 1, 2, 3, 4, 4]
    assert section.tolist() == [0, 0, 1, 0, 0, 1, 0]
    assert rows.tolist() == [[0, 0], [0, 2], [2, 3], [3, 4], [4, 4], [4, 6], [6, 7]]


def test_documents_that_are_taken_or_cut_keep_their_sections():
    tokens = sectioned([0, 0, 1], [], [0, 1, 1, 2])
    taken = tokens.take(np.array([2, 0]))
    assert taken.section.tolist() == [0, 1, 1, 2, 0, 0, 1]
    assert taken.values.tolist() == [200, 201, 202, 203, 0, 1, 2]
    cut = tokens.head(np.array([2, 5, 3]))
    assert cut.section.tolist() == [0, 0, 0, 1, 1]
    assert isinstance(cut, Sectioned) and isinstance(taken, Sectioned)


def test_chunks_by_hand():
    chunks = section_chunks(sectioned([0, 0, 0, 0, 0, 1, 1], [], [0]), 2)
    assert chunks.windows.positions.tolist() == [[0, 1], [2, 3], [4, -1], [5, 6], [-1, -1], [0, -1]]
    assert chunks.windows.document.tolist() == [0, 0, 0, 0, 1, 2]
    assert chunks.section.tolist() == [0, 0, 0, 1, 0, 0]
    assert chunks.number.tolist() == [0, 1, 2, 0, 0, 0]


def test_chunks_without_known_sections():
    chunks = section_chunks(Ragged.from_lists([[1, 2, 3], []]), 2)
    assert chunks.windows.positions.tolist() == [[0, 1], [2, -1], [-1, -1]]
    assert chunks.section.tolist() == [0, 0, 0]


@given(documents_of, st.integers(1, 7))
def test_every_token_lies_in_one_chunk_of_its_section(documents, room):
    tokens = sectioned(*documents)
    chunks = section_chunks(tokens, room)
    seen = [np.zeros(len(each), int) for each in documents]
    windows = chunks.windows
    for document, section, positions in zip(windows.document, chunks.section, windows.positions, strict=True):
        inside = positions[positions >= 0]
        seen[document][inside] += 1
        assert {documents[document][place] for place in inside} <= {section}
        assert len(inside) <= room
    assert all((each == 1).all() for each in seen)
    assert set(windows.document) == set(range(len(documents)))


@given(documents_of, st.integers(0, 3))
def test_shuffled_sections_are_the_same_ones_in_another_order(documents, seed):
    tokens = sectioned(*documents)
    moved = shuffle_sections(tokens, seed)
    for number, section in enumerate(documents):
        before, after = tokens.take(np.array([number])), moved.take(np.array([number]))
        order = np.argsort(after.section, kind="stable")
        assert after.values[order].tolist() == before.values.tolist()
        assert after.section[order].tolist() == before.section.tolist()
        assert (len(set(section)) < 2) == (after.values.tolist() == before.values.tolist())
        alone = shuffle_sections(before, seed)  # whatever documents stand beside it
        assert alone.values.tolist() == after.values.tolist()


def test_heads_of_sections():
    cut = head_of_sections(sectioned([0, 0, 0, 1, 1], [], [0, 1, 1, 1]), 2)
    assert cut.values.tolist() == [0, 1, 3, 4, 200, 201, 202]
    assert cut.lengths.tolist() == [4, 0, 3]
    assert cut.section.tolist() == [0, 0, 1, 1, 0, 1, 1]
    with pytest.raises(ValueError, match="at least 1, got 0"):
        head_of_sections(cut, 0)
