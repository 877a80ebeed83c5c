"""IDCM: a cascade inside each document (Hofstätter et al., SIGIR 2021).

A document is cut into passages of 50 tokens that see 7 more on both sides. A cheap selector (CK) scores them all, an
encoder reads the ``max_passages`` best ones with the query, and the document's score is a weighted sum of the scores of
the three best of those. So a document costs the encoder the same whatever its length.

Training has three stages: the encoder learns from passages, then from documents with all passages read; then the
selector learns to find the passages that the encoder, which stays as it is, scores highest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pyterrier_longdoc.checks import check_whole
from pyterrier_longdoc.models.conv_kernels import ConvKernels
from pyterrier_longdoc.models.encoder import encode_sequences
from pyterrier_longdoc.models.passages import PassageConfig, PassageModel, Passages, new_head
from pyterrier_longdoc.models.pruning import best, sampled
from pyterrier_longdoc.pooling import Budget, pooled
from pyterrier_longdoc.text.split import sliding_windows
from pyterrier_longdoc.text.template import Frame, Sequences, Template, window_tokens
from pyterrier_longdoc.text.titles import Titled
from pyterrier_longdoc.windows import Ragged, Windows, contiguous_windows

#: Name of the selector that is a part of the model.
LEARNED = "ck"
#: What is trained, in this order.
STAGES = ("passages", "documents", "selector")


@dataclass(frozen=True)
class IDCMConfig(PassageConfig):
    """Settings of IDCM.

    Attributes:
        passage_tokens: Tokens that a passage answers for.
        overlap: Tokens that it sees on each side of them.
        max_passages: Passages of a document that the encoder reads.
        selector: ``"ck"``, the learned one, or the name of another one; see :mod:`~pyterrier_longdoc.models.pruning`.
        train_passages: So many passages of a document, drawn at random, are read in a step of the stage
            ``"documents"``, to bound its memory; ``None`` reads all.
        summed: So many of the passages that were read make the score.
        filters: Width of the selector's trigrams; as wide as the embeddings if ``None``.
        projection: Width that the selector reduces embeddings to before, if at all.
        published: Whether sequences are those of the published code, for its checkpoints: no separator behind a
            passage, one behind the document, and passages that begin with it read as if 7 tokens stood before them.
    """

    passage_tokens: int = 50
    overlap: int = 7
    max_passages: int = 4
    selector: str = LEARNED
    train_passages: int | None = None
    summed: int = 3
    filters: int | None = None
    projection: int | None = None
    published: bool = False
    own_selectors: ClassVar[tuple[str, ...]] = (LEARNED,)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_passages is None or self.passage_tokens is None:
            raise ValueError("IDCM needs passage_tokens and max_passages: MaxP reads everything")
        check_whole("summed", self.summed)


class IDCMModel(PassageModel):
    """The selector, the encoder with its head, and the weights of the best passages.

    Args:
        config: The settings.
        encoder: As in :class:`~pyterrier_longdoc.models.passages.PassageModel`.

    Attributes:
        stage: What is trained just now, one of :data:`STAGES`, or ``None``.
    """

    config_class = IDCMConfig

    def __init__(self, config: IDCMConfig, encoder: PreTrainedModel | None = None) -> None:
        super().__init__(config, encoder)
        self.stage: str | None = None
        self.head = new_head(self.encoder.config)
        self.weights = nn.Parameter(torch.ones(config.summed))
        dims = self.encoder.get_input_embeddings().embedding_dim
        self.selector = ConvKernels(dims, config.filters, config.projection)

    @classmethod
    def from_matchmaker(
        cls, state_dict: Mapping[str, Tensor], encoder: dict[str, Any], template: Template, **settings: Any  # noqa: ANN401
    ) -> IDCMModel:
        """Loads the parameters of the published ``sigir21_idcm.py`` and of its checkpoints.

        Args:
            state_dict: Its ``state_dict()``.
            encoder: Settings of its encoder; see :func:`~pyterrier_longdoc.models.encoder.encoder_settings`.
            template: How its tokenizer frames texts.
            **settings: Further fields of the config.

        Raises:
            ValueError: If parameters are missing, or there are others.
        """
        state = {name: torch.as_tensor(tensor) for name, tensor in state_dict.items()}
        filters, dims, _ = state["sample_cnn3.1.weight"].shape
        widths = {"filters": filters, "projection": dims if "sample_projector.weight" in state else None}
        summed = state["top_k_scoring"].numel()
        model = cls(IDCMConfig(encoder, template, summed=summed, published=True, **widths, **settings))
        own = model.state_dict()
        renamed = {_renamed(name): tensor for name, tensor in state.items() if not _NOT_OURS.search(name)}
        renamed = {name: tensor.reshape(own[name].shape) if name in own else tensor for name, tensor in renamed.items()}
        kept = {name: tensor for name, tensor in own.items() if name.startswith("selector.kernels.")}
        try:
            model.load_state_dict({**kept, **renamed})
        except RuntimeError as error:
            raise ValueError(f"not the parameters of IDCM over this encoder: {error}") from error
        return model.eval()

    def train(self, mode: bool = True) -> IDCMModel:
        """Switches to training; the encoder stays in evaluation while only the selector is trained."""
        super().train(mode)
        if self.stage == "selector":
            self.encoder.eval()
            self.head.eval()
        return self

    # Passages ---------------------------------------------------------------------------------------------------------

    def document_windows(self, documents: Ragged) -> Windows:
        """All passages of the documents; in the stage ``"passages"`` each text is one."""
        lengths = documents.lengths + self.config.published  # the separator behind a document is one of its tokens
        if self.stage == "passages":
            return sliding_windows(lengths, max(1, int(lengths.max(initial=1))))
        windows = contiguous_windows(np.maximum(lengths, 1), self.config.passage_tokens, self.config.overlap)
        positions = np.where(windows.positions < lengths[windows.document][:, None], windows.positions, -1)
        return Windows(positions, windows.document, windows.core)

    def passages(self, queries: Ragged, documents: Ragged, pairs: np.ndarray, budget: Budget) -> Passages:
        """The passages that the encoder reads: those that the selector prefers; while it is trained itself, all."""
        selects = self.stage is None or (self.stage == "selector" and not self.training)
        if selects and self.config.selector != LEARNED:
            return super().passages(queries, documents, pairs, budget)
        every = self.all_passages(documents, pairs)
        counts, most = np.diff(every.offsets), self.config.train_passages
        if selects:
            return self._selected(every, queries, documents, budget)
        if self.training and self.stage == "documents" and most is not None:
            return _chosen(every, [sampled(count, most) for count in counts])
        return every

    def all_passages(self, documents: Ragged, pairs: np.ndarray) -> Passages:
        """All passages of the document of each pair."""
        windows = self.document_windows(documents)
        bounds = np.searchsorted(windows.document, np.arange(len(documents) + 1))
        rows = Ragged(np.arange(len(windows)), bounds).take(pairs[:, 1])
        return Passages(windows.take(rows.values), np.repeat(pairs[:, 0], rows.lengths), rows.offsets)

    def _selected(self, every: Passages, queries: Ragged, documents: Ragged, budget: Budget) -> Passages:
        most, counts = self.config.max_passages, np.diff(every.offsets)
        contested = np.repeat(counts > most, counts)
        scores = np.zeros(len(contested))
        if contested.any():
            rows = np.flatnonzero(contested)
            found = Passages(every.windows.take(rows), every.query[rows], np.empty(0, np.int64))
            scores[rows] = self.select(found, queries, documents, budget).nan_to_num().double().cpu().numpy()
        return _chosen(every, [best(each, most) for each in np.split(scores, every.offsets[1:-1])])

    def select(self, passages: Passages, queries: Ragged, documents: Ragged, budget: Budget) -> Tensor:
        """The selector's score of each passage, float32 ``[w]``.

        Passages lie in frames of one width, filled up with padding on both sides: the score of a passage depends on no
        other. Titles are left out: all passages of a document have the same. The encoder's embeddings are read, not
        trained.
        """
        ids, mask = self._frames(passages.windows, documents)
        framed = self.config.template.texts(queries)

        def compute(batch: np.ndarray) -> Tensor:
            query_ids, _, query_mask = framed.table(passages.query[batch])
            arrays = (query_ids, query_mask, ids[batch], mask[batch])
            query, query_real, passage, real = (torch.from_numpy(array).to(self.device) for array in arrays)
            with torch.no_grad():
                embed = self.encoder.base_model.embeddings
                vectors = embed(query), embed(passage)
            return self.selector(vectors[0], query_real, vectors[1], real)

        return pooled(np.full(len(ids), ids.shape[1]), budget, compute)

    def _frames(self, windows: Windows, documents: Ragged) -> tuple[np.ndarray, np.ndarray]:
        """Token ids of passages and which are real, ``[w, overlap + passage_tokens + overlap]``."""
        width = self.config.passage_tokens + 2 * self.config.overlap
        ids = np.full((len(windows), width), self.config.template.pad, np.int64)
        row, column = np.nonzero(windows.positions >= 0)
        place = windows.rows()[row, column] + self.config.overlap
        ids[row, place] = window_tokens(self._ended(getattr(documents, "body", documents)), windows).values
        mask = np.zeros(ids.shape, bool)
        mask[row, place] = True
        return ids, mask

    # Sequences --------------------------------------------------------------------------------------------------------

    def sequences(self, queries: Ragged, documents: Ragged, passages: Passages) -> Sequences:
        """What the encoder reads: each passage with its query."""
        if not self.config.published:
            return super().sequences(queries, documents, passages)
        template = self.config.template
        frame = Frame((*template.pair.specials[:2], ()), template.pair.types)
        texts = [queries.take(passages.query), window_tokens(self._ended(documents), passages.windows)]
        return Sequences.framed(frame, texts, template.pad)

    def options(self, sequences: Sequences, documents: Ragged, passages: Passages) -> dict[str, Any]:
        """In the published form, passages are numbered as if none began with the document."""
        if not self.config.published or self.stage == "passages":
            return {}
        start, missing = sequences.starts[:, 1:], self.config.overlap - passages.windows.core[:, :1]

        def more(batch: np.ndarray, mask: np.ndarray) -> dict[str, np.ndarray]:
            columns = np.arange(mask.shape[1])
            return {"position_ids": columns + missing[batch] * (columns >= start[batch])}

        return {"more": more}

    def _ended(self, documents: Ragged) -> Ragged:
        """The documents, with the separator behind each in the published form."""
        if not self.config.published:
            return documents
        if isinstance(documents, Titled):
            return Titled.of(self._ended(documents.body), documents.titles)
        (separator, _), *_ = self.config.template.single.specials[-1]
        values = np.insert(documents.values, documents.offsets[1:], separator)
        return Ragged(values, documents.offsets + np.arange(len(documents.offsets)))

    # Scores -----------------------------------------------------------------------------------------------------------

    def passage_scores(self, queries: Ragged, documents: Ragged, passages: Passages, budget: Budget) -> Tensor:
        """The encoder's score of each passage, float32 ``[w]``."""
        sequences = self.sequences(queries, documents, passages)
        options = self.options(sequences, documents, passages)
        return self._scores(encode_sequences(self.encoder, sequences, budget, self.pick, **options))

    def aggregate(self, outputs: Tensor) -> Tensor:
        """The weighted sum of the best passages' scores; fewer passages make a shorter sum."""
        scores = self._scores(outputs)
        if self.stage == "passages":
            return scores[:, 0]
        highest = scores.topk(min(len(self.weights), scores.shape[1]), dim=1).values
        return (highest * self.weights[: highest.shape[1]]).sum(1)

    def passage_weights(self, outputs: Tensor) -> Tensor:
        """What each passage adds to the score: 0 for those that are not among the best."""
        scores = self._scores(outputs)[0]
        highest = scores.topk(min(len(self.weights), len(scores)))
        parts = highest.values * self.weights[: len(highest.values)]
        return torch.zeros_like(scores).scatter(0, highest.indices, parts)

    def explain(
        self, queries: Ragged, documents: Ragged, pairs: np.ndarray, budget: Budget
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """See :meth:`PassageModel.explain <pyterrier_longdoc.models.passages.PassageModel.explain>`."""
        found = super().explain(queries, documents, pairs, budget)
        for (positions, weights), length in zip(found, documents.lengths[pairs[:, 1]], strict=True):
            yield np.where(positions < length, positions, -1), weights

    def _scores(self, outputs: Tensor) -> Tensor:
        with torch.autocast(outputs.device.type, enabled=False):
            return self.head(outputs.float()).squeeze(-1)


#: Names of what this model does not have, or has as settings.
_NOT_OURS = re.compile(r"^mu$|^sigma$|^bert_model\.pooler\.|\.position_ids$")
_NAMES = {
    "bert_model.": "encoder.", "_classification_layer.": "head.1.", "top_k_scoring": "weights",
    "sample_cnn3.1.": "selector.convolution.", "sample_projector.": "selector.projection.",
    "sampling_binweights.": "selector.dense.", "kernel_alpha_scaler": "selector.scale",
}


def _chosen(every: Passages, choices: Sequence[np.ndarray]) -> Passages:
    """Of the passages of each pair those at some places, counted from the pair's first one."""
    rows = [first + each for first, each in zip(every.offsets[:-1], choices, strict=True)]
    picked = Ragged.from_lists(rows, np.int64)
    return Passages(every.windows.take(picked.values), every.query[picked.values], picked.offsets)


def _renamed(name: str) -> str:
    for published, own in _NAMES.items():
        if name.startswith(published):
            return own + name.removeprefix(published)
    return name
