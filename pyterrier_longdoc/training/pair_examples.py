"""Training on pairs of documents that match or do not, as a task of the one trainer.

``"binary"`` learns each pair's label by cross-entropy on the logit of the match (SMITH, section 3.4). ``"in_batch"``
learns from the matching pairs: the partner of a document has to win against the partners of the others in the batch,
and against the documents that are labelled as not matching it (hard negatives). A document is no rival to itself, nor
is one that matches it the other way round, unless the label of that very pair says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional

from pyterrier_longdoc.pooling import Budget
from pyterrier_longdoc.training.settings import Settings
from pyterrier_longdoc.training.task import NEGATIVES, hash_of, shuffled
from pyterrier_longdoc.windows import Ragged

if TYPE_CHECKING:
    from pyterrier_longdoc.reranker import ReRanker

PAIR_LOSSES = ("binary", "in_batch")
PAIR_MEASURES = ("AUC", "accuracy", "F1")
#: Settings that only a training on queries has.
_OF_RANKING = ("min_label", "graded", "teacher")


@dataclass(frozen=True)
class PairSettings(Settings):
    """Settings of :func:`pyterrier_longdoc.pairs.fit_pairs`; what is not listed is as in :class:`Settings`.

    Attributes:
        loss: ``"binary"`` or ``"in_batch"``, where each of several processes sees the candidates of its own share.
        measure: What decides which weights are best on validation pairs: ``"AUC"``, ``"accuracy"`` or ``"F1"``, the
            last two at their best threshold there.
        negatives: With ``"in_batch"``, documents labelled as not matching that each example brings along, if it has
            so many; 1 by default.

    Raises:
        ValueError: If one is out of range.
    """

    names: ClassVar[tuple[str, ...]] = PAIR_LOSSES
    loss: str = "binary"
    measure: Any = "AUC"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss == "in_batch" and self.accumulate > 1:
            raise ValueError("with loss='in_batch' accumulate must be 1: in parts, examples would have fewer negatives")

    @classmethod
    def of(cls, **settings: Any) -> PairSettings:  # noqa: ANN401
        """The same as the constructor, with messages that name what is unknown or has no meaning for pairs."""
        foreign = sorted(settings.keys() & set(_OF_RANKING))
        if foreign:
            named = ", ".join(map(repr, foreign))
            raise TypeError(f"a training on pairs has no setting {named}: a pair matches if its label is more than 0")
        return super().of(**settings)

    @property
    def measures(self) -> list[str]:
        """The deciding measure first."""
        if self.measure not in PAIR_MEASURES:
            raise ValueError(f"measure must be one of {', '.join(map(repr, PAIR_MEASURES))}, got {self.measure!r}")
        return [self.measure, *(name for name in PAIR_MEASURES if name != self.measure)]


@dataclass(frozen=True)
class PairExamples:
    """Pairs as a model reads them; an example is a pair, and with ``"in_batch"`` a matching one.

    Attributes:
        queries: Token ids of the different source documents.
        documents: Token ids of the different candidates.
        pairs: Source and candidate of each pair, int64 ``[p, 2]``; those of a source lie together.
        labels: Whether each pair matches, bool ``[p]``.
        unsafe: Sources and candidates that may match without being labelled: equal ones, and those that match in the
            other direction, int64 ``[u, 2]``.
        chosen: The pair of each example, int64 ``[e]``.
        settings: See :class:`PairSettings`.
    """

    queries: Ragged
    documents: Ragged
    pairs: np.ndarray
    labels: np.ndarray
    unsafe: np.ndarray
    chosen: np.ndarray
    settings: PairSettings

    @classmethod
    def of(cls, ranker: ReRanker, pairs: pd.DataFrame, settings: PairSettings) -> PairExamples:
        """Examples from a frame of :func:`pyterrier_longdoc.pairs.as_pairs`.

        Raises:
            ValueError: If there is nothing to tell apart: no pair that matches, or none that does not.
        """
        source, sources = pd.factorize(pairs["text_a"])
        candidate, candidates = pd.factorize(pairs["text_b"])
        order = np.argsort(source, kind="stable")
        labels = pairs["label"].to_numpy()[order] > 0
        if not labels.any() or (labels.all() and settings.loss == "binary"):
            raise ValueError(
                f"{int(labels.sum())} of {len(pairs)} training pairs match (label > 0); loss={settings.loss!r} needs "
                + ("some that do and some that do not" if settings.loss == "binary" else "some that do")
            )
        queries, documents = (
            ranker._cut(tokens, settings.train_doc_tokens, "train_doc_tokens", "training documents")
            for tokens in (ranker.tokenize(list(sources)), ranker._read(list(candidates)))
        )
        numbers = np.stack([source, candidate], axis=1)[order].astype(np.int64)
        return cls(
            queries=queries,
            documents=documents,
            pairs=numbers,
            labels=labels,
            unsafe=_unsafe(sources, candidates, numbers[labels]),
            chosen=np.flatnonzero(labels) if settings.loss == "in_batch" else np.arange(len(labels)),
            settings=settings,
        )

    def __len__(self) -> int:
        return len(self.chosen)

    def order(self, epoch: int) -> np.ndarray:
        """The examples in the order of an epoch, int64 ``[e]``."""
        return shuffled(self, epoch)

    def module(self, model: nn.Module) -> nn.Module:
        """The model itself."""
        return model

    def loss(
        self, ranker: ReRanker, module: nn.Module, epoch: int, examples: np.ndarray, budget: Budget
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean loss of some examples; see :meth:`Task.loss <pyterrier_longdoc.training.task.Task.loss>`."""
        rows = self.chosen[examples]
        if self.settings.loss == "binary":
            logits = self._logits(ranker, module, self.pairs[rows], budget)
            labels = torch.from_numpy(self.labels[rows]).to(logits)
            right = ((logits > 0) == (labels > 0)).float().mean()
            return functional.binary_cross_entropy_with_logits(logits, labels), {"accuracy_tr": right.detach()}
        grid, allowed = self._grid(epoch, examples)
        logits = self._logits(ranker, module, grid.reshape(-1, 2), budget).view(allowed.shape)
        logits = logits.masked_fill(~torch.from_numpy(allowed).to(logits.device), -torch.inf)
        own = torch.arange(len(rows), device=logits.device)  # the partners come first, in the order of the examples
        right = (logits.argmax(1) == own).float().mean()
        return functional.cross_entropy(logits, own), {"accuracy_tr": right.detach()}

    def _logits(self, ranker: ReRanker, module: nn.Module, pairs: np.ndarray, budget: Budget) -> Tensor:
        sources, source = np.unique(pairs[:, 0], return_inverse=True)
        candidates, candidate = np.unique(pairs[:, 1], return_inverse=True)
        local = np.stack([source, candidate], axis=1)
        taken = self.queries.take(sources), self.documents.take(candidates)
        return ranker._score_group(module, *taken, local, budget).float()

    def _grid(self, epoch: int, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Each example's source with all candidates of the batch.

        Returns:
            Pairs int64 ``[b, candidates, 2]``, the partners of the examples first; and which of them count, bool: not
            the other partners of the same source, nor what may match it without being labelled.
        """
        rows = self.chosen[examples]
        hard = [self._hard_negatives(epoch, int(example)) for example in examples]
        candidates = np.concatenate([self.pairs[rows, 1], *hard])
        sources = self.pairs[rows, 0]
        grid = np.stack(np.meshgrid(sources, candidates, indexing="ij"), axis=2)
        key, negatives = self._key(grid), self._key(self.pairs[~self.labels])
        allowed = ~np.isin(key, self._key(self.pairs[self.labels]))
        allowed &= ~np.isin(key, self._key(self.unsafe)) | np.isin(key, negatives)
        allowed[np.arange(len(rows)), np.arange(len(rows))] = True
        return grid, allowed

    def _hard_negatives(self, epoch: int, example: int) -> np.ndarray:
        """Candidates labelled as not matching an example's source, int64."""
        first, end = np.searchsorted(self.pairs[:, 0], self.pairs[self.chosen[example], 0] + np.array([0, 1]))
        found = self.pairs[first:end, 1][~self.labels[first:end]]
        count = min(len(found), 1 if self.settings.negatives is None else self.settings.negatives)
        random = np.random.default_rng([self.settings.seed, NEGATIVES, epoch, example])
        return random.choice(found, count, replace=False)

    def _key(self, pairs: np.ndarray) -> np.ndarray:
        """One number for each pair of numbers."""
        return pairs[..., 0] * len(self.documents) + pairs[..., 1]

    def fingerprint(self) -> str:
        """A hash of everything that examples are drawn from."""
        return hash_of(*self.queries.arrays(), *self.documents.arrays(), self.pairs, self.labels)


def _unsafe(sources: np.ndarray, candidates: np.ndarray, matching: np.ndarray) -> np.ndarray:
    """Numbers of equal sources and candidates, and of those whose texts match in the other direction, ``[u, 2]``."""
    as_candidate = pd.Index(candidates).get_indexer(sources)
    as_source = pd.Index(sources).get_indexer(candidates)
    equal = np.stack([np.arange(len(sources)), as_candidate], axis=1)
    other_way = np.stack([as_source[matching[:, 1]], as_candidate[matching[:, 0]]], axis=1)
    found = np.concatenate([equal, other_way]).astype(np.int64)
    return found[(found >= 0).all(axis=1)]
