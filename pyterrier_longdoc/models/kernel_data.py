"""What kernel models are made with, hand on and give back: settings, encoded queries, the regions behind a score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from pyterrier_longdoc.checks import PlainSettings


@dataclass(frozen=True)
class KernelConfig(PlainSettings):
    """Settings of every kernel model.

    Attributes:
        dims: Width of the token vectors.
        vocabulary: Rows of the vector table; 0 for a model that is only given vectors.
        train_vectors: Whether training changes the table.
    """

    dims: int
    vocabulary: int = 0
    train_vectors: bool = True


class Queries(NamedTuple):
    """Encoded queries.

    Attributes:
        vectors: ``[q, tokens, d]``, zero where ``mask`` is False.
        mask: Real tokens, bool ``[q, tokens]``.
        salience: Weight of each query term (its IDF, or what training made of it), ``[q, tokens]``, or ``None``.
    """

    vectors: Tensor
    mask: Tensor
    salience: Tensor | None

    def take(self, indices: Tensor) -> Queries:
        """The queries at ``indices``, in that order, cut to the longest of them."""
        mask = self.mask[indices]
        longest = max(1, int(mask.sum(1).max()))
        salience = None if self.salience is None else self.salience[indices, :longest]
        return Queries(self.vectors[indices, :longest], mask[:, :longest], salience)


class Evidence(NamedTuple):
    """The regions that made a pair's score.

    Attributes:
        start: First token of each region, ``[pairs, regions]``; -1 where there is no such region.
        end: Past-last token, ``[pairs, regions]``.
        weight: What the region adds to the score, ``[pairs, regions]``.
    """

    start: Tensor
    end: Tensor
    weight: Tensor
