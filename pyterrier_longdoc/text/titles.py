"""Documents with a title that every window of them begins with.

A ranker hands such a document around as one text, title and body with a sign between them that no text holds; tokenised
it is a :class:`Titled`: its tokens are those of the body, and the title's are kept beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pyterrier_longdoc.windows import Ragged

#: Unicode's sign for what is no character: it is taken out of titles before it is put behind them.
_SIGN = "\uffff"


@dataclass(frozen=True)
class Titled(Ragged):
    """Token ids of documents, and of their titles.

    Attributes:
        body: The documents as they are without titles, sentence borders included; ``values`` and ``offsets`` are its.
        titles: Token ids of the title of each document.
    """

    body: Ragged
    titles: Ragged

    @classmethod
    def of(cls, body: Ragged, titles: Ragged) -> Titled:
        """Puts documents and titles together."""
        return cls(body.values, body.offsets, body, titles)

    def take(self, indices: np.ndarray) -> Titled:
        """The documents at ``indices``, in that order, with their titles."""
        return Titled.of(self.body.take(indices), self.titles.take(indices))

    def head(self, counts: np.ndarray) -> Titled:
        """The first ``counts[i]`` tokens of each document; titles are never cut."""
        return Titled.of(self.body.head(counts), self.titles)


def with_titles(titles: Iterable[str], texts: Iterable[str]) -> list[str]:
    """Each title and text as one string, for :func:`tokenize_titled`."""
    return [f"{title.replace(_SIGN, '')}{_SIGN}{text}" for title, text in zip(titles, texts, strict=True)]


def tokenize_titled(tokenize: Callable[[list[str]], Ragged], texts: Sequence[str]) -> Titled:
    """Tokenises texts that :func:`with_titles` made, or texts without a title.

    Args:
        tokenize: Token ids of plain texts.
        texts: The texts.
    """
    parts = [text.partition(_SIGN) if _SIGN in text else ("", "", text) for text in texts]
    return Titled.of(tokenize([text for _, _, text in parts]), tokenize([title for title, _, _ in parts]))


def joined(first: Ragged, second: Ragged) -> Ragged:
    """Each sequence of ``first`` with the one of ``second`` behind it."""
    lengths = np.stack([first.lengths, second.lengths], axis=1)
    offsets = np.concatenate([[0], np.cumsum(lengths.sum(axis=1))]).astype(np.int64)
    is_first = np.repeat(np.tile([True, False], len(first)), lengths.ravel())
    values = np.empty(offsets[-1], np.int32)
    values[is_first], values[~is_first] = first.values, second.values
    return Ragged(values, offsets)
