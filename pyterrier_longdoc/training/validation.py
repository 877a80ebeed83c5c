"""Measuring a ranker on held-out queries while it is trained."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

import ir_measures
import pandas as pd

from pyterrier_longdoc.training.examples import check_frames, labels_of
from pyterrier_longdoc.training.settings import Settings

if TYPE_CHECKING:
    from pyterrier_longdoc.reranker import ReRanker
    from pyterrier_longdoc.training.processes import AccelerateProcesses, OneProcess


class Measured(Protocol):
    """What training validates with."""

    def __call__(self) -> dict[str, float]:
        """Name and value of each measure with the weights as they are now; the first decides, higher is better."""

    def fingerprint(self) -> str:
        """A hash of the data."""


class Validation:
    """Measures over the queries of some results; the first measure says which weights are best.

    Args:
        ranker: The ranker.
        res: Results to re-rank.
        qrels: Their judgements.
        settings: The measures.
        processes: Each scores its share of the queries.

    Raises:
        ValueError: If a frame is unfit, or no document of the results is relevant.
    """

    def __init__(
        self,
        ranker: ReRanker,
        res: pd.DataFrame,
        qrels: pd.DataFrame,
        settings: Settings,
        processes: OneProcess | AccelerateProcesses,
    ) -> None:
        check_frames(ranker, res, qrels, "validation")
        if not (labels_of(res, qrels) >= settings.min_label).any():
            raise ValueError(f"{ranker}: none of the validation results is relevant (label >= {settings.min_label})")
        self._ranker = ranker
        self._res = res
        self._measures = settings.measures
        self._processes = processes
        self._share = res[pd.factorize(res["qid"])[0] % processes.count == processes.rank]
        names = {"qid": "query_id", "docno": "doc_id", "label": "relevance"}
        self._qrels = qrels[qrels["qid"].isin(res["qid"])].rename(columns=names)[list(names.values())]

    def fingerprint(self) -> str:
        """A hash of the results and judgements."""
        digest = blake2b(digest_size=8)
        for frame in (self._res[["qid", "docno", "query", *self._ranker.text_columns]], self._qrels):
            digest.update(pd.util.hash_pandas_object(frame, index=False).to_numpy().data)
        return digest.hexdigest()

    def __call__(self) -> dict[str, float]:
        """Ranks with the weights as they are now.

        Returns:
            Name and value of each measure, the deciding one first.
        """
        scored = self._ranker.transform(self._share)[["qid", "docno", "score"]]
        run = pd.concat(self._processes.gather(scored)).rename(columns={"qid": "query_id", "docno": "doc_id"})
        values = ir_measures.calc_aggregate(self._measures, self._qrels, run)
        return {str(measure): float(values[measure]) for measure in self._measures}
