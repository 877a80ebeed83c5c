"""Contextualising token vectors: positions, a small Transformer, and the highway mix of TK (Hofstätter, 2020)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

#: Up to here plain attention is faster than the fused kernel on a CPU, and its scores stay in cache.
_FEW_TOKENS = 128
_ALL = slice(None)


def sinusoids(first: int, count: int, dims: int) -> Tensor:
    """Rows ``first .. first + count`` of the sinusoidal position table, float32 ``[count, dims]``.

    Sines of all time scales, then their cosines, then a zero column if ``dims`` is odd.
    """
    scales = dims // 2
    step = math.log(10_000.0) / max(scales - 1, 1)
    inverse = torch.exp(torch.arange(scales, dtype=torch.float32) * -step)
    angles = torch.arange(first, first + count, dtype=torch.float32)[:, None] * inverse
    table = torch.cat([angles.sin(), angles.cos()], dim=1)
    return nn.functional.pad(table, (0, dims % 2))


class Positions(nn.Module):
    """A position table that starts as sinusoids and goes on as sinusoids beyond its last row.

    Args:
        rows: Rows that are kept.
        dims: Width of the vectors.
        offset: Position of the first row (documents start at 500 in TK and TKL, so that they differ from queries).
        trained: Whether training changes the kept rows.
    """

    def __init__(self, rows: int, dims: int, offset: int = 0, *, trained: bool = True) -> None:
        super().__init__()
        self.offset = offset
        self.table = nn.Parameter(sinusoids(offset, rows, dims), requires_grad=trained)

    def forward(self, rows: Tensor) -> Tensor:
        """Position vectors ``[..., dims]`` of the row numbers ``[...]``."""
        kept, dims = self.table.shape
        table, last = self.table, int(rows.max()) if rows.numel() else 0
        if last >= kept:
            further = sinusoids(self.offset + kept, last + 1 - kept, dims)
            table = torch.cat([table, further.to(table)])
        return nn.functional.embedding(rows, table)


class _Layer(nn.TransformerEncoderLayer):
    """torch's post-norm layer with a forward of its own: on a CPU, windows of 50 tokens pass 1.3 times as fast."""

    def forward(self, src: Tensor, bias: Tensor | None = None, kept: slice = _ALL) -> Tensor:  # type: ignore[override]
        """Contextualises the tokens ``kept`` of ``[b, tokens, d]`` by all of them.

        ``bias`` is added to attention scores, ``[b, 1, 1, tokens]``.
        """
        out, own = self.self_attn.out_proj, src[:, kept]
        own = self.norm1(own + nn.functional.linear(self._attend(src, own, bias), out.weight, out.bias))
        return self.norm2(own + self.linear2(torch.relu(self.linear1(own))))

    def _attend(self, x: Tensor, own: Tensor, bias: Tensor | None) -> Tensor:
        query, key, value = self._projected(x, own)
        if x.is_cuda or x.shape[1] > _FEW_TOKENS:
            mixed = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
            return mixed.transpose(1, 2).flatten(2)
        batch, heads, _, width = query.shape
        query, key, value = query.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1)
        scores = torch.bmm(query, key.transpose(1, 2)) * width**-0.5
        if bias is not None:
            scores = (scores.unflatten(0, (batch, heads)) + bias).flatten(0, 1)
        mixed = torch.bmm(scores.softmax(-1).to(value.dtype), value)
        return mixed.unflatten(0, (batch, heads)).transpose(1, 2).flatten(2)

    def _projected(self, x: Tensor, own: Tensor) -> Iterator[Tensor]:
        """Query of the tokens ``own``, key and value of all, each ``[b, heads, tokens, width]``."""
        attention, dims = self.self_attn, x.shape[-1]
        weight, bias = attention.in_proj_weight, attention.in_proj_bias
        if own.shape[1] == x.shape[1]:
            parts = [(x, weight, bias)]
        else:
            parts = [(own, weight[:dims], bias[:dims]), (x, weight[dims:], bias[dims:])]
        for inputs, rows, shift in parts:
            joint = nn.functional.linear(inputs, rows, shift)
            joint = joint.unflatten(-1, (len(rows) // dims, attention.num_heads, dims // attention.num_heads))
            yield from joint.permute(2, 0, 3, 1, 4).contiguous()


class Contextualizer(nn.Module):
    """x̂ = α x + (1 - α) TF(x + pos), with a learned α that starts at .5.

    Args:
        dims: Width of the vectors.
        heads: Attention heads; must divide ``dims``.
        layers: Transformer layers.
        feedforward: Width of their hidden layers.
        mix: Whether to mix at all; without, x̂ = TF(x + pos).

    Raises:
        ValueError: If ``heads`` does not divide ``dims``.
    """

    def __init__(self, dims: int, heads: int, layers: int, feedforward: int, *, mix: bool = True) -> None:
        super().__init__()
        if dims % heads:
            divisors = [number for number in range(1, dims + 1) if dims % number == 0]
            raise ValueError(f"heads={heads} does not divide the vectors' {dims} dimensions; use one of {divisors}")
        self.layers = nn.ModuleList(_Layer(dims, heads, feedforward, dropout=0.0) for _ in range(layers))
        self.alpha = nn.Parameter(torch.tensor([0.5]))
        self.mix = mix

    def load_matchmaker(self, state: Mapping[str, Tensor]) -> None:
        """Takes ``contextualizer.*`` and ``mixer`` of a matchmaker checkpoint."""
        prefix = "contextualizer.layers."
        encoder = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        self.layers.load_state_dict(encoder)
        self.alpha.data = state["mixer"].reshape(1)

    def forward(self, vectors: Tensor, positions: Tensor, mask: Tensor | None, kept: slice = _ALL) -> Tensor:
        """Contextualises each row of a batch on its own.

        Args:
            vectors: ``[b, tokens, dims]``.
            positions: Position vectors, of the same shape.
            mask: Real tokens, bool ``[b, tokens]``; ``None`` if all are real, which is faster. Every row needs one.
            kept: The tokens that are wanted: the last layer is computed for them alone.

        Returns:
            ``[b, kept tokens, dims]``.
        """
        bias = None if mask is None else torch.zeros_like(mask, dtype=vectors.dtype).masked_fill(~mask, -torch.inf)
        bias = None if bias is None else bias[:, None, None, :]
        context = vectors + positions
        for layer in self.layers[:-1]:
            context = layer(context, bias)
        context = self.layers[-1](context, bias, kept) if len(self.layers) else context[:, kept]
        return self.alpha * vectors[:, kept] + (1 - self.alpha) * context if self.mix else context
