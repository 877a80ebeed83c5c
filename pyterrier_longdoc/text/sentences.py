"""Where the sentences and paragraphs of a document begin, as places in its one sequence of tokens.

A document is tokenised once and as a whole; a sentence is a stretch of its tokens. So sentence-wise models read the
same tokens as all others, and blocks, passages or sections of sentences are windows over positions like any others.
Sentences are found by a library (sentencex by default) or by any function from a text to its sentences.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from pyterrier_longdoc.text.tokens import encodings
from pyterrier_longdoc.windows import Ragged

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

#: Maps a text to its sentences, in order and as they stand there: ``nltk.sent_tokenize``, ``pysbd``'s ``segment`` ...
SentenceSplitter = Callable[[str], Iterable[str]]
#: Maps a text to the first characters of its headings, ascending.
HeadingFinder = Callable[[str], Sequence[int]]
#: What begins at a token: nothing, a sentence, a paragraph and so a sentence too, or a heading and so a paragraph too.
INSIDE, SENTENCE, PARAGRAPH, HEADING = 0, 1, 2, 3
_NEW_PARAGRAPH = re.compile(r"\n\s*\n\s*|(?=<p[\s>])", re.I)


@dataclass(frozen=True)
class Structured(Ragged):
    """Token ids of documents, and where their sentences and paragraphs begin.

    Attributes:
        begins: What begins at each token, int8 ``[sum of lengths]``: :data:`INSIDE`, :data:`SENTENCE`,
            :data:`PARAGRAPH` or, where they were looked for, :data:`HEADING`. The first token of a document begins a
            paragraph.
    """

    begins: np.ndarray

    def take(self, indices: np.ndarray) -> Structured:
        """The documents at ``indices``, in that order."""
        return self._like(super().take(indices), Ragged(self.begins, self.offsets).take(indices))

    def head(self, counts: np.ndarray) -> Structured:
        """The first ``counts[i]`` tokens of each document, or all where there are fewer."""
        return self._like(super().head(counts), Ragged(self.begins, self.offsets).head(counts))

    def starts(self, level: int = SENTENCE) -> Ragged:
        """Positions of the first tokens of sentences, or of paragraphs, int64; none in an empty document."""
        places = np.flatnonzero(self.begins >= level)
        counts = np.searchsorted(places, self.offsets)
        return Ragged(places - np.repeat(self.offsets[:-1], np.diff(counts)), counts)

    def _like(self, tokens: Ragged, begins: Ragged) -> Structured:
        return type(self)(tokens.values, tokens.offsets, begins.values)


def split_sentences(text: str, language: str = "en") -> list[str]:
    """The sentences of a text by the library sentencex (Wikimedia), in time linear in its length.

    Args:
        text: The text.
        language: ISO 639-1 code; sentencex falls back to related languages for those without rules.

    Returns:
        Its sentences with the white space behind them; joined, they are the text.
    """
    import sentencex

    return sentencex.segment(language, text)


def splitter_of(sentences: str | SentenceSplitter) -> tuple[str, SentenceSplitter]:
    """The name under which a model keeps how sentences are split, and the function that splits them.

    Args:
        sentences: A language, or a function.

    Raises:
        ValueError: If it is neither; so it is if it is the name of a function, which nobody can look up safely.
    """
    if callable(sentences):
        name = getattr(sentences, "__qualname__", type(sentences).__qualname__)
        return f"{getattr(sentences, '__module__', type(sentences).__module__)}.{name}", sentences
    if not isinstance(sentences, str) or not re.fullmatch(r"[a-z]{2,3}(-[\w-]+)?", sentences):
        raise ValueError(
            f"sentences must be a language such as 'en', or a function from a text to its sentences, got "
            f"{sentences!r}; a model that was made with a function needs it: from_pretrained(path, sentences=function)"
        )
    return sentences, partial(split_sentences, language=sentences)


def tokenize_sentences(
    tokenizer: PreTrainedTokenizerBase,
    texts: Iterable[str],
    splitter: SentenceSplitter = split_sentences,
    headings: HeadingFinder | None = None,
) -> Structured:
    """Tokenises whole texts, as :func:`~pyterrier_longdoc.text.tokens.tokenize`, and finds where sentences begin.

    A token that reaches over a border belongs to the sentence that begins in it. Paragraphs begin behind blank lines,
    or with HTML's <p>.

    Args:
        tokenizer: A fast tokenizer.
        texts: The texts, ``[n]``.
        splitter: Finds the sentences of a text.
        headings: Finds the headings of a text; none are looked for if ``None``.

    Returns:
        The same token ids as ``tokenize`` gives, and what begins at each.

    Raises:
        ValueError: If the splitter gives a sentence that does not stand in the text.
    """
    ids, begins = [], []
    for text, encoding in encodings(tokenizer, texts):
        ends = np.array(encoding.offsets, np.int64).reshape(-1, 2)[:, 1]
        ids.append(np.array(encoding.ids, np.int32))
        begins.append(begins_of(np.maximum.accumulate(ends), text, splitter, headings))
    tokens = Ragged.from_lists(ids)
    return Structured(tokens.values, tokens.offsets, np.concatenate([np.empty(0, np.int8), *begins]))


def sentence_starts(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], splitter: SentenceSplitter = split_sentences
) -> Ragged:
    """Positions of the first token of each sentence; arguments as in :func:`tokenize_sentences`.

    Returns:
        int64; the first one of a document is 0, and an empty document has none.
    """
    return tokenize_sentences(tokenizer, texts, splitter).starts()


def begins_of(
    ends: np.ndarray, text: str, splitter: SentenceSplitter, headings: HeadingFinder | None = None
) -> np.ndarray:
    """What begins at each token of a text, or at each other piece of it.

    Args:
        ends: Past-last character of each token, ascending, ``[n]``.
        text: The text.
        splitter: As in :func:`tokenize_sentences`.
        headings: As in :func:`tokenize_sentences`.

    Returns:
        int8 ``[n]``, as in :class:`Structured`.
    """
    begins = np.zeros(len(ends), np.int8)
    paragraphs = [0, *(match.end() for match in _NEW_PARAGRAPH.finditer(text))]
    levels = [(SENTENCE, _sentence_characters(text, splitter)), (PARAGRAPH, paragraphs)]
    levels += [(HEADING, headings(text))] if headings else []
    for level, characters in levels:
        tokens = np.searchsorted(ends, characters, side="right")  # the first token that ends behind the border
        begins[tokens[tokens < len(ends)]] = level
    begins[:1] = np.maximum(begins[:1], PARAGRAPH)
    return begins


def _sentence_characters(text: str, splitter: SentenceSplitter) -> list[int]:
    """First character of each sentence."""
    starts, place = [], 0
    for sentence in splitter(text):
        found = text.find(sentence, place)
        if found < 0:
            raise ValueError(
                f"the sentence splitter gave {sentence[:60]!r}, which does not stand in the text behind character "
                f"{place}; it must give sentences in order and unchanged"
            )
        starts.append(found)
        place = found + len(sentence)
    return starts
