"""BigBird's attention: blocks of tokens that read their neighbours, the first and last block, and some random ones.

It takes the place of transformers' own attention in a BigBird, with the same weights. That one draws its random blocks
only in training (seeding NumPy's global generator in each layer), reads the first block several times over in their
place afterwards, and turns the whole model to full attention for good when it meets one short batch. Here the random
blocks follow from a seed, the layer and the number of blocks alone, in training and afterwards; what is too short for
blocks is read with full attention; and what one sequence is read with does not depend on any other.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

#: Blocks that each block reads besides the random ones: the first, the last, itself and its two neighbours.
_FIXED = 5


class BlockAttention(nn.Module):
    """Attention over blocks (Zaheer et al., NeurIPS 2020, Section 2), in place of a BigBird layer's own.

    Args:
        replaced: The attention whose projections are used.
        block: Tokens of a block.
        random: Random blocks that each block reads.
        dropout: Of attention weights, in training.
        seed: Of the random blocks.
        layer: Number of the layer.
    """

    def __init__(
        self, replaced: nn.Module, *, block: int, random: int, dropout: float, seed: int, layer: int
    ) -> None:
        super().__init__()
        self.query, self.key, self.value = replaced.query, replaced.key, replaced.value
        self.heads, self.head_size = replaced.num_attention_heads, replaced.attention_head_size
        self.block, self.random, self.dropout = block, random, dropout
        self.seed = (seed, layer)

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, **_: object
    ) -> tuple[Tensor, None]:
        """Contextualises the tokens of sequences that are all read fully, or all have the same number of blocks.

        Args:
            hidden_states: ``[b, n, d]``.
            attention_mask: Added to attention scores, ``[b, 1, n or 1, n]``; ``None`` where all tokens are real.
            **_: What transformers passes to other kinds of attention.

        Returns:
            ``[b, n, d]``, and ``None`` for the attention weights.
        """
        query, key, value = (self._heads(each(hidden_states)) for each in (self.query, self.key, self.value))
        mask = None if attention_mask is None else attention_mask[:, :, :1].to(query.dtype)
        if hidden_states.shape[1] <= full_attention_limit(self.block, self.random):
            context = self._attend(query, key, value, mask)
        else:
            context = self._attend_blocks(query, key, value, mask)
        return context.transpose(1, 2).flatten(2), None

    def _attend_blocks(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        batch, heads, tokens, _ = query.shape
        spare = -tokens % self.block
        query, key, value = (pad(each, (0, 0, 0, spare)).unflatten(2, (-1, self.block)) for each in (query, key, value))
        count = query.shape[2]
        mask = query.new_zeros(batch, 1, 1, tokens) if mask is None else mask
        mask = pad(mask, (0, spare), value=torch.finfo(query.dtype).min).expand(batch, 1, 1, -1)
        blocks, twice = self._read_blocks(count, query.device)
        head = torch.arange(heads, device=query.device)[:, None, None]
        # Blocks as if they were heads: [b, heads * (count - 2), block, d]
        keys, values = (each[:, head, blocks].flatten(3, 4).flatten(1, 2) for each in (key, value))
        masks = mask.view(batch, count, self.block)[:, blocks]
        masks = masks.masked_fill(twice[..., None], torch.finfo(mask.dtype).min).flatten(3, 4).flatten(1, 2)
        middle = self._attend(query[:, :, 1:-1].flatten(1, 2), keys, values, masks[:, :, None])
        # The first and last block read everything
        ends = self._attend(query[:, :, [0, -1]].flatten(2, 3), key.flatten(2, 3), value.flatten(2, 3), mask)
        first, last = ends.split(self.block, dim=2)
        middle = middle.unflatten(1, (heads, count - 2)).flatten(2, 3)
        return torch.cat([first, middle, last], dim=2)[:, :, :tokens]

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        return scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)

    def _heads(self, projected: Tensor) -> Tensor:
        return projected.unflatten(-1, (self.heads, self.head_size)).transpose(1, 2)

    def _read_blocks(self, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """The blocks that each middle block reads ``[heads, count - 2, blocks]``, and which of them it has already."""
        random = random_blocks(count, self.heads, self.random, self.seed)
        own = np.arange(1, count - 1)[:, None]
        fixed = np.concatenate([own * 0, own * 0 + count - 1, own - 1, own, own + 1], axis=1)
        blocks = np.concatenate([np.broadcast_to(fixed, (self.heads, *fixed.shape)), random], axis=2)
        twice = np.zeros(blocks.shape, bool)
        twice[:, 0, 2] = twice[:, -1, 4] = True  # the neighbours of the ends are the ends
        return torch.from_numpy(blocks).to(device), torch.from_numpy(twice).to(device)


def full_attention_limit(block: int, random: int) -> int:
    """Tokens up to which a sequence is read with full attention: too few blocks to draw from, as in transformers."""
    return (_FIXED + 2 * random) * block


@lru_cache(maxsize=512)
def random_blocks(count: int, heads: int, random: int, seed: tuple[int, ...]) -> np.ndarray:
    """Random blocks that each block but the first and last one reads besides its neighbours and the ends.

    Args:
        count: Blocks of the sequence.
        heads: Each head draws its own.
        random: How many each block reads; none twice.
        seed: Of the drawing.

    Returns:
        int64 ``[heads, count - 2, random]``.
    """
    order = np.random.default_rng([*seed, count]).random((heads, count - 2, count))
    distance = np.abs(np.arange(1, count - 1)[:, None] - np.arange(count))
    order[:, distance <= 1] = np.inf
    order[:, :, [0, -1]] = np.inf
    return np.argsort(order, axis=2)[:, :, :random]
