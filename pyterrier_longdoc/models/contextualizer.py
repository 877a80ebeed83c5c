"""Contextualising token vectors: positions, a small Transformer, and the highway mix of TK (Hofstätter et al., 2020)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn


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
            raise ValueError(f"heads={heads} does not divide the {dims} dimensions of the vectors; use one of {divisors}")
        layer = nn.TransformerEncoderLayer(dims, heads, feedforward, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.alpha = nn.Parameter(torch.tensor([0.5]))
        self.mix = mix

    def load_matchmaker(self, state: Mapping[str, Tensor]) -> None:
        """Takes ``contextualizer.*`` and ``mixer`` of a matchmaker checkpoint."""
        prefix = "contextualizer."
        encoder = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        self.encoder.load_state_dict(encoder)
        self.alpha.data = state["mixer"].reshape(1)

    def forward(self, vectors: Tensor, positions: Tensor, mask: Tensor | None) -> Tensor:
        """Contextualises each row of a batch on its own.

        Args:
            vectors: ``[b, tokens, dims]``.
            positions: Position vectors, of the same shape.
            mask: Real tokens, bool ``[b, tokens]``; ``None`` if all are real, which is faster. Every row needs one.

        Returns:
            ``[b, tokens, dims]``.
        """
        context = self.encoder(vectors + positions, src_key_padding_mask=None if mask is None else ~mask)
        return self.alpha * vectors + (1 - self.alpha) * context if self.mix else context
