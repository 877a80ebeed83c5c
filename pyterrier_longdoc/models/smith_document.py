"""SMITH's document level: from the vectors of sentence blocks to the vector of a document (section 4.1.2 and 4.1.4).

A Transformer reads the sequence of a document's blocks; its first state becomes the document's vector, alone or behind
a sum of the blocks' vectors. The sequences of all documents form one pool, in batches of like numbers of blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from pyterrier_longdoc.models.dual_encoder import unit
from pyterrier_longdoc.pooling import Budget, pooled
from pyterrier_longdoc.windows import Ragged

if TYPE_CHECKING:
    from pyterrier_longdoc.models.smith_settings import SMITHConfig


class DocumentLevel(nn.Module):
    """Position embeddings of blocks, the document level Transformer, and what makes one vector of its output.

    Args:
        config: SMITH's settings.
        width: Width of the blocks' vectors.
    """

    def __init__(self, config: SMITHConfig, width: int) -> None:
        super().__init__()
        self.config = config
        self.positions = nn.Embedding(config.max_blocks, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.encoder = _transformer(config, width)
        self.pooler = nn.Linear(width, width)
        self.denses = nn.ModuleList(nn.Linear(width, width) for _ in range(1 + config.two_towers))
        self.attention = BlockWeights(width, config.attention_width) if config.combine == "attention" else None

    def forward(
        self, vectors: Tensor, rows: Ragged, budget: Budget, tower: int = 2, first: np.ndarray | None = None
    ) -> Tensor:
        """Unit vectors of documents from those of their blocks.

        Args:
            vectors: Unit vectors of blocks, ``[blocks, width]``.
            rows: Rows of ``vectors`` that each document consists of, at least one.
            budget: Tokens of a forward pass.
            tower: 1 for queries, 2 for documents, whose last denses differ with ``two_towers``.
            first: Row of the block at each document's position 0, ``[n]``; its first row if ``None``.

        Returns:
            ``[n, dims]``.
        """
        states = self.contextualize(vectors, rows, budget, first, kept=1)[:, 0]
        dense = self.denses[0 if tower == 1 else -1]
        document = unit_dense(dense, torch.tanh(self.pooler(states)), self.config.rectified)
        if self.config.combine == "normal":
            return document
        return unit(torch.cat([self._summary(vectors, rows), document], dim=1))

    def contextualize(
        self, vectors: Tensor, rows: Ragged, budget: Budget, first: np.ndarray | None = None, kept: int | None = None
    ) -> Tensor:
        """States of blocks among those of their document; arguments as in :meth:`forward`.

        Returns:
            ``[n, kept, width]`` for the first ``kept`` blocks of each document, or ``[n, most blocks, width]``;
            undefined behind a document's last block.
        """
        first = rows.values[rows.offsets[:-1]] if first is None else first
        most = int(rows.lengths.max())
        if most > self.config.max_blocks:
            raise ValueError(f"a document has {most} blocks, but the model reads max_blocks={self.config.max_blocks}")

        def compute(batch: np.ndarray) -> Tensor:
            index, mask = rows.flat_index(batch)
            row = rows.values[index]
            place = np.where(mask, row - first[batch][:, None], 0)
            row, place = (torch.from_numpy(each).to(vectors.device) for each in (row, place))
            inputs = self.norm(vectors[row] + self.positions(place))
            inputs = functional.dropout(inputs, self.config.dropout, self.training)
            hidden = None if mask.all() else torch.from_numpy(~mask).to(vectors.device)
            states = self.encoder(inputs, src_key_padding_mask=hidden)[:, :kept]
            return functional.pad(states, (0, 0, 0, (kept or most) - states.shape[1]))

        return pooled(rows.lengths, budget, compute)

    def _summary(self, vectors: Tensor, rows: Ragged) -> Tensor:
        """The sum, mean or weighted sum of each document's block vectors, ``[n, width]``."""
        index, mask = rows.flat_index(np.arange(len(rows)))
        row, real = (torch.from_numpy(each).to(vectors.device) for each in (rows.values[index], mask))
        if self.attention is not None:
            weights = self.attention(vectors)[row].masked_fill(~real, -torch.inf).softmax(1)
        else:
            weights = real.float() / (real.sum(1, keepdim=True) if self.config.combine == "mean_concat" else 1)
        return (weights[..., None] * vectors[row]).sum(1)


class BlockWeights(nn.Module):
    """How much each block counts: tanh(h W + b) v. Without the tanh of the published code, W and v were one vector.

    Args:
        width: Width of the blocks' vectors.
        hidden: Width V of the projection.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, hidden)
        self.context = nn.Linear(hidden, 1, bias=False)

    def forward(self, vectors: Tensor) -> Tensor:
        """Logits ``[blocks]`` of blocks ``[blocks, width]``."""
        return self.context(torch.tanh(self.dense(vectors)))[:, 0].float()


def unit_dense(dense: nn.Linear, states: Tensor, rectified: bool) -> Tensor:
    """A dense, a ReLU behind it as in the published code if ``rectified``, and an L2 norm."""
    output = dense(states)
    return unit(output.relu() if rectified else output)


def _transformer(config: SMITHConfig, width: int) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(
        width, config.heads, config.feedforward, config.dropout, activation=activation(config.activation),
        layer_norm_eps=1e-12, batch_first=True,
    )
    return nn.TransformerEncoder(layer, config.layers, enable_nested_tensor=False)


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """A GELU by its name in Hugging Face configurations."""
    if name == "gelu":
        return functional.gelu
    if name == "gelu_pytorch_tanh":
        # A partial: for a GELU module PyTorch's fused layer computes the exact function, whatever its approximation
        return partial(functional.gelu, approximate="tanh")
    raise ValueError(f"activation must be 'gelu' or 'gelu_pytorch_tanh', got {name!r}")


def initialize(module: nn.Module) -> None:
    """As BERT: N(0, .02), biases 0."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
    if isinstance(module, nn.MultiheadAttention):
        nn.init.normal_(module.in_proj_weight, std=0.02)
