"""How an encoder's tokenizer frames what it reads, and sequences framed so, all at once.

A cross-encoder reads ``[CLS] query [SEP] window [SEP]``, or ``<s> query </s></s> window </s>``, or whatever else its
tokenizer's post-processor says. :class:`Template` asks the tokenizer once and keeps the answer as plain numbers, so
that queries and documents are tokenised once each, and any number of (query, window) pairs is put together from their
token ids by NumPy: :class:`Sequences`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pyterrier_longdoc.text.titles import Titled, joined
from pyterrier_longdoc.text.tokens import untruncated
from pyterrier_longdoc.windows import Ragged, Windows

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

#: One special token: its id and its type id.
Special = tuple[int, int]


@dataclass(frozen=True)
class Frame:
    """The special tokens around one or two texts.

    Attributes:
        specials: What stands before the first text, between the texts, and behind the last one: one more group than
            there are texts, each of (token id, type id) pairs.
        types: Type id of the tokens of each text.
    """

    specials: tuple[tuple[Special, ...], ...]
    types: tuple[int, ...]

    @property
    def extra(self) -> int:
        """How many special tokens there are."""
        return sum(map(len, self.specials))

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> Frame:
        """A frame that ``dataclasses.asdict`` wrote, JSON in between or not."""
        specials = tuple(tuple((int(token), int(kind)) for token, kind in group) for group in settings["specials"])
        return cls(specials, tuple(settings["types"]))


@dataclass(frozen=True)
class Template:
    """How a tokenizer frames a single text and a pair of texts.

    Attributes:
        single: Around one text.
        pair: Around two.
        pad: Token id of padding.
    """

    single: Frame
    pair: Frame
    pad: int

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> Template:
        """The template of a tokenizer, read off what its own post-processor makes of one text and of two.

        A tokenizer without a post-processor frames as BERT does, with its classification and separator tokens (or
        those for begin and end). Type ids are all 0 unless its encoder is given any.

        Raises:
            ValueError: If it has no special tokens at all: no token would stand for the whole text.
        """
        backend = untruncated(tokenizer)
        typed = "token_type_ids" in tokenizer.model_input_names
        frames = [_frame(backend, texts, typed) for texts in (1, 2)]
        if not all(frame.extra for frame in frames):
            frames = _plain_frames(tokenizer, typed)
        return cls(*frames, pad=tokenizer.pad_token_id or 0)

    def to_dict(self) -> dict[str, Any]:
        """The template as JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> Template:
        """A template that :meth:`to_dict` wrote."""
        return cls(Frame.from_dict(settings["single"]), Frame.from_dict(settings["pair"]), settings["pad"])

    def texts(self, texts: Ragged) -> Sequences:
        """Frames each text on its own.

        Args:
            texts: Token ids of each text, without special tokens.
        """
        return Sequences.framed(self.single, [texts], self.pad)

    def windows(self, documents: Ragged, windows: Windows) -> Sequences:
        """Frames each window on its own.

        Args:
            documents: Token ids of each document.
            windows: Windows over them.
        """
        return self.texts(window_tokens(documents, windows))

    def pairs(self, queries: Ragged, documents: Ragged, windows: Windows, query: np.ndarray) -> Sequences:
        """Frames each window with a query.

        Args:
            queries: Token ids of each query.
            documents: Token ids of each document.
            windows: Windows over the documents, ``[w]``; a window occurs once for each query that it is read with.
            query: The query of each window, ``[w]``.
        """
        return Sequences.framed(self.pair, [queries.take(query), window_tokens(documents, windows)], self.pad)


@dataclass(frozen=True)
class Sequences:
    """Framed token sequences, as an encoder reads them.

    Attributes:
        ids: Token ids of each sequence, special tokens included, ``n`` sequences.
        types: Type id of each token, int32, parallel to ``ids.values``.
        starts: Where each text starts in its sequence, int64 ``[n, texts]``: a query and a window, or one text.
        pad: Token id of padding.
    """

    ids: Ragged
    types: np.ndarray
    starts: np.ndarray
    pad: int

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each sequence, special tokens included, int64 ``[n]``."""
        return self.ids.lengths

    @classmethod
    def framed(cls, frame: Frame, texts: Sequence[Ragged], pad: int) -> Sequences:
        """Puts special tokens around texts, for all sequences at once.

        Args:
            frame: The special tokens, for as many texts as there are.
            texts: The first text of each sequence, the second one; each ``[n]``.
            pad: Token id of padding.
        """
        lengths = sum(text.lengths for text in texts) + frame.extra
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        ids, types = np.empty(offsets[-1], np.int32), np.empty(offsets[-1], np.int32)
        place, starts = offsets[:-1].copy(), []
        for number, group in enumerate(frame.specials):
            for token, kind in group:
                ids[place], types[place] = token, kind
                place += 1
            if number < len(texts):
                text = texts[number]
                starts.append(place - offsets[:-1])
                where = np.arange(len(text.values)) + np.repeat(place - text.offsets[:-1], text.lengths)
                ids[where], types[where] = text.values, frame.types[number]
                place += text.lengths
        return cls(Ragged(ids, offsets), types, np.stack(starts, axis=1), pad)

    def table(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Some sequences as padded tables.

        Returns:
            ``(ids, types, mask)``, int64, int64 and bool, each ``[len(items), longest]``.
        """
        index, mask = self.ids.flat_index(items)
        ids = np.where(mask, self.ids.values[index], self.pad).astype(np.int64)
        return ids, np.where(mask, self.types[index], 0).astype(np.int64), mask


def window_tokens(documents: Ragged, windows: Windows) -> Ragged:
    """The token ids of each window, in the order of its positions, behind its document's title if there is one.

    Args:
        documents: Token ids of each document; with titles if it is a :class:`~pyterrier_longdoc.text.titles.Titled`.
        windows: Windows over them, contiguous or not.
    """
    index, mask = windows.flat_index(documents)
    offsets = np.concatenate([[0], np.cumsum(mask.sum(axis=1))]).astype(np.int64)
    tokens = Ragged(documents.values[index[mask]], offsets)
    return joined(documents.titles.take(windows.document), tokens) if isinstance(documents, Titled) else tokens


def _frame(backend, texts: int, typed: bool) -> Frame:  # noqa: ANN001 (a type of the Rust library)
    framed = backend.encode(*["a"] * texts)
    types = framed.type_ids if typed else [0] * len(framed.ids)
    groups: list[list[Special]] = [[]]
    text_types: list[int] = []
    for token, kind, text in zip(framed.ids, types, framed.sequence_ids, strict=True):
        if text is None:
            groups[-1].append((token, kind))
        elif text == len(text_types):  # the first token of the next text
            text_types.append(kind)
            groups.append([])
    return Frame(tuple(map(tuple, groups)), tuple(text_types))


def _plain_frames(tokenizer: PreTrainedTokenizerBase, typed: bool) -> list[Frame]:
    first = tokenizer.cls_token_id if tokenizer.cls_token_id is not None else tokenizer.bos_token_id
    last = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
    if first is None or last is None:
        raise ValueError(
            f"{type(tokenizer).__name__} has no special tokens to frame texts with: neither a post-processor nor "
            "cls_token and sep_token (or bos_token and eos_token); set them, or take another encoder's tokenizer"
        )
    second = int(typed)
    return [
        Frame((((first, 0),), ((last, 0),)), (0,)),
        Frame((((first, 0),), ((last, 0),), ((last, second),)), (0, second)),
    ]
