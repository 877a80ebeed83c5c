"""Tokenising whole documents, once per unique text and without any truncation.

Every tokenizer here is a fast Hugging Face tokenizer, word-level or word-piece, so that tokens lead back to characters
and a checkpoint carries its tokenizer as files. Special tokens are the models' business: a document is its own tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pyterrier_longdoc.windows import Ragged

if TYPE_CHECKING:
    from tokenizers import Encoding
    from transformers import PreTrainedTokenizerBase

#: Characters tokenised at once: an encoding weighs some 150 bytes a token until its ids are taken out.
_CHARACTERS_AT_ONCE = 2_000_000


def load_tokenizer(name_or_path: str) -> PreTrainedTokenizerBase:
    """Loads a fast tokenizer from a directory or a hub name.

    Raises:
        ValueError: If it has no fast (Rust) form: without it tokens do not lead back to characters.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(name_or_path))
    if not tokenizer.is_fast:
        raise ValueError(f"{name_or_path} has no fast tokenizer (tokenizer.json); choose an encoder that has one")
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def check_vocabulary(tokenizer: PreTrainedTokenizerBase, rows: int) -> None:
    """Checks that a table with so many rows has one for each token.

    Raises:
        ValueError: If a token's number lies beyond the table.
    """
    highest = max(tokenizer.get_vocab().values(), default=-1)
    if highest >= rows:
        raise ValueError(f"the tokenizer numbers its tokens up to {highest}, but there are {rows} vectors: not a pair")


def tokenize(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> Ragged:
    """Token ids of whole texts, without special tokens, padding or truncation.

    Args:
        tokenizer: A fast tokenizer; its own truncation settings are not used and not changed.
        texts: The texts, ``[n]``.

    Returns:
        Token ids, int32.
    """
    backend = untruncated(tokenizer)
    ids: list[np.ndarray] = []
    for chunk in _chunks(map(_valid, texts)):
        ids += [np.array(one.ids, np.int32) for one in backend.encode_batch_fast(chunk, add_special_tokens=False)]
    return Ragged.from_lists(ids)


def encodings(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> Iterator[tuple[str, Encoding]]:
    """Each text as it is read, and its tokens with their characters; arguments as in :func:`tokenize`."""
    backend = untruncated(tokenizer)
    for chunk in _chunks(map(_valid, texts)):
        yield from zip(chunk, backend.encode_batch(chunk, add_special_tokens=False), strict=True)


def character_spans(tokenizer: PreTrainedTokenizerBase, text: str) -> np.ndarray:
    """First and past-last character of each token of a text, int64 ``[tokens, 2]``."""
    encoding = untruncated(tokenizer).encode(_valid(text), add_special_tokens=False)
    return np.array(encoding.offsets, np.int64).reshape(-1, 2)


def untruncated(tokenizer: PreTrainedTokenizerBase):  # noqa: ANN201 (a type of the Rust library)
    """The Rust tokenizer, without truncation and padding; that of ``tokenizer`` itself is not changed."""
    backend = tokenizer.backend_tokenizer
    if backend.truncation is None and backend.padding is None:
        return backend
    from tokenizers import Tokenizer

    backend = Tokenizer.from_str(backend.to_str())
    backend.no_truncation()
    backend.no_padding()
    return backend


def _valid(text: str) -> str:
    """The text with "?" for halves of surrogate pairs, which cut JSON strings hold and no tokenizer reads."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    characters = 0
    for text in texts:
        chunk.append(text)
        characters += len(text)
        if characters >= _CHARACTERS_AT_ONCE:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk
