"""The sum of a first stage's scores and a share of a re-ranker's, and how to choose the share."""

from __future__ import annotations

import pandas as pd
import pyterrier as pt
from ir_measures import nDCG

#: Shares of the re-ranker in the combination with BM25 that validation chooses from.
_SHARES = (0.1, 0.2, 0.3, 0.5, 0.75, 1.0)


def combine(first: pd.DataFrame, second: pd.DataFrame, share: float) -> pd.DataFrame:
    """Adds to a first stage's scores a share of a re-ranker's, both standardised within each query.

    Args:
        first: Results of the first stage.
        second: The same rows, scored by the re-ranker.
        share: What the re-ranker's scores are multiplied by.

    Returns:
        ``first`` with the new scores and ranks.
    """
    score = _standard(first) + share * _standard(second)
    return pt.model.add_ranks(first.assign(score=score.astype("float64")))


def choose_share(first: pd.DataFrame, second: pd.DataFrame, qrels: pd.DataFrame) -> float:
    """The smallest share whose nDCG@10 is within one standard error of the best one's.

    The error is that of the best one's gain over the first stage. Validation questions differ from those of the test:
    the smallest share that cannot be told from the best departs least from what is known to work.

    Args:
        first: Results of the first stage.
        second: The same rows, scored by the re-ranker.
        qrels: Their judgements.

    Returns:
        One of the shares tried.
    """
    before = ndcg(first, qrels)
    gains = {share: ndcg(combine(first, second, share), qrels) - before for share in _SHARES}
    best = max(gains.values(), key=pd.Series.mean)
    return min(share for share, gain in gains.items() if gain.mean() >= best.mean() - best.sem())


def ndcg(res: pd.DataFrame, qrels: pd.DataFrame) -> pd.Series:
    """nDCG@10 of each query, by qid."""
    values = pt.Evaluate(res, qrels, metrics=[nDCG @ 10], perquery=True)
    return pd.Series({qid: value["nDCG@10"] for qid, value in values.items()}).sort_index()


def _standard(res: pd.DataFrame) -> pd.Series:
    groups = res.groupby("qid", sort=False)["score"]
    spread = groups.transform("std").fillna(0.0)
    return (res["score"] - groups.transform("mean")) / spread.where(spread > 0, 1.0)
