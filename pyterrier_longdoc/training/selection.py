"""Teaching IDCM's selector which passages the encoder would score highest (Hofstätter et al., SIGIR 2021, Section 3.3).

Every (query, document) pair of some results is an example, judged or not: the encoder reads all passages of the
document, those that it scores highest are the relevant ones, and the selector learns to rank them first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from pyterrier_longdoc.models.idcm import IDCMModel
from pyterrier_longdoc.pooling import Budget
from pyterrier_longdoc.training.examples import _cut, check_frames
from pyterrier_longdoc.training.fitting import processes_for, train
from pyterrier_longdoc.training.settings import Settings
from pyterrier_longdoc.training.task import hash_of, shuffled
from pyterrier_longdoc.training.validation import Validation
from pyterrier_longdoc.windows import Ragged

if TYPE_CHECKING:
    from pyterrier_longdoc.idcm import IDCM


def ndcg_loss(scores: Tensor, gains: Tensor, mask: Tensor) -> Tensor:
    """LambdaLoss with the weights of NDCG-Loss2 (Wang et al., CIKM 2018, eq. 18).

    Args:
        scores: What is learned, ``[lists, n]``.
        gains: Relevance of each item, ``[lists, n]``.
        mask: Real items, bool ``[lists, n]``.

    Returns:
        Mean over the lists, a scalar; a list whose items are all equally relevant counts 0.
    """
    scores, order = scores.masked_fill(~mask, -torch.inf).sort(dim=1, descending=True, stable=True)
    gains, real = gains.masked_fill(~mask, 0).gather(1, order), mask.gather(1, order)
    scores = scores.masked_fill(~real, 0)
    place = torch.arange(1, scores.shape[1] + 1, device=scores.device)
    ideal = ((2 ** gains.sort(dim=1, descending=True).values - 1) / (1 + place).log2()).sum(1, keepdim=True)
    worth = (2**gains - 1) / ideal.clamp(min=1e-6)
    distance = (place[:, None] - place).abs()
    discount = (1 / (1 + distance.clamp(min=1)).log2() - 1 / (2 + distance).log2()) * (distance > 0)
    lead = scores[:, :, None] - scores[:, None, :]
    better = (gains[:, :, None] > gains[:, None, :]) & real[:, :, None] & real[:, None, :]
    weight = discount * (worth[:, :, None] - worth[:, None, :]).abs() * better
    return (weight * functional.softplus(-lead) / math.log(2)).sum((1, 2)).mean()


class Distillation(nn.Module):
    """The loss of the selector, as a module, so that several processes can share the work.

    Args:
        model: The model; its encoder teaches, its selector learns.
    """

    def __init__(self, model: IDCMModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, queries: Ragged, documents: Ragged, pairs: np.ndarray, budget: Budget
    ) -> tuple[Tensor, Tensor]:
        """The mean loss over pairs, and the share of the encoder's best passages that the selector finds."""
        passages = self.model.all_passages(documents, pairs)
        with torch.no_grad():
            taught = self.model.passage_scores(queries, documents, passages, budget)
        learned = self.model.select(passages, queries, documents, budget)
        counts = np.diff(passages.offsets).tolist()
        taught, learned, mask = (
            pad_sequence(each.float().split(counts), batch_first=True, padding_value=empty)
            for each, empty in ((taught, -torch.inf), (learned, -torch.inf), (torch.ones_like(taught), 0))
        )
        most = min(self.model.config.max_passages, taught.shape[1])
        teacher, student = taught.topk(most, dim=1).indices, learned.topk(most, dim=1).indices
        worth = torch.arange(most, 0, -1, dtype=torch.float32, device=taught.device).expand(len(pairs), -1)
        gains = torch.zeros_like(taught).scatter(1, teacher, worth)
        found = (teacher[:, :, None] == student[:, None, :]).any(2) & mask.bool().gather(1, teacher)
        share = found.sum(1) / mask.sum(1).clamp(max=most)
        return ndcg_loss(learned, gains, mask.bool()), share.mean()


@dataclass(frozen=True)
class Selection:
    """The task: pairs of queries and documents.

    Attributes:
        queries: Token ids of each query.
        documents: Token ids of each document.
        pairs: Query and document number of each example, int64 ``[e, 2]``.
        settings: How it is trained.
    """

    queries: Ragged
    documents: Ragged
    pairs: np.ndarray
    settings: Settings

    @classmethod
    def of(cls, ranker: IDCM, res: pd.DataFrame, settings: Settings) -> Selection:
        """All pairs of some results, each once."""
        queries, documents, pairs = ranker._unique_texts(res)
        tokens = _cut(ranker, ranker.tokenize(documents), settings.train_doc_tokens)
        return cls(ranker.tokenize(queries), tokens, np.unique(pairs, axis=0).astype(np.int64), settings)

    def __len__(self) -> int:
        return len(self.pairs)

    def order(self, epoch: int) -> np.ndarray:
        """See :class:`~pyterrier_longdoc.training.task.Task`."""
        return shuffled(self, epoch)

    def fingerprint(self) -> str:
        """See :class:`~pyterrier_longdoc.training.task.Task`."""
        return hash_of(*self.queries.arrays(), *self.documents.arrays(), self.pairs)

    def module(self, model: IDCMModel) -> Distillation:
        """See :class:`~pyterrier_longdoc.training.task.Task`."""
        return Distillation(model)

    def loss(
        self, ranker: IDCM, module: nn.Module, epoch: int, examples: np.ndarray, budget: Budget
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See :class:`~pyterrier_longdoc.training.task.Task`."""
        queries, query = np.unique(self.pairs[examples, 0], return_inverse=True)
        documents, document = np.unique(self.pairs[examples, 1], return_inverse=True)
        pairs = np.stack([query, document], axis=1)
        loss, found = module(self.queries.take(queries), self.documents.take(documents), pairs, budget)
        return loss, {"found": found}


def fit_selector(
    ranker: IDCM,
    res_tr: pd.DataFrame,
    qrels_tr: pd.DataFrame,
    res_va: pd.DataFrame | None = None,
    qrels_va: pd.DataFrame | None = None,
    *,
    settings: dict[str, Any],
    **checkpoints: Any,  # noqa: ANN401
) -> IDCM:
    """Trains the selector; the encoder and all else stay as they are.

    ``ranker.history`` has a column ``found``: the share of the encoder's best passages among those selected.

    Args:
        ranker: The ranker; it is changed.
        res_tr: Results to learn from; all their pairs.
        qrels_tr: Not used but for its columns: the encoder judges.
        res_va: Results to validate the whole cascade on.
        qrels_va: Their judgements.
        settings: Fields of :class:`~pyterrier_longdoc.training.settings.Settings`.
        **checkpoints: As in :func:`~pyterrier_longdoc.training.fitting.train`.

    Returns:
        The ranker.

    Raises:
        ValueError: If a frame or setting is unfit.
    """
    if (res_va is None) != (qrels_va is None):
        raise ValueError("validation needs both results and qrels: give both or neither")
    for name in ("loss", "negatives", "representation_lr"):
        if settings.get(name):
            raise ValueError(f"stage='selector' has no setting {name!r}: the selector learns from the encoder alone")
    chosen = Settings.of(**{**settings, "representation_lr": 0.0})
    processes = processes_for(ranker)
    check_frames(ranker, res_tr, qrels_tr, "training")
    task = Selection.of(ranker, res_tr, chosen)
    validation = None if res_va is None else Validation(ranker, res_va, qrels_va, chosen, processes)
    return train(ranker, task, validation, processes, **checkpoints)
