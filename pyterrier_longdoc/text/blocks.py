"""Cutting documents into blocks of whole sentences by greedy filling (Yang et al., CIKM 2020, section 4.1.1).

Sentences are taken in order, as many as fit into a block; one that does not fit opens the next block. Blocks of a fixed
length then hold little padding and still do not break sentences. One that is longer than a block cannot but be broken:
it goes on in the next block, or loses its tail.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

import numpy as np

from pyterrier_longdoc.checks import check_whole
from pyterrier_longdoc.windows import Ragged, Windows

#: How sentences become blocks: as many as fit into each, or one in each.
SPLITTINGS = ("greedy", "natural")
#: What becomes of a sentence that is longer than a block.
OVERLONG = ("split", "truncate")
_CLS = 1


def fill_blocks(
    sentences_token_ids: Sequence[Sequence[int]],
    block_length: int = 32,
    max_blocks: int | None = 48,
    n_sep: int = 1,
    overlong: str = "split",
    splitting: str = "greedy",
) -> list[list[int]]:
    """Fills the sentences of one document into blocks.

    Args:
        sentences_token_ids: Token ids of each sentence, without special tokens; empty sentences are left out.
        block_length: Tokens of a block, special tokens included.
        max_blocks: Blocks after which the document ends; ``None`` reads all of it.
        n_sep: How many [SEP] end a block, beside the one [CLS] that begins it: 1, or 2 in the published code.
        overlong: ``"split"``: a sentence longer than a block goes on in the next one; or ``"truncate"``, as in the
            paper: its tail is lost.
        splitting: ``"greedy"``, or ``"natural"`` for one sentence a block (Figure 3).

    Returns:
        Token ids of each block, without special tokens.

    Raises:
        ValueError: If a setting is out of range.
    """
    filled = [list(sentence) for sentence in sentences_token_ids if len(sentence)]
    tokens = [token for sentence in filled for token in sentence]
    borders = np.cumsum([0, *map(len, filled)]).tolist()
    room = check_blocks(block_length, max_blocks, _CLS + n_sep, overlong, splitting)
    spans = list(_block_spans(borders, room, overlong, splitting))
    return [tokens[start:end] for start, end in spans[:max_blocks]]


def block_windows(starts: Ragged, lengths: np.ndarray, room: int, overlong: str, splitting: str) -> Windows:
    """The blocks of documents as windows; an empty document has one, without tokens.

    Args:
        starts: Position of the first token of each sentence, as
            :func:`~pyterrier_longdoc.text.sentences.sentence_starts` gives them.
        lengths: Tokens of each document, ``[n]``.
        room: Tokens of a block, special tokens not counted.
        overlong: As in :func:`fill_blocks`.
        splitting: As in :func:`fill_blocks`.
    """
    spans: list[tuple[int, int]] = []
    counts = []
    for number, length in enumerate(lengths):
        before = len(spans)
        spans += _block_spans([*starts[number].tolist(), int(length)], room, overlong, splitting)
        if not length:
            spans.append((0, 0))
        counts.append(len(spans) - before)
    start, end = np.array(spans, np.int64).reshape(-1, 2).T
    columns = np.arange(max(1, (end - start).max(initial=0)))
    positions = np.where(start[:, None] + columns < end[:, None], start[:, None] + columns, -1).astype(np.int32)
    core = np.stack([np.zeros_like(start), end - start], axis=1).astype(np.int32)
    return Windows(positions, np.repeat(np.arange(len(lengths)), counts), core)


def check_blocks(block_length: int, max_blocks: int | None, specials: int, overlong: str, splitting: str) -> int:
    """Checks the settings of blocks and returns how many tokens a block has room for.

    Args:
        block_length: Tokens of a block.
        max_blocks: Blocks of a document; ``None`` for any number.
        specials: Special tokens among those of a block.
        overlong: As in :func:`fill_blocks`.
        splitting: As in :func:`fill_blocks`.

    Raises:
        ValueError: If one is out of range.
    """
    for name, value in (("block_length", block_length), ("max_blocks", 1 if max_blocks is None else max_blocks)):
        check_whole(name, value)
    if block_length <= specials:
        raise ValueError(f"block_length={block_length} leaves no room beside {specials} special tokens")
    for name, value, allowed in (("overlong", overlong, OVERLONG), ("splitting", splitting, SPLITTINGS)):
        if value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    return block_length - specials


def padding_share(tokens: np.ndarray, room: int) -> float:
    """The share of blocks of a fixed length that is padding.

    Args:
        tokens: Tokens of each block, special tokens not counted, ``[blocks]``.
        room: How many would fit.
    """
    return 1 - float(np.sum(tokens)) / (len(tokens) * room) if len(tokens) else 0.0


def _block_spans(borders: list[int], room: int, overlong: str, splitting: str) -> Iterator[tuple[int, int]]:
    """First and past-last token of each block; ``borders`` are those of all sentences, the document's end included."""
    start, total = borders[0], borders[-1]
    while start < total:
        following = borders[bisect_right(borders, start)]
        if following > start + room:
            end = start + room
        elif splitting == "natural":
            end = following
        else:
            end = borders[bisect_right(borders, start + room) - 1]
        yield start, end
        start = following if following > end and overlong == "truncate" else end
