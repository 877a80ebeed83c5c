"""A long document is a set of windows over its tokens.

TKL's overlapping local windows, passages, sentence blocks, chunks and friend circles differ only in *which token
positions* a window holds. :class:`Windows` is that list of positions, for all documents of a call at once;
:class:`Ragged` is the tokens themselves. Both are plain NumPy: models move to their device only what one pass needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np


@dataclass(frozen=True)
class Ragged:
    """Sequences of different lengths in one flat array.

    Attributes:
        values: All sequences, one behind the other, ``[sum of lengths]``.
        offsets: Where each sequence starts, and the end of the last one, int64 ``[n + 1]``.
    """

    values: np.ndarray
    offsets: np.ndarray

    @classmethod
    def from_lists(cls, lists: Iterable[Sequence[int]], dtype: type = np.int32) -> Ragged:
        """Packs sequences of numbers into one flat array."""
        arrays = [np.asarray(item, dtype=dtype) for item in lists]
        return cls(np.concatenate(arrays) if arrays else np.empty(0, dtype), _offsets([len(a) for a in arrays]))

    @property
    def lengths(self) -> np.ndarray:
        """The length of each sequence, int64 ``[n]``."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        if not 0 <= index < len(self):
            raise IndexError(f"sequence {index} of {len(self)}")
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def arrays(self) -> list[np.ndarray]:
        """All that is known of the sequences: values, offsets, and what a subclass keeps beside them."""
        parts = [getattr(self, field.name) for field in fields(self)]
        return [array for part in parts for array in (part.arrays() if isinstance(part, Ragged) else [part])]

    def take(self, indices: np.ndarray) -> Ragged:
        """The sequences at ``indices``, in that order."""
        lengths = self.lengths[indices]
        offsets = _offsets(lengths)
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return Ragged(self.values[np.repeat(self.offsets[:-1][indices], lengths) + within], offsets)

    def head(self, counts: np.ndarray) -> Ragged:
        """The first ``counts[i]`` values of each sequence, or all where there are fewer."""
        lengths = np.minimum(counts, self.lengths)
        offsets = _offsets(lengths)
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return Ragged(self.values[np.repeat(self.offsets[:-1], lengths) + within], offsets)

    def flat_index(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions in ``values`` of the sequences at ``indices``, as a padded table.

        Returns:
            ``(index, mask)``, int64 and bool, both ``[len(indices), longest]`` with at least one column; ``index`` is
            0 where ``mask`` is False.
        """
        lengths = self.lengths[indices]
        columns = np.arange(max(1, lengths.max(initial=0)))
        mask = columns < lengths[:, None]
        return np.where(mask, self.offsets[:-1][indices][:, None] + columns, 0), mask

    def padded(self) -> tuple[np.ndarray, np.ndarray]:
        """All sequences as one table.

        Returns:
            ``(values, mask)``, both ``[n, longest]`` with at least one column; 0 where ``mask`` is False.
        """
        index, mask = self.flat_index(np.arange(len(self)))
        table = np.zeros(index.shape, self.values.dtype)
        table[mask] = self.values[index[mask]]
        return table, mask


@dataclass(frozen=True)
class Windows:
    """Token positions of the windows of several documents.

    Attributes:
        positions: Position in its document of each token of each window, int32 ``[w, width]``; -1 behind the last.
        document: The document that each window belongs to, int64 ``[w]``.
        core: The columns ``first:end`` that a window answers for, int32 ``[w, 2]``; the others are its context.
    """

    positions: np.ndarray
    document: np.ndarray
    core: np.ndarray

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def widths(self) -> np.ndarray:
        """How many tokens each window holds, int64 ``[w]``."""
        return (self.positions >= 0).sum(axis=1)

    def take(self, indices: np.ndarray) -> Windows:
        """The windows at ``indices``, cut to the widest of them."""
        positions = self.positions[indices]
        width = int((positions >= 0).sum(axis=1).max(initial=1))
        return Windows(positions[:, :width], self.document[indices], self.core[indices])

    def by_document(self, documents: int) -> Ragged:
        """The numbers of the windows of each of so many documents; those of a document must follow each other."""
        counts = np.bincount(self.document, minlength=documents)
        return Ragged(np.arange(len(self)), _offsets(counts))

    def flat_index(self, documents: Ragged) -> tuple[np.ndarray, np.ndarray]:
        """Where each token of each window lies in ``documents.values``.

        Returns:
            ``(index, mask)``, int64 and bool ``[w, width]``; ``index`` is 0 where ``mask`` is False.
        """
        mask = self.positions >= 0
        return np.where(mask, documents.offsets[:-1][self.document][:, None] + self.positions, 0), mask

    def rows(self) -> np.ndarray:
        """Place of each token counted from the core's first one, negative before it, int64 ``[w, width]``."""
        return np.arange(self.positions.shape[1]) - self.core[:, :1].astype(np.int64)

    def core_mask(self) -> np.ndarray:
        """Which tokens the windows answer for, bool ``[w, width]``."""
        columns = np.arange(self.positions.shape[1])
        return (columns >= self.core[:, :1]) & (columns < self.core[:, 1:])


def contiguous_windows(lengths: np.ndarray, core: int | None, context: int = 0) -> Windows:
    """Cuts each document into cores of ``core`` tokens that see ``context`` more tokens on both sides.

    Every token lies in exactly one core, so that window outputs can be put back without loss or double counting;
    neighbouring windows share ``2 * context`` tokens. An empty document has no window.

    Args:
        lengths: Tokens of each document, ``[n]``.
        core: Tokens of a core; ``None`` makes one window of each document.
        context: Tokens of context on each side.

    Raises:
        ValueError: If ``core`` is under 1 or ``context`` negative.
    """
    lengths = np.asarray(lengths, np.int64)
    core = max(1, int(lengths.max(initial=1))) if core is None else core
    if core < 1 or context < 0:
        raise ValueError(f"core must be at least 1 and context at least 0, got core={core}, context={context}")
    counts = -(-lengths // core)
    document = np.repeat(np.arange(len(lengths)), counts)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    start = np.maximum(within * core - context, 0)
    end = np.minimum((within + 1) * core + context, lengths[document])
    columns = np.arange(max(1, (end - start).max(initial=0)))
    positions = start[:, None] + columns
    positions = np.where(positions < end[:, None], positions, -1).astype(np.int32)
    first = within * core - start
    last = np.minimum((within + 1) * core, lengths[document]) - start
    return Windows(positions, document, np.stack([first, last], axis=1).astype(np.int32))


def _offsets(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
