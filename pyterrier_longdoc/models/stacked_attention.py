"""AllenNLP's stacked self-attention with TK's highway mix: the encoder of the first published TK (``TK_v1``).

It is here only for that model's checkpoints: feed-forward before attention, attention scaled by the width of the input
in place of the projection, and a layer norm that adds its epsilon to the standard deviation, not to the variance.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


class _AllenNorm(nn.Module):
    def __init__(self, dims: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(dims))
        self.beta = nn.Parameter(torch.zeros(dims))

    def forward(self, x: Tensor) -> Tensor:
        deviation, mean = torch.std_mean(x, -1, correction=0, keepdim=True)
        return self.gamma * (x - mean) / (deviation + 1e-6) + self.beta


class _Layer(nn.Module):
    def __init__(self, dims: int, heads: int, feedforward: int, projection: int) -> None:
        super().__init__()
        self.heads = heads
        self.scale = (dims // heads) ** -0.5
        self.hidden = nn.Linear(dims, feedforward)
        self.output = nn.Linear(feedforward, dims)
        self.feedforward_norm = _AllenNorm(dims)
        self.combined_projection = nn.Linear(dims, 3 * projection)
        self.output_projection = nn.Linear(projection, dims)
        self.attention_norm = _AllenNorm(dims)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.feedforward_norm(self.output(torch.relu(self.hidden(x))) + x)
        parts = self.combined_projection(x).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        attended = nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask[:, None, None, :], scale=self.scale
        )
        return self.attention_norm(self.output_projection(attended.transpose(1, 2).flatten(2)) + x)


class StackedAttention(nn.Module):
    """The same interface as :class:`~pyterrier_longdoc.models.contextualizer.Contextualizer`.

    Args:
        dims: Width of the vectors.
        heads: Attention heads; must divide ``projection``.
        layers: Layers.
        feedforward: Width of their hidden layers.
        projection: Width of queries, keys and values.

    Raises:
        ValueError: If ``heads`` does not divide ``projection``.
    """

    def __init__(self, dims: int, heads: int, layers: int, feedforward: int, projection: int) -> None:
        super().__init__()
        if projection % heads:
            raise ValueError(f"heads={heads} does not divide projection={projection}")
        self.layers = nn.ModuleList(_Layer(dims, heads, feedforward, projection) for _ in range(layers))
        self.alpha = nn.Parameter(torch.tensor([0.5]))

    def load_matchmaker(self, state: Mapping[str, Tensor]) -> None:
        """Takes ``stacked_att.*`` and ``mixer`` of a matchmaker checkpoint."""
        self.alpha.data = state["mixer"].reshape(1)
        for number, layer in enumerate(self.layers):
            names = {
                "hidden.": f"feedforward_{number}._linear_layers.0.",
                "output.": f"feedforward_{number}._linear_layers.1.",
                "feedforward_norm.": f"feedforward_layer_norm_{number}.",
                "combined_projection.": f"self_attention_{number}._combined_projection.",
                "output_projection.": f"self_attention_{number}._output_projection.",
                "attention_norm.": f"layer_norm_{number}.",
            }
            parts = {
                own: f"stacked_att.{names[module]}{name}"
                for own in layer.state_dict()
                for module, name in [(own[: own.rindex(".") + 1], own[own.rindex(".") + 1 :])]
            }
            layer.load_state_dict({own: state[theirs] for own, theirs in parts.items()})

    def forward(self, vectors: Tensor, positions: Tensor, mask: Tensor | None, kept: slice = slice(None)) -> Tensor:
        """Contextualises each row of a batch; see ``Contextualizer.forward``."""
        mask = torch.ones(vectors.shape[:2], dtype=torch.bool, device=vectors.device) if mask is None else mask
        context = vectors + positions
        for layer in self.layers:
            context = layer(context, mask)
        return self.alpha * vectors[:, kept] + (1 - self.alpha) * context[:, kept]
