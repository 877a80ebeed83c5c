"""SMITH: a document is encoded block by block, then as a sequence of blocks (Yang et al., CIKM 2020).

Sentences fill blocks of 32 tokens. A Transformer makes a vector of each block from its tokens alone, a second one makes
the document's vector from those of its blocks. Attention is never over more than a block or the blocks of a document,
so cost grows linearly with length. The blocks of all documents of a call run through the first Transformer together,
in batches of equally long ones; blocks that would only be padding do not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pyterrier_longdoc.models.dual_encoder import DualEncoderModel, mean_state
from pyterrier_longdoc.models.encoder import build_encoder, encode_sequences, max_positions
from pyterrier_longdoc.models.masked_modelling import MaskedHeads
from pyterrier_longdoc.models.smith_document import DocumentLevel, activation, initialize, unit_dense
from pyterrier_longdoc.models.smith_settings import SMITHConfig
from pyterrier_longdoc.pooling import Budget, Pool
from pyterrier_longdoc.text.blocks import block_windows
from pyterrier_longdoc.text.sentences import Structured
from pyterrier_longdoc.text.template import Sequences
from pyterrier_longdoc.windows import Ragged, Windows


class SMITHModel(DualEncoderModel):
    """Encodes documents into unit vectors; see the module's text.

    A document's vector follows from its blocks: [CLS] state, tanh pooler, dense, L2 norm, + position of the block, the
    document level Transformer, its first state, tanh pooler, dense, L2 norm.

    Args:
        config: The settings.
        encoder: The sentence level Transformer, if it exists already; otherwise one with random weights is built.

    Raises:
        ValueError: If the settings do not fit together.
    """

    config_class = SMITHConfig

    def __init__(self, config: SMITHConfig, encoder: PreTrainedModel | None = None) -> None:
        super().__init__(config.scale, config.bias)
        self.config = config
        self.room = config.room
        self.encoder = build_encoder(config.encoder) if encoder is None else encoder
        limit = max_positions(self.encoder)
        if limit is not None and config.block_length > limit:
            raise ValueError(f"block_length={config.block_length} is more than the encoder's {limit} positions")
        self.width = width = self.encoder.config.hidden_size
        if width % config.heads:
            raise ValueError(f"heads={config.heads} does not divide the encoder's width of {width}")
        self.dims = width if config.combine == "normal" else 2 * width
        self.sentence_pooler = nn.Linear(width, width) if config.pooling == "pooler" else None
        self.sentence_dense = nn.Linear(width, width)
        self.document_level = DocumentLevel(config, width)
        self.masked_heads: MaskedHeads | None = None
        for name, module in self.named_children():
            if name != "encoder":
                module.apply(initialize)
        if config.masked_heads:
            self.add_masked_heads()

    def add_masked_heads(self) -> None:
        """Gives the model what pre-training needs beside it, if it has it not yet; no other training changes it."""
        if self.masked_heads is None:
            table = self.encoder.get_input_embeddings().weight
            heads = MaskedHeads(self.width, *table.shape, activation(self.config.activation))
            self.masked_heads = heads.to(self.device).requires_grad_(False)
            self.config = replace(self.config, masked_heads=True)

    def representation_parameters(self) -> list[nn.Parameter]:
        """Parameters of the sentence level Transformer, which may be trained at a rate of their own."""
        return list(self.encoder.parameters())

    # From documents to vectors ----------------------------------------------------------------------------------------

    def blocks(self, documents: Ragged) -> Windows:
        """The blocks of documents, at least one each; without known sentences a document is a single one."""
        known = isinstance(documents, Structured)
        starts = documents.starts() if known else Ragged.from_lists([[0]] * len(documents))
        return block_windows(starts, documents.lengths, self.room, self.config.overlong, self.config.splitting)

    def encode_documents(self, documents: Ragged, budget: Budget) -> Tensor:
        """Unit vectors of documents, ``[n, dims]``.

        Args:
            documents: Token ids without special tokens, with the borders of their sentences
                (:class:`~pyterrier_longdoc.text.sentences.Structured`), of at most ``max_blocks`` blocks.
            budget: Tokens of a forward pass.

        Raises:
            ValueError: If a document has more blocks.
        """
        return self._encode(documents, budget, tower=2)

    def encode_queries(self, queries: Ragged, budget: Budget) -> Tensor:
        """Unit vectors of queries, which may be documents themselves; arguments as in :meth:`encode_documents`."""
        return self._encode(queries, budget, tower=1)

    def _encode(self, documents: Ragged, budget: Budget, tower: int) -> Tensor:
        windows = self.blocks(documents)
        vectors = self.encode_sentences(self.config.template.windows(documents, windows), budget)
        return self.document_level(vectors, windows.by_document(len(documents)), budget, tower)

    def padding_computed(self, widths: np.ndarray, budget: Budget) -> float:
        """The share of padding in what is computed for blocks of so many tokens, ``[blocks]``, in one call."""
        framed = widths + self.config.template.single.extra
        batches = [framed[batch] for batch, _ in Pool(framed, budget).run(lambda batch: batch)]
        return 1 - framed.sum() / sum(len(batch) * batch.max() for batch in batches) if batches else 0.0

    def encode_sentences(self, sequences: Sequences, budget: Budget) -> Tensor:
        """Unit vectors of framed blocks by the sentence level Transformer, ``[blocks, width]``."""

        def pooled_states(output: Any, items: np.ndarray) -> Tensor:  # noqa: ANN401 (an output of transformers)
            return self.pool_states(output.last_hidden_state, sequences.lengths[items])

        return self.sentence_vectors(encode_sequences(self.encoder, sequences, budget, pooled_states))

    def pool_states(self, states: Tensor, lengths: np.ndarray) -> Tensor:
        """One state ``[b, width]`` a block from those of its tokens ``[b, tokens, width]``, of which so many count."""
        return states[:, 0] if self.config.pooling == "pooler" else mean_state(states, lengths)

    def sentence_vectors(self, states: Tensor) -> Tensor:
        """Unit vectors of blocks from their pooled states, both ``[blocks, width]``."""
        if self.sentence_pooler is not None:
            states = torch.tanh(self.sentence_pooler(states))
        return unit_dense(self.sentence_dense, states, self.config.rectified)

    def mask_blocks(self, vectors: Tensor, rows: np.ndarray) -> Tensor:
        """Vectors of blocks with the learned vector of masked ones in place of ``rows``.

        Raises:
            ValueError: If the model was not pre-trained and has none.
        """
        if self.masked_heads is None:
            raise ValueError("the model has no vector of masked blocks: it was never pre-trained")
        mask = self.masked_heads.block_mask.to(vectors.dtype).expand(len(rows), -1)
        return vectors.index_copy(0, torch.from_numpy(np.asarray(rows, np.int64)).to(self.device), mask)

    def occluded(self, document: Ragged, budget: Budget) -> tuple[Windows, Tensor]:
        """The vectors that a document would have without each of its blocks.

        Args:
            document: The one document.
            budget: Tokens of a forward pass.

        Returns:
            Its ``n`` blocks, and vectors ``[n, dims]``; without its only one it is empty.
        """
        windows = self.blocks(document)
        count = len(windows)
        if count == 1:
            return windows, self.encode_documents(document.head(np.zeros(1, np.int64)), budget)
        vectors = self.encode_sentences(self.config.template.windows(document, windows), budget)
        others = Ragged.from_lists([np.delete(np.arange(count), block) for block in range(count)], np.int64)
        return windows, self.document_level(vectors, others, budget, first=np.zeros(count, np.int64))

    # The published code's weights -------------------------------------------------------------------------------------

    @classmethod
    def from_tf_variables(
        cls, mapping: Mapping[str, np.ndarray], heads: int = 4, **settings: Any  # noqa: ANN401
    ) -> SMITHModel:
        """A model from the variables of a checkpoint of the published code.

        See :mod:`~pyterrier_longdoc.models.smith_tensorflow`.

        Args:
            mapping: Variable name -> value, such as those of the released checkpoint; kernels are ``[in, out]``.
            heads: Attention heads of both levels.
            **settings: Settings of :class:`SMITHConfig` that the variables do not show.

        Raises:
            ValueError: If a variable is missing.
        """
        from pyterrier_longdoc.models.smith_tensorflow import from_tf_variables

        return from_tf_variables(mapping, heads, settings)

    def encode_blocks(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        tower: int = 1,
        masked_blocks: Tensor | None = None,
        budget: Budget | None = None,
    ) -> Tensor:
        """Unit vectors of documents whose blocks are framed and padded already, as the published code's are.

        Args:
            input_ids: ``[B, blocks, length]``, special tokens included.
            attention_mask: Real tokens, of the same shape; blocks without any are padding behind a document's last.
            tower: 1 for queries (source documents), 2 for documents (candidates); they differ only with
                ``two_towers``.
            masked_blocks: Positions of blocks that are replaced by the vector of masked blocks, ``[B, m]``, as the
                published code does where it trains on both tasks at once; those behind the last block do not count.
            budget: Tokens of a forward pass; the device's default if ``None``.

        Returns:
            ``[B, dims]``.

        Raises:
            ValueError: If a document has no block, the masks have gaps, or the tower is another.
        """
        if tower not in (1, 2):
            raise ValueError(f"tower must be 1 or 2, got {tower!r}")
        budget = budget or Budget.for_device(self.device.type)
        sequences, rows = framed_blocks(input_ids, attention_mask)
        vectors = self.encode_sentences(sequences, budget)
        if masked_blocks is not None:
            chosen = np.asarray(torch.as_tensor(masked_blocks).cpu())
            row = (rows.offsets[:-1, None] + chosen)[chosen < rows.lengths[:, None]]
            vectors = self.mask_blocks(vectors, np.unique(row))
        return self.document_level(vectors, rows, budget, tower)


def framed_blocks(input_ids: Tensor, attention_mask: Tensor) -> tuple[Sequences, Ragged]:
    """Padded blocks ``[B, blocks, length]`` as sequences of their real tokens, and the rows of each document."""
    ids, mask = (np.asarray(torch.as_tensor(each).cpu()) for each in (input_ids, attention_mask))
    mask = mask.astype(bool)
    real = mask.any(2)
    if (mask[..., 1:] & ~mask[..., :-1]).any() or (real[:, 1:] & ~real[:, :-1]).any():
        raise ValueError("attention_mask has a gap: real tokens and blocks (1) come first, padding (0) behind them")
    if not real[:, :1].all():
        raise ValueError(f"document {int((~real[:, 0]).argmax())} has no block with a token")
    flat = Ragged(ids[mask].astype(np.int32), np.concatenate([[0], np.cumsum(mask[real].sum(1))]).astype(np.int64))
    rows = Ragged(np.arange(len(flat)), np.concatenate([[0], np.cumsum(real.sum(1))]).astype(np.int64))
    return Sequences(flat, np.zeros_like(flat.values), np.zeros((len(flat), 1), np.int64), pad=0), rows
