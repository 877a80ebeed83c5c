"""Cutting documents into passages: sliding windows of tokens, or as many whole sentences as fit.

Both keep everything: the tail of a document makes a passage of its own, however short, a sentence longer than a passage
goes on in the next one, and a document without tokens is one empty passage, so that it gets a score too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyterrier_longdoc.checks import check_whole
from pyterrier_longdoc.windows import Ragged, Windows


def sliding_windows(lengths: np.ndarray, size: int, overlap: int = 0) -> Windows:
    """Passages of ``size`` tokens, neighbours sharing ``overlap`` of them; the last one of a document may be shorter.

    Args:
        lengths: Tokens of each document, ``[n]``.
        size: Tokens of a passage.
        overlap: Tokens that a passage shares with the one before.

    Returns:
        At least one window a document, in the order of the text; no window lies wholly inside another.

    Raises:
        ValueError: If the overlap is negative or not smaller than the size.
    """
    check_sizes(size, overlap)
    lengths, stride = np.asarray(lengths, np.int64), size - overlap
    counts = 1 + -(-np.maximum(lengths - size, 0) // stride)
    document = np.repeat(np.arange(len(lengths)), counts)
    start = (np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)) * stride
    return stretches(document, start, np.minimum(start + size, lengths[document]))


def sentence_windows(lengths: np.ndarray, starts: Ragged, size: int, overlap: int = 0) -> Windows:
    """Passages of whole sentences, as many as fit into ``size`` tokens.

    A passage begins with those last sentences of the one before that together hold at most ``overlap`` tokens. A
    sentence of more than ``size`` tokens is cut.

    Args:
        lengths: Tokens of each document, ``[n]``.
        starts: Position of the first token of each sentence of each document, ascending.
        size: Most tokens of a passage.
        overlap: Most tokens that a passage shares with the one before.

    Returns:
        At least one window a document, in the order of the text.

    Raises:
        ValueError: If the overlap is negative or not smaller than the size.
    """
    check_sizes(size, overlap)
    found = [_packed(int(length), starts[number], size, overlap) for number, length in enumerate(lengths)]
    document = np.repeat(np.arange(len(found)), [len(each) for each in found])
    ranges = np.array([each for ranges in found for each in ranges], np.int64).reshape(-1, 2)
    return stretches(document, ranges[:, 0], ranges[:, 1])


def stretches(document: np.ndarray, start: np.ndarray, end: np.ndarray) -> Windows:
    """Windows over consecutive tokens ``start:end`` of documents, each ``[w]``."""
    columns = np.arange(max(1, (end - start).max(initial=0)))
    positions = start[:, None] + columns
    positions = np.where(positions < end[:, None], positions, -1).astype(np.int32)
    core = np.stack([np.zeros(len(start), np.int32), end - start], axis=1).astype(np.int32)
    return Windows(positions, document, core)


def check_sizes(size: int, overlap: int) -> None:
    """Checks the size of passages and what they share.

    Raises:
        ValueError: If the size is under 1, or the overlap negative or not smaller than the size, or one of them is no
            whole number.
    """
    check_whole("tokens of a passage", size)
    check_whole("tokens that neighbouring passages share", overlap, 0)
    if overlap >= size:
        raise ValueError(f"neighbouring passages of {size} tokens can share 0 to {size - 1} of them, got {overlap}")


def _packed(length: int, starts: Sequence[int], size: int, overlap: int) -> list[tuple[int, int]]:
    borders = np.append(starts, length)
    ranges, begin, end = [], 0, 0
    while end < length or not ranges:
        fitting = _last_border(borders, begin + size)
        if fitting <= end:  # behind what is shared there is no room for the next sentence
            begin, fitting = end, _last_border(borders, end + size)
        end = fitting if fitting > end else min(begin + size, length)
        ranges.append((begin, end))
        begin = min(int(borders[np.searchsorted(borders, end - overlap)]), end)
    return ranges


def _last_border(borders: np.ndarray, limit: int) -> int:
    return int(borders[np.searchsorted(borders, limit, side="right") - 1])
