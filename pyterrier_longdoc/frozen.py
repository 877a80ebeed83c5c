"""Rankers that the training of a pipeline leaves alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyterrier as pt

if TYPE_CHECKING:
    import pandas as pd

    from pyterrier_longdoc.reranker import ReRanker


class Frozen(pt.Transformer):
    """A ranker without ``fit``: use it before another learner, which would otherwise see it trained once more.

    Args:
        ranker: The ranker.
    """

    def __init__(self, ranker: ReRanker) -> None:
        super().__init__()
        self.ranker = ranker

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Scores and ranks; see :meth:`ReRanker.transform`."""
        return self.ranker.transform(inp)

    @property
    def schematic(self) -> dict[str, str]:
        """Drawn as the ranker itself."""
        return self.ranker.schematic

    def subtransformers(self) -> dict[str, pt.Transformer]:
        """None, as of the ranker."""
        return {}

    def __repr__(self) -> str:
        return f"{self.ranker!r}.frozen()"
