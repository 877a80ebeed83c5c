"""Training examples: one relevant document of a query, and others of its results that are not.

Which examples there are follows from the results and the judgements alone. Their order in an epoch and the negatives
of each follow from (seed, epoch, number of the example), never from how many were drawn before: a training that was
cut off goes on with exactly the examples that it would have had.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyterrier as pt
import torch
from torch import Tensor, nn

from pyterrier_longdoc.frames import strings
from pyterrier_longdoc.pooling import Budget
from pyterrier_longdoc.training.settings import Settings
from pyterrier_longdoc.training.task import NEGATIVES, hash_of, shuffled
from pyterrier_longdoc.windows import Ragged

if TYPE_CHECKING:
    from pyterrier_longdoc.reranker import ReRanker


@dataclass(frozen=True)
class Batch:
    """Some examples as a model reads them.

    Attributes:
        queries: Token ids of each query.
        documents: Token ids of each document.
        pairs: Query and document number of each pair, int64 ``[examples * group, 2]``, positives first in each group.
        teacher: A teacher's scores, float32 ``[examples, group]``, or ``None``.
    """

    queries: Ragged
    documents: Ragged
    pairs: np.ndarray
    teacher: np.ndarray | None


@dataclass(frozen=True)
class Examples:
    """All examples of a training.

    Attributes:
        queries: Token ids of each query.
        documents: Token ids of each document.
        pairs: Query and document number of each candidate, int64 ``[c, 2]``; those of a query lie together, the
            lowest label first.
        teacher: A teacher's score of each candidate, float32 ``[c]``, or ``None``.
        positive: The relevant candidate of each example, int64 ``[e]``.
        pool: Its negatives are drawn from the candidates ``first:end``, int64 ``[e, 2]``.
        settings: Seed and size of the groups.
    """

    queries: Ragged
    documents: Ragged
    pairs: np.ndarray
    teacher: np.ndarray | None
    positive: np.ndarray
    pool: np.ndarray
    settings: Settings

    def __len__(self) -> int:
        return len(self.positive)

    def order(self, epoch: int) -> np.ndarray:
        """The examples in the order of an epoch, int64 ``[e]``."""
        return shuffled(self, epoch)

    def group(self, epoch: int, example: int) -> np.ndarray:
        """The candidates of an example, positive first, int64 ``[1 + negatives]``.

        Negatives are drawn without replacement, unless the query has too few.
        """
        first, end = self.pool[example]
        random = np.random.default_rng([self.settings.seed, NEGATIVES, epoch, example])
        count = self.settings.group_size - 1
        return np.r_[self.positive[example], first + random.choice(end - first, count, replace=count > end - first)]

    def batch(self, epoch: int, examples: np.ndarray) -> Batch:
        """Some examples with the negatives that they have in an epoch."""
        rows = np.concatenate([self.group(epoch, int(example)) for example in examples])
        queries, query = np.unique(self.pairs[rows, 0], return_inverse=True)
        documents, document = np.unique(self.pairs[rows, 1], return_inverse=True)
        teacher = None if self.teacher is None else self.teacher[rows].reshape(len(examples), -1)
        return Batch(
            self.queries.take(queries), self.documents.take(documents), np.stack([query, document], axis=1), teacher
        )

    def module(self, model: nn.Module) -> nn.Module:
        """The model itself."""
        return model

    def loss(
        self, ranker: ReRanker, module: nn.Module, epoch: int, examples: np.ndarray, budget: Budget
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The ranking loss of some examples; see :meth:`Task.loss <pyterrier_longdoc.training.task.Task.loss>`.

        Raises:
            ValueError: If a loss function of the user's own returns more than one number.
        """
        batch = self.batch(epoch, examples)
        scores = ranker._score_group(module, batch.queries, batch.documents, batch.pairs, budget)
        teacher = None if batch.teacher is None else torch.from_numpy(batch.teacher).to(scores.device)
        loss = self.settings.loss_function(scores.float().view(len(examples), -1), teacher)
        if loss.ndim:
            raise ValueError(f"the loss must be one number, the mean over examples; it has shape {tuple(loss.shape)}")
        return loss, {}

    def fingerprint(self) -> str:
        """A hash of everything that examples are drawn from."""
        texts = (*self.queries.arrays(), *self.documents.arrays())
        return hash_of(*texts, self.pairs, self.teacher, self.positive, self.pool)


def collect_examples(
    ranker: ReRanker, res: pd.DataFrame, qrels: pd.DataFrame, settings: Settings, positives: str | pt.Transformer
) -> Examples:
    """Turns results and judgements into examples; arguments as in :func:`pyterrier_longdoc.training.fit`."""
    check_frames(ranker, res, qrels, "training")
    rows = _candidates(ranker, res, settings)
    if positives != "retrieved":
        rows = _with_all_positives(ranker, rows, qrels, settings, positives)
    rows["label"] = labels_of(rows, qrels)
    rows = _usable(rows, qrels, settings)
    first = rows.groupby("qid", sort=False).ngroup().rename("query_number")
    rows = rows.assign(query_number=first).sort_values(["query_number", "label"], kind="stable", ignore_index=True)
    positive, pool = _groups(rows, settings)
    query, queries = pd.factorize(rows["query"])
    document, documents = pd.factorize(ranker._documents(rows))
    return Examples(
        queries=ranker.tokenize(list(queries)),
        documents=_cut(ranker, ranker.tokenize(list(documents)), settings.train_doc_tokens),
        pairs=np.stack([query, document], axis=1).astype(np.int64),
        teacher=rows[settings.teacher].to_numpy(np.float32) if settings.teacher in rows else None,
        positive=positive,
        pool=pool,
        settings=settings,
    )


def check_frames(ranker: ReRanker, res: pd.DataFrame, qrels: pd.DataFrame, what: str) -> None:
    """Checks the columns of results and judgements, and that their ids can meet.

    Raises:
        ValueError: If there are no results, an id is no string, or a label no number.
    """
    pt.validate.result_frame(res, extra_columns=["query", *ranker.text_columns], context=ranker)
    pt.validate.columns(qrels, includes=["qid", "docno", "label"], context=ranker)
    if not len(res):
        raise ValueError(f"No {what} results to fit to")
    for name, frame in ((f"the {what} results", res), (f"the {what} qrels", qrels)):
        for column in ("qid", "docno"):
            wrong = ~frame[column].map(lambda value: isinstance(value, str)).to_numpy(bool)
            if wrong.any():
                value = frame[column].iloc[int(wrong.argmax())]
                raise ValueError(
                    f"{ranker}: column {column!r} of {name} holds {type(value).__name__} {value!r}, not text; "
                    f"use frame.astype({{{column!r}: str}})"
                )
    if not pd.api.types.is_numeric_dtype(qrels["label"]) or qrels["label"].isna().any():
        raise ValueError(f"{ranker}: column 'label' of the {what} qrels must hold a number in every row")


def labels_of(rows: pd.DataFrame, qrels: pd.DataFrame) -> np.ndarray:
    """The label of each row's document, ``[r]``; 0 where it was not judged, the highest where it was judged twice."""
    judged = qrels.groupby(["qid", "docno"])["label"].max()
    return judged.reindex(pd.MultiIndex.from_frame(rows[["qid", "docno"]])).fillna(0).to_numpy()


def _candidates(ranker: ReRanker, res: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    columns = ["qid", "docno", "query", *ranker.text_columns]
    if settings.teacher in res:
        columns.append(settings.teacher)
    elif settings.loss == "margin_mse":
        pt.validate.columns(res, includes=[settings.teacher], context=ranker)
    return res[columns].assign(query=strings(res, "query", ranker).array).drop_duplicates(["qid", "docno"])


def _with_all_positives(
    ranker: ReRanker, rows: pd.DataFrame, qrels: pd.DataFrame, settings: Settings, loader: Any  # noqa: ANN401
) -> pd.DataFrame:
    if not isinstance(loader, pt.Transformer):
        raise ValueError(f"positives must be 'retrieved' or a transformer that loads texts, got {loader!r}")
    if settings.teacher in rows:
        raise ValueError(
            f"relevant documents that were not retrieved have no {settings.teacher!r}; use positives='retrieved'"
        )
    relevant = qrels.loc[qrels["label"] >= settings.min_label, ["qid", "docno"]].drop_duplicates()
    relevant = relevant.merge(rows[["qid", "query"]].drop_duplicates("qid"), on="qid")
    retrieved = pd.MultiIndex.from_frame(rows[["qid", "docno"]])
    missing = relevant[~pd.MultiIndex.from_frame(relevant[["qid", "docno"]]).isin(retrieved)]
    if not len(missing):
        return rows
    loaded = loader(missing.reset_index(drop=True))
    pt.validate.result_frame(loaded, extra_columns=["query", *ranker.text_columns], context=loader)
    return pd.concat([rows, loaded[rows.columns]], ignore_index=True)


def _usable(rows: pd.DataFrame, qrels: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    relevant = rows["label"] >= settings.min_label
    best, worst = (rows.groupby("qid")["label"].transform(which) for which in ("max", "min"))
    usable = rows[(best >= settings.min_label) & (worst < (best if settings.graded else settings.min_label))]
    if not len(usable):
        queries = rows["qid"].nunique()
        raise ValueError(
            f"no query has a relevant document (label >= {settings.min_label}) and another one among its results: of "
            f"{queries} queries, {rows.loc[rows['qid'].isin(qrels['qid']), 'qid'].nunique()} are in the qrels, "
            f"{rows.loc[relevant, 'qid'].nunique()} have a relevant result, "
            f"{rows.loc[~relevant, 'qid'].nunique()} another one"
        )
    return usable


def _groups(rows: pd.DataFrame, settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Positives and the range of their negatives; ``rows`` are sorted by query and label."""
    query, label = rows["query_number"].to_numpy(), rows["label"]
    if settings.graded:
        below = label.groupby(query).rank(method="min").to_numpy(np.int64) - 1
    else:
        below = (label < settings.min_label).groupby(query).transform("sum").to_numpy(np.int64)
    first = np.searchsorted(query, query)
    positive = np.flatnonzero((label >= settings.min_label) & (below > 0))
    return positive, np.stack([first, first + below], axis=1)[positive]


def _cut(ranker: ReRanker, documents: Ragged, train_doc_tokens: int | None) -> Ragged:
    limits = {"max_doc_tokens": ranker.max_doc_tokens, "train_doc_tokens": train_doc_tokens}
    name = min(limits, key=lambda each: math.inf if limits[each] is None else limits[each])
    return ranker._cut(documents, limits[name], name, "training documents")
