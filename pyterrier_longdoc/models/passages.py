"""Passage rankers: one cross-encoder reads every passage of a document with the query, and the results are aggregated.

All (query, passage) sequences of all documents of a call make one pool, so no passage is ever padded to a document's
longest or a document to the most passages. Passages are then put together document by document, documents with equally
many at once: aggregations see ``[documents, passages, ...]`` and need no mask. What is aggregated, scores or vectors,
and how, is the business of the modules built on this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pyterrier_longdoc.checks import check_whole
from pyterrier_longdoc.models.encoder import build_encoder, check_room, encode_sequences, first_token
from pyterrier_longdoc.models.encoder_config import EncoderConfig
from pyterrier_longdoc.models.first_token import read_first_token_only
from pyterrier_longdoc.models.pruning import best, sampled, selector_of
from pyterrier_longdoc.pooling import Budget, pooled
from pyterrier_longdoc.text.split import check_sizes, sentence_windows, sliding_windows
from pyterrier_longdoc.text.template import Sequences
from pyterrier_longdoc.windows import Ragged, Windows


@dataclass(frozen=True)
class PassageConfig(EncoderConfig):
    """Settings of every passage ranker; the passages are those of PARADE's experiments (225 tokens, stride 200).

    Attributes:
        encoder: Settings of the cross-encoder; see :func:`~pyterrier_longdoc.models.encoder.encoder_settings`.
        template: How its tokenizer frames a query and a passage.
        classifier: Whether it is a sequence classifier that brings its own head.
        passage_tokens: Most tokens of a passage; ``None`` makes each document one passage.
        overlap: Tokens that neighbouring passages share; at most so many if ``unit`` is ``"sentence"``.
        unit: What passages are made of: ``"token"``, or ``"sentence"`` for whole sentences only.
        max_passages: So many passages of a document are read; ``None`` reads all.
        selector: Which ones these are, by name; see :mod:`~pyterrier_longdoc.models.pruning`.
        train_passages: So many passages of a document, drawn at random, are read in a training step, to bound its
            memory; ``None`` reads all.
    """

    classifier: bool = False
    passage_tokens: int | None = 225
    overlap: int = 25
    unit: str = "token"
    max_passages: int | None = None
    selector: str = "overlap"
    train_passages: int | None = 8
    #: Names of selectors that are part of the model.
    own_selectors: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.passage_tokens is not None:
            check_sizes(self.passage_tokens, self.overlap)
        if self.unit not in ("token", "sentence"):
            raise ValueError(f"unit must be 'token' or 'sentence', got {self.unit!r}")
        for name in ("max_passages", "train_passages"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), instead=", or None for all")
        if self.selector not in self.own_selectors:
            selector_of(self.selector)


class Passages(NamedTuple):
    """The passages that are read for some pairs of queries and documents, pair by pair.

    Attributes:
        windows: The passages, ``[w]``; one that several queries read occurs several times.
        query: The query of each passage, int64 ``[w]``.
        offsets: Where the passages of each pair start, and the end, int64 ``[pairs + 1]``.
    """

    windows: Windows
    query: np.ndarray
    offsets: np.ndarray


class PassageModel(nn.Module):
    """Base of MaxP and PARADE: reads passages; a subclass says what to keep of each and how to aggregate.

    Args:
        config: The settings.
        encoder: A loaded encoder of these settings; a random one is built if ``None``.
    """

    config_class: ClassVar[type[PassageConfig]] = PassageConfig

    def __init__(self, config: PassageConfig, encoder: PreTrainedModel | None = None) -> None:
        super().__init__()
        self.config = config
        kind = "classifier" if config.classifier else "base"
        self.encoder = encoder if encoder is not None else build_encoder(config.encoder, kind)
        read_first_token_only(self.encoder)

    # What an architecture defines -------------------------------------------------------------------------------------

    def pick(self, output: Any, items: np.ndarray) -> Tensor:  # noqa: ANN401 (an output of transformers)
        """What is kept of the encoder's output for passages, ``[b, ...]``: the vector of the first token."""
        return first_token(output, items)

    def sequences(self, queries: Ragged, documents: Ragged, passages: Passages) -> Sequences:
        """What the encoder reads: each passage with its query."""
        return self.config.template.pairs(queries, documents, passages.windows, passages.query)

    def options(self, sequences: Sequences, documents: Ragged, passages: Passages) -> dict[str, Any]:
        """What :func:`~pyterrier_longdoc.models.encoder.encode_sequences` is told about these sequences besides."""
        return {}

    def aggregate(self, outputs: Tensor) -> Tensor:
        """Scores ``[documents]`` from what was kept, ``[documents, passages, ...]``, float32."""
        raise TypeError(f"{type(self).__name__} does not say how to aggregate")

    def passage_weights(self, outputs: Tensor) -> Tensor:
        """What each passage of one document counts, ``[passages]``, from ``[1, passages, ...]``.

        By default what the score would lose without the passage; of a single passage, the score.
        """
        count = outputs.shape[1]
        if count == 1:
            return self.aggregate(outputs)
        others = torch.arange(count, device=outputs.device)
        others = others.expand(count, -1)[~torch.eye(count, dtype=torch.bool, device=outputs.device)]
        return self.aggregate(outputs) - self.aggregate(outputs[0][others.view(count, count - 1)])

    # What they share --------------------------------------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.encoder.device

    def representation_parameters(self) -> list[nn.Parameter]:
        """Parameters that are trained at the lower rate: the pretrained ones."""
        return list(self.encoder.parameters())

    def forward(self, queries: Ragged, documents: Ragged, pairs: np.ndarray, budget: Budget | None = None) -> Tensor:
        """Scores pairs of queries and documents given as token ids.

        Args:
            queries: Token ids of each query.
            documents: Token ids of each document; with ``unit="sentence"`` also where its sentences begin.
            pairs: Query and document number of each pair, ``[p, 2]``.
            budget: Tokens of one pass; the device's default if ``None``.

        Returns:
            float32 ``[p]``.

        Raises:
            ValueError: If a query and a passage do not fit into the encoder's positions.
        """
        budget = budget or Budget.for_device(self.device.type)
        if not len(pairs):
            return torch.zeros(0, device=self.device)
        passages = self.passages(queries, documents, pairs, budget)
        outputs = self._read(queries, documents, passages, budget)
        counts = np.diff(passages.offsets)

        def compute(batch: np.ndarray) -> Tensor:
            rows = passages.offsets[:-1][batch][:, None] + np.arange(counts[batch[0]])
            with torch.autocast(self.device.type, enabled=False):
                return self.aggregate(outputs[torch.from_numpy(rows).to(self.device)])

        return pooled(counts, budget, compute, kinds=counts)

    def explain(
        self, queries: Ragged, documents: Ragged, pairs: np.ndarray, budget: Budget
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The passages that were read for each pair, and what each counts; arguments as in :meth:`forward`.

        Yields:
            Positions in the document, ``[passages, width]``, -1 where there is none, and weights ``[passages]``.
        """
        for pair in pairs:
            passages = self.passages(queries, documents, pair[None], budget)
            outputs = self._read(queries, documents, passages, budget)
            with torch.autocast(self.device.type, enabled=False):
                weights = self.passage_weights(outputs[None])
            yield passages.windows.positions, weights.double().cpu().numpy()

    def document_windows(self, documents: Ragged) -> Windows:
        """All passages of the documents."""
        config, lengths = self.config, documents.lengths
        if config.passage_tokens is None:
            return sliding_windows(lengths, max(1, int(lengths.max(initial=1))))
        if config.unit == "sentence":
            starts = getattr(documents, "body", documents).starts()
            return sentence_windows(lengths, starts, config.passage_tokens, config.overlap)
        return sliding_windows(lengths, config.passage_tokens, config.overlap)

    def passages(self, queries: Ragged, documents: Ragged, pairs: np.ndarray, budget: Budget) -> Passages:
        """The passages that are read for each pair: all, or those that the selector or, in training, chance picks.

        Arguments as in :meth:`forward`; the budget is for selectors that are models themselves.
        """
        windows = self.document_windows(documents)
        bounds = np.searchsorted(windows.document, np.arange(len(documents) + 1))
        chosen = []
        for query, document in pairs:
            rows = np.arange(bounds[document], bounds[document + 1])
            if self.config.max_passages is not None and len(rows) > self.config.max_passages:
                ids, positions = documents[document], windows.positions[rows]
                scores = selector_of(self.config.selector)(queries[query], ids, positions)
                rows = rows[best(scores, self.config.max_passages)]
            if self.training and self.config.train_passages is not None:
                rows = rows[sampled(len(rows), self.config.train_passages)]
            chosen.append(rows)
        picked = Ragged.from_lists(chosen, np.int64)
        return Passages(windows.take(picked.values), np.repeat(pairs[:, 0], picked.lengths), picked.offsets)

    def _read(self, queries: Ragged, documents: Ragged, passages: Passages, budget: Budget) -> Tensor:
        frame = self.config.template.pair
        sequences = self.sequences(queries, documents, passages)
        longest = int(sequences.lengths.argmax())
        query = int(queries.lengths[passages.query[longest]])
        window = int(sequences.lengths[longest]) - query - frame.extra
        lower = "max_doc_tokens" if self.config.passage_tokens is None else "passage_tokens"
        check_room(self.encoder, frame, query, window, lower)
        options = self.options(sequences, documents, passages)
        return encode_sequences(self.encoder, sequences, budget, self.pick, **options)


def new_head(settings: Any) -> nn.Sequential:  # noqa: ANN401 (a configuration of transformers)
    """Dropout and a linear score, for the encoder of these settings."""
    dropout = getattr(settings, "hidden_dropout_prob", 0.1)
    return nn.Sequential(nn.Dropout(dropout), nn.Linear(settings.hidden_size, 1))
