"""Sections of documents, and the chunks that they consist of (CoLDE, Jha et al., section 3.1).

A section is a stretch of a document's one sequence of tokens. Its borders lie where the text has them: at a heading
(Markdown, reStructuredText, HTML or plain), else behind a blank line, else between two sentences, in each case near the
place that cuts the document into parts of equal length. Short texts have fewer sections. Tokens keep the number of
their section wherever they are moved to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import numpy as np

from pyterrier_longdoc.checks import check_whole
from pyterrier_longdoc.text.headings import heading_characters
from pyterrier_longdoc.text.sentences import (
    HEADING,
    PARAGRAPH,
    SENTENCE,
    SentenceSplitter,
    Structured,
    begins_of,
    split_sentences,
    tokenize_sentences,
)
from pyterrier_longdoc.text.split import stretches
from pyterrier_longdoc.windows import Ragged, Windows

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

#: A document has at most so many sections.
MAX_SECTIONS = 5
#: Parts of so many tokens are cut even where no sentence ends anywhere near.
_LONG = 64


# Sections -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sectioned(Structured):
    """Token ids of documents, where their sentences begin, and the section that each token belongs to.

    Attributes:
        section: Number of the section in its document, from 0, int8 ``[sum of lengths]``; the tokens of a section
            follow each other.
    """

    section: np.ndarray

    @classmethod
    def of(cls, tokens: Structured, count: int) -> Sectioned:
        """Cuts documents into ``count`` sections, or as many as there is structure for; see the module's text.

        Raises:
            ValueError: If ``count`` is not from 1 to 5.
        """
        check_count(count)
        begins = Ragged(tokens.begins, tokens.offsets)
        parts = [np.empty(0, np.int8), *(sections_of(begins[number], count) for number in range(len(tokens)))]
        return cls(tokens.values, tokens.offsets, tokens.begins, np.concatenate(parts))

    def take(self, indices: np.ndarray) -> Sectioned:
        """The documents at ``indices``, in that order."""
        return self._with(self._plain().take(indices), Ragged(self.section, self.offsets).take(indices))

    def head(self, counts: np.ndarray) -> Sectioned:
        """The first ``counts[i]`` tokens of each document, or all where there are fewer."""
        return self._with(self._plain().head(counts), Ragged(self.section, self.offsets).head(counts))

    def select(self, tokens: np.ndarray, lengths: np.ndarray) -> Sectioned:
        """Other documents of the same tokens.

        Args:
            tokens: Rows of ``values``, one document behind the other.
            lengths: Tokens of each document.
        """
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return Sectioned(self.values[tokens], offsets, self.begins[tokens], self.section[tokens])

    def runs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The sections in the order of the tokens; an empty document has one, without tokens.

        Returns:
            Document, number of the section, and first and past-last row in ``values``: int64 ``[s]``, ``[s]``,
            ``[s, 2]``.
        """
        of_token = np.repeat(np.arange(len(self)), self.lengths)
        first = np.flatnonzero(np.diff(of_token * (MAX_SECTIONS + 1) + self.section, prepend=-1))
        empty = np.flatnonzero(self.lengths == 0)
        rows = np.stack([first, np.append(first[1:], len(of_token))[: len(first)]], axis=1)
        document = np.concatenate([of_token[first], empty])
        section = np.concatenate([self.section[first].astype(np.int64), np.zeros_like(empty)])
        rows = np.concatenate([rows, np.repeat(self.offsets[empty], 2).reshape(-1, 2)])
        order = np.argsort(document, kind="stable")
        return document[order], section[order], rows[order]

    def _plain(self) -> Structured:
        return Structured(self.values, self.offsets, self.begins)

    @staticmethod
    def _with(tokens: Structured, section: Ragged) -> Sectioned:
        return Sectioned(tokens.values, tokens.offsets, tokens.begins, section.values)


def tokenize_sections(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    count: int = 2,
    splitter: SentenceSplitter = split_sentences,
) -> Sectioned:
    """Tokenises whole texts and cuts them into sections.

    Args:
        tokenizer: A fast tokenizer.
        texts: The texts, ``[n]``.
        count: Sections of a document, 1 to 5; short ones have fewer.
        splitter: Finds the sentences of a text.

    Returns:
        The same token ids as :func:`~pyterrier_longdoc.text.tokens.tokenize` gives, and the section of each.

    Raises:
        ValueError: If ``count`` is out of range, or the splitter gives a sentence that does not stand in the text.
    """
    check_count(count)
    return Sectioned.of(tokenize_sentences(tokenizer, texts, splitter, heading_characters), count)


def split_sections(text: str, count: int = 2, splitter: SentenceSplitter = split_sentences) -> list[str]:
    """The sections of a text as texts, by its words instead of a model's tokens; joined, they are the text.

    Args:
        text: The text.
        count: As in :func:`tokenize_sections`.
        splitter: Finds its sentences.

    Raises:
        ValueError: If ``count`` is out of range.
    """
    check_count(count)
    words = np.array([match.span() for match in re.finditer(r"\S+", text)], np.int64).reshape(-1, 2)
    sections = sections_of(begins_of(words[:, 1], text, splitter, heading_characters), count)
    cuts = [0, *words[np.flatnonzero(np.diff(sections)) + 1, 0], len(text)]
    return [text[first:end] for first, end in zip(cuts, cuts[1:], strict=False)]


def sections_of(begins: np.ndarray, count: int) -> np.ndarray:
    """The section of each token of one document, int8 ``[n]``.

    Each border may move from the place that makes parts of equal length by less than half a part: to the nearest
    heading there, else paragraph, else sentence. Where there is none, short parts are not cut.

    Args:
        begins: What begins at each token, as in :class:`~pyterrier_longdoc.text.sentences.Structured`.
        count: Sections.
    """
    borders = list(_borders(begins, count))
    return np.searchsorted(borders, np.arange(len(begins)), side="right").astype(np.int8)


def check_count(count: int) -> None:
    """Checks a number of sections.

    Raises:
        ValueError: If it is not from 1 to 5.
    """
    if not isinstance(count, Integral) or isinstance(count, bool) or not 1 <= count <= MAX_SECTIONS:
        raise ValueError(f"sections must be a whole number from 1 to {MAX_SECTIONS}, got {count!r}")


def shuffle_sections(documents: Sectioned, seed: int = 0) -> Sectioned:
    """The documents with their sections in another order; tokens keep the numbers of their sections (Figure 8).

    Args:
        documents: The documents.
        seed: With a document's tokens it decides on the order, which is never that of before.
    """
    document, _, rows = documents.runs()
    groups = np.split(np.arange(len(rows)), np.searchsorted(document, np.arange(1, len(documents))))
    order = [
        group[shuffled_order(len(group), seed, documents[number].tobytes())] for number, group in enumerate(groups)
    ]
    return documents.select(_rows(rows[np.concatenate([np.empty(0, np.int64), *order])]), documents.lengths)


def shuffled_order(count: int, seed: int, content: bytes) -> np.ndarray:
    """A random order of the sections of a document, never their own one if there are two or more."""
    random = np.random.default_rng([seed, crc32(content)])
    order = random.permutation(count)
    while count > 1 and (order == np.arange(count)).all():
        order = random.permutation(count)
    return order


def head_of_sections(documents: Sectioned, tokens: int) -> Sectioned:
    """The first tokens of each section of documents (Figure 7).

    Raises:
        ValueError: If ``tokens`` is under 1.
    """
    check_whole("tokens of a section", tokens)
    document, _, rows = documents.runs()
    rows[:, 1] = np.minimum(rows[:, 1], rows[:, 0] + tokens)
    lengths = np.bincount(document, rows[:, 1] - rows[:, 0], len(documents)).astype(np.int64)
    return documents.select(_rows(rows), lengths)


# Chunks ---------------------------------------------------------------------------------------------------------------


class Chunks(NamedTuple):
    """The chunks of documents, those of a section one behind the other.

    Attributes:
        windows: Their tokens; an empty document has one chunk without any.
        section: Number of the section that each belongs to, int64 ``[c]``.
        number: Its number in that section, int64 ``[c]``.
    """

    windows: Windows
    section: np.ndarray
    number: np.ndarray


def section_chunks(documents: Ragged, room: int) -> Chunks:
    """Cuts sections into chunks of ``room`` tokens, the last one of a section shorter; nothing is left out.

    Args:
        documents: The documents; without known sections each is a single one.
        room: Tokens of a chunk.
    """
    if not isinstance(documents, Sectioned):
        nothing = np.zeros(len(documents.values), np.int8)
        documents = Sectioned(documents.values, documents.offsets, nothing, nothing)
    document, section, rows = documents.runs()
    counts = np.maximum(1, -(-(rows[:, 1] - rows[:, 0]) // room))
    run = np.repeat(np.arange(len(rows)), counts)
    number = np.arange(len(run)) - np.repeat(np.cumsum(counts) - counts, counts)
    start = rows[run, 0] + number * room
    end = np.minimum(start + room, rows[run, 1])
    before = documents.offsets[document[run]]
    return Chunks(stretches(document[run], start - before, end - before), section[run], number)


def _borders(begins: np.ndarray, count: int) -> Iterator[int]:
    length = len(begins) / count
    for part in range(1, count):
        place = part * length
        low, high = int(np.ceil(place - length / 2)), int(np.ceil(place + length / 2))
        near = begins[max(low, 1) : high]
        for level in (HEADING, PARAGRAPH, SENTENCE):
            found = max(low, 1) + np.flatnonzero(near >= level)
            if len(found):
                yield int(found[np.abs(found - place).argmin()])
                break
        else:
            if length >= _LONG:
                yield round(place)


def _rows(ranges: np.ndarray) -> np.ndarray:
    """The numbers in ranges ``[r, 2]``, one range behind the other."""
    lengths = ranges[:, 1] - ranges[:, 0]
    ends = np.cumsum(lengths)
    return np.arange(lengths.sum()) + np.repeat(ranges[:, 0] - ends + lengths, lengths)
