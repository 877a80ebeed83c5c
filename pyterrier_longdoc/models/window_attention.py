"""Longformer's attention: every token reads a window around it and the global tokens, and those read everything.

It takes the place of transformers' own attention in a Longformer, with the same weights and the same outputs. That one
lays the scores of all windows out on diagonals, several times over; here blocks of tokens read the keys around them
through torch's fused attention, with a mask for the corners that are too far away.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

#: Most tokens of a block: smaller ones read fewer keys that are too far away, larger ones copy fewer.
_BLOCK = 128


class WindowAttention(nn.Module):
    """Attention over windows and global tokens (Beltagy et al., arXiv 2004.05150, Section 3) in place of a layer's own.

    Args:
        replaced: The attention of a Longformer layer, whose projections are used.
    """

    def __init__(self, replaced: nn.Module) -> None:
        super().__init__()
        self.query, self.key, self.value = replaced.query, replaced.key, replaced.value
        self.query_global, self.key_global = replaced.query_global, replaced.key_global
        self.value_global = replaced.value_global
        self.heads, self.dropout = replaced.num_heads, replaced.dropout
        self.reach = replaced.one_sided_attn_window_size
        self.block = max(size for size in range(1, _BLOCK + 1) if self.reach % size == 0)
        self.train(replaced.training)

    def forward(self, hidden_states: Tensor, attention_mask: Tensor, **_: object) -> tuple[Tensor]:
        """Contextualises the tokens of sequences.

        Args:
            hidden_states: ``[b, n, d]``, ``n`` a multiple of the window.
            attention_mask: What transformers makes of the masks: negative for padding, positive for global tokens,
                otherwise 0, ``[b, n]``.
            **_: What it passes besides, and what follows from the mask.

        Returns:
            ``[b, n, d]``, in a tuple.
        """
        query, key, value = (self._heads(each(hidden_states)) for each in (self.query, self.key, self.value))
        places, real = _global_places(attention_mask)
        row = torch.arange(len(places), device=places.device)[:, None]
        seen = [each.transpose(1, 2)[row, places].transpose(1, 2) for each in (key, value)]  # [b, heads, g, head]
        context = self._read_windows(query, key, value, seen, attention_mask, real)
        if not places.shape[1]:
            return (context,)
        everything = self._read_everything(hidden_states, hidden_states[row, places], attention_mask)
        own = context[row, places]
        return (context.index_put((row, places), torch.where(real[..., None], everything, own).to(context.dtype)),)

    def _read_windows(
        self, query: Tensor, key: Tensor, value: Tensor, seen: list[Tensor], mask: Tensor, real: Tensor
    ) -> Tensor:
        """What all tokens read: their windows without the global tokens, and those, ``[b, n, d]``."""
        batch, heads, tokens, size = query.shape
        count, width = tokens // self.block, self.block + 2 * self.reach
        local = pad(mask == 0, (self.reach, self.reach)).unfold(1, width, self.block)  # [b, blocks, width]
        distance = torch.arange(width, device=mask.device) - torch.arange(self.block, device=mask.device)[:, None]
        near = (distance >= 0) & (distance <= 2 * self.reach)
        allowed = torch.cat([local[:, :, None] & near, real[:, None, None].expand(-1, count, self.block, -1)], dim=-1)
        bias = torch.zeros(allowed.shape, dtype=query.dtype, device=query.device)
        # Half of the lowest number: rows of padding may read nothing, and must stay finite
        bias = bias.masked_fill(~allowed, torch.finfo(query.dtype).min / 2).flatten(0, 1)[:, None]
        keys, values = (self._around(each, extra, count) for each, extra in zip((key, value), seen, strict=True))
        query = query.unflatten(2, (count, self.block)).transpose(1, 2).flatten(0, 1)
        context = self._attend(query, keys, values, bias)  # [b * blocks, heads, block, head]
        return context.transpose(1, 2).reshape(batch, tokens, heads * size)

    def _around(self, states: Tensor, extra: Tensor, count: int) -> Tensor:
        """For each block the states around it, and those of the global tokens: ``[b * blocks, heads, keys, head]``."""
        padded = pad(states, (0, 0, self.reach, self.reach))
        around = padded.unfold(2, self.block + 2 * self.reach, self.block).permute(0, 2, 1, 4, 3)
        return torch.cat([around, extra[:, None].expand(-1, count, -1, -1, -1)], dim=3).flatten(0, 1)

    def _read_everything(self, hidden_states: Tensor, chosen: Tensor, mask: Tensor) -> Tensor:
        """What the global tokens read, by projections of their own, ``[b, g, d]``."""
        query = self._heads(self.query_global(chosen))
        key, value = (self._heads(each(hidden_states)) for each in (self.key_global, self.value_global))
        bias = torch.zeros_like(mask, dtype=query.dtype).masked_fill(mask < 0, torch.finfo(query.dtype).min / 2)
        return self._attend(query, key, value, bias[:, None, None]).transpose(1, 2).flatten(2)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        return scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout)

    def _heads(self, projected: Tensor) -> Tensor:
        return projected.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def _global_places(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of the global tokens of each sequence, filled up with others, and which are real, both ``[b, g]``."""
    seen = mask > 0
    counts = seen.sum(1)
    most = int(counts.max())
    places = torch.argsort(seen.to(torch.int8), dim=1, descending=True, stable=True)[:, :most]
    return places, torch.arange(most, device=mask.device) < counts[:, None]
