"""Contrastive training on documents of which some match, as a task of the one trainer (CoLDE, section 3.3).

An example is a document; those of a step are contrasted with each other. The views of a document (the sections, for
CoLDE) match each other and those of the documents that are known to match it. All others repel, with one exception:
what is linked through a chain only (a paper, and another one that cites the same) is neither.

The larger the batch, the better the negatives. Encoders that can compute each batch of their pool twice instead of
keeping it in memory (gradient caching), so 200 documents fit where eight did, with the same gradients.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from pyterrier_longdoc.pooling import Budget
from pyterrier_longdoc.text.sections import Sectioned, head_of_sections
from pyterrier_longdoc.training.losses import contrastive_loss
from pyterrier_longdoc.training.pair_examples import PairSettings
from pyterrier_longdoc.training.task import ORDER, hash_of
from pyterrier_longdoc.windows import Ragged

if TYPE_CHECKING:
    from pyterrier_longdoc.dual_encoder import DualEncoder
    from pyterrier_longdoc.models.dual_encoder import DualEncoderModel

#: The paper's training (section 4.1.2).
CONTRASTIVE: dict[str, Any] = {
    "loss": "contrastive", "lr": 5e-5, "representation_lr": 5e-5, "weight_decay": 0.01, "batch_size": 50, "epochs": 25,
}
CONTRASTIVE_LOSSES = ("contrastive", "cosine")


@dataclass(frozen=True)
class ContrastiveSettings(PairSettings):
    """Settings of :func:`pyterrier_longdoc.colde.fit_contrastive`; others are as in :class:`PairSettings`.

    Attributes:
        loss: ``"contrastive"``, or ``"cosine"``, without any contrast (as for CoLDE-CL): 1 - cos for views that match
            and max(0, cos) for others.
        batch_size: Documents of a step (N), all of them contrasted with each other.
        temperature: τ of the contrastive loss.
        section_tokens: Tokens of each section that are read in training; all if ``None`` (Figure 7).

    Raises:
        ValueError: If one is out of range.
    """

    names: ClassVar[tuple[str, ...]] = CONTRASTIVE_LOSSES
    loss: str = "contrastive"
    temperature: float = 0.5
    section_tokens: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.accumulate > 1:
            raise ValueError(
                "accumulate must be 1: in parts, documents would have fewer negatives. Memory is bounded without it: "
                "each batch of the encoder's pool is computed on its own"
            )
        if not self.temperature > 0:
            raise ValueError(f"temperature must be over 0, got {self.temperature!r}")


@dataclass(frozen=True)
class Matches:
    """Which of some documents match.

    Attributes:
        group: Documents that are linked, directly or through others, have the same number, int64 ``[n]``.
        matching: Keys of pairs that match, sorted; ``None``: all of a group do.
        apart: Keys of pairs that surely do not, sorted.
    """

    group: np.ndarray
    matching: np.ndarray | None
    apart: np.ndarray

    @classmethod
    def of_pairs(cls, count: int, pairs: np.ndarray, labels: np.ndarray) -> Matches:
        """From pairs of document numbers ``[p, 2]`` and whether they match, bool ``[p]``; a match wins."""
        keys = np.minimum(*pairs.T) * count + np.maximum(*pairs.T)
        matching = np.unique(keys[labels & (pairs[:, 0] != pairs[:, 1])])
        return cls(_linked(count, pairs[labels]), matching, np.setdiff1d(keys[~labels], matching))

    @property
    def count(self) -> int:
        """How many documents there are."""
        return len(self.group)

    def relation(self, documents: np.ndarray) -> np.ndarray:
        """1 where two of some documents match (or are one), 0 where not, -1 where neither holds: int8 ``[b, b]``."""
        same = self.group[documents][:, None] == self.group[documents]
        if self.matching is None:
            return same.astype(np.int8)
        keys = np.minimum.outer(documents, documents) * self.count + np.maximum.outer(documents, documents)
        relation = np.where(same, -1, 0).astype(np.int8)
        relation[np.isin(keys, self.apart)] = 0
        relation[np.isin(keys, self.matching) | (documents[:, None] == documents)] = 1
        return relation

    def partners(self, document: int) -> np.ndarray:
        """The documents that match one."""
        found = self._links[document if self.matching is not None else self.group[document]]
        return found[found != document]

    def any(self) -> bool:
        """Whether two documents match."""
        return bool(self._links.lengths.max(initial=0) > (self.matching is None))

    @cached_property
    def _links(self) -> Ragged:
        """The documents that match each one, or, where all of a group do, those of each group: few for large ones."""
        if self.matching is None:
            owner, linked = self.group, np.arange(self.count)
        else:
            low, high = np.divmod(self.matching, self.count)
            owner, linked = np.concatenate([low, high]), np.concatenate([high, low])
        order = np.lexsort((linked, owner))
        return Ragged(linked[order], np.searchsorted(owner[order], np.arange(self.count + 1)))


class Contrastive:
    """Documents to be contrasted: a task of the trainer.

    Args:
        documents: Token ids of the documents.
        matches: Which of them match.
        settings: Size of the batches, loss and seed.
    """

    def __init__(self, documents: Ragged, matches: Matches, settings: ContrastiveSettings) -> None:
        self.documents, self.matches, self.settings = documents, matches, settings
        self._order: tuple[int, np.ndarray] | None = None

    @classmethod
    def of(cls, ranker: DualEncoder, documents: pd.DataFrame, settings: ContrastiveSettings) -> Contrastive:
        """From pairs of :func:`pyterrier_longdoc.pairs.as_pairs`, or documents with text and ``group``.

        Raises:
            ValueError: If the frame is unfit, or no two documents match.
        """
        texts, matches = _matches(ranker, documents)
        limits = [limit for limit in (ranker.max_doc_tokens, settings.train_doc_tokens) if limit is not None]
        tokens = ranker.apply_attributes(max_doc_tokens=min(limits, default=None))._read(texts)
        if settings.section_tokens is not None:
            if not isinstance(tokens, Sectioned):
                raise ValueError(f"{ranker} reads documents without sections: section_tokens must be None")
            tokens = head_of_sections(tokens, settings.section_tokens)
        task = cls(tokens, matches, settings)
        if not matches.any():
            raise ValueError(f"no two of the {len(texts)} training documents match: there is nothing to learn from")
        return task

    def __len__(self) -> int:
        return len(self.documents)

    def order(self, epoch: int) -> np.ndarray:
        """The documents in the order of an epoch, int64 ``[n]``: random, but each brings one that matches it along."""
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, self._drawn(np.random.default_rng([self.settings.seed, ORDER, epoch]))
        return self._order[1]

    def _drawn(self, random: np.random.Generator) -> np.ndarray:
        waiting, order = np.ones(len(self), bool), []
        for document in random.permutation(len(self)):
            if waiting[document]:
                waiting[document] = False
                order.append(document)
                partners = self.matches.partners(document)
                partners = partners[waiting[partners]]
                if len(partners):
                    order.append(random.choice(partners))
                    waiting[order[-1]] = False
        return np.array(order, np.int64)

    def fingerprint(self) -> str:
        """A hash of the documents and of what matches."""
        matches = self.matches
        return hash_of(*self.documents.arrays(), matches.group, matches.matching, matches.apart)

    def module(self, model: DualEncoderModel) -> nn.Module:
        """The model's views."""
        return Views(model)

    def loss(
        self, ranker: DualEncoder, module: nn.Module, epoch: int, examples: np.ndarray, budget: Budget
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of some documents; see :meth:`Task.loss <pyterrier_longdoc.training.task.Task.loss>`."""
        vectors, document = module(self.documents.take(examples), budget)
        relation = torch.from_numpy(self.matches.relation(examples)[document][:, document]).to(vectors.device)
        with torch.autocast(vectors.device.type, enabled=False):
            cosines = vectors.float() @ vectors.float().T
            matching = (relation > 0) & ~torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
            if self.settings.loss == "cosine":
                loss = _mean(1 - cosines, matching) + _mean(cosines.relu(), relation == 0)
            else:
                loss = contrastive_loss(vectors, relation, self.settings.temperature)
        means = {"match_similarity": _mean(cosines, matching), "other_similarity": _mean(cosines, relation == 0)}
        return loss, {name: mean.detach() for name, mean in means.items()}


class Views(nn.Module):
    """A model whose call gives the views of documents, with gradients by caching.

    Args:
        model: The model.
    """

    def __init__(self, model: DualEncoderModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, documents: Ragged, budget: Budget) -> tuple[Tensor, np.ndarray]:
        """See :meth:`DualEncoderModel.encode_views <pyterrier_longdoc.models.dual_encoder.DualEncoderModel>`."""
        return self.model.encode_views(documents, budget, recompute=True)


def _matches(ranker: DualEncoder, frame: pd.DataFrame) -> tuple[list[str], Matches]:
    """The different texts of a frame, and which of them match."""
    if "label" in frame:
        sides = [frame["text_a"], frame["text_b"]]
        number, texts = pd.factorize(pd.concat(sides, ignore_index=True))
        labels = frame["label"].to_numpy() > 0
        return list(texts), Matches.of_pairs(len(texts), number.reshape(2, -1).T.astype(np.int64), labels)
    if ranker.text_field not in frame:
        raise ValueError(f"documents with a 'group' need a column {ranker.text_field!r}; found {list(frame.columns)}")
    wrong = ~frame[ranker.text_field].map(lambda value: isinstance(value, str)).to_numpy(bool)
    if wrong.any():
        value = frame[ranker.text_field].iloc[int(wrong.argmax())]
        kind = type(value).__name__
        raise TypeError(f"column {ranker.text_field!r} of the documents holds {kind} {value!r}, not text")
    if frame["group"].isna().any():
        raise ValueError("column 'group' of the documents must hold a value in every row")
    twice = frame.groupby(ranker.text_field)["group"].nunique() > 1
    if twice.any():
        raise ValueError(f"{int(twice.sum())} documents are in more than one group; give pairs instead")
    frame = frame.drop_duplicates(ranker.text_field)
    group = pd.factorize(frame["group"])[0].astype(np.int64)
    return frame[ranker.text_field].tolist(), Matches(group, None, np.empty(0, np.int64))


def _linked(count: int, links: Iterable[tuple[int, int]]) -> np.ndarray:
    """A number for each document, the same for those that are linked, directly or through others."""
    parent = np.arange(count)

    def root(item: int) -> int:
        while parent[item] != item:
            parent[item] = item = parent[parent[item]]
        return item

    for first, second in links:
        parent[root(int(first))] = root(int(second))
    return np.array([root(item) for item in range(count)], np.int64)


def _mean(values: Tensor, chosen: Tensor) -> Tensor:
    return (values * chosen).sum() / chosen.sum().clamp(min=1)
