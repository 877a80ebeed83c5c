"""PARADE: a document's score from the vectors of its passages (Li et al., arXiv 2008.09093; TOIS 2023).

The first token's vector of each (query, passage) sequence stands for the passage. The vectors are aggregated into one
for the document, by a mean, a maximum, an attention, a tree of convolutions or a small Transformer; a linear layer
scores it. Aggregation is computed in float32, for documents with equally many passages at once: none is padded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PretrainedConfig, PreTrainedModel

from pyterrier_longdoc.checks import check_whole
from pyterrier_longdoc.models.passages import PassageConfig, PassageModel, new_head


class Mean(nn.Module):
    """PARADE-Avg."""

    def forward(self, passages: Tensor) -> Tensor:
        """Document vectors ``[b, d]`` from those of passages, ``[b, passages, d]``."""
        return passages.mean(1)


class Maximum(nn.Module):
    """PARADE-Max: the highest value of each feature."""

    def forward(self, passages: Tensor) -> Tensor:
        """See :meth:`Mean.forward`."""
        return passages.amax(1)


class Attention(nn.Module):
    """PARADE-Attn: Σ softmax(w·p)_i p_i with a learned w.

    Args:
        dims: Width of the vectors.
    """

    def __init__(self, dims: int) -> None:
        super().__init__()
        self.weight = nn.Linear(dims, 1, bias=False)

    def forward(self, passages: Tensor) -> Tensor:
        """See :meth:`Mean.forward`."""
        return (self.weight(passages).softmax(dim=1) * passages).sum(1)


class ConvolutionTree(nn.Module):
    """PARADE-CNN: layers of width and stride 2 halve the number of vectors until one is left.

    A vector without a partner is joined with zeros. Where a document has more passages than 2 to the power of
    ``layers`` (16 in the paper, which reads no more), the last layer is used again.

    Args:
        dims: Width of the vectors.
        layers: How many different layers there are.
    """

    def __init__(self, dims: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(dims, dims, kernel_size=2, stride=2) for _ in range(layers))

    def forward(self, passages: Tensor) -> Tensor:
        """See :meth:`Mean.forward`."""
        nodes, level = passages.transpose(1, 2), 0
        while nodes.shape[2] > 1:
            nodes = functional.pad(nodes, (0, nodes.shape[2] % 2))
            nodes = self.layers[min(level, len(self.layers) - 1)](nodes).relu()
            level += 1
        return nodes[..., 0]


class Transformer(nn.Module):
    """PARADE-Transformer: a learned [CLS] attends to the passages through layers like the encoder's.

    Passages have no position, as by default in the published code.

    Args:
        dims: Width of the vectors.
        heads: Attention heads.
        layers: How many layers there are.
    """

    def __init__(self, dims: int, heads: int, layers: int) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(dims) * 0.02)
        self.layers = nn.Sequential(
            *(nn.TransformerEncoderLayer(dims, heads, 4 * dims, 0.1, "gelu", batch_first=True) for _ in range(layers))
        )

    def forward(self, passages: Tensor) -> Tensor:
        """See :meth:`Mean.forward`."""
        first = self.first.expand(len(passages), 1, -1)
        return self.layers(torch.cat([first, passages], dim=1))[:, 0]


#: Builds an aggregation for an encoder of some settings, with a number of layers (the paper's, if ``None``).
AGGREGATIONS: dict[str, Callable[[PretrainedConfig, int | None], nn.Module]] = {
    "mean": lambda encoder, layers: Mean(),
    "max": lambda encoder, layers: Maximum(),
    "attention": lambda encoder, layers: Attention(encoder.hidden_size),
    "cnn": lambda encoder, layers: ConvolutionTree(encoder.hidden_size, layers or 4),
    "transformer": lambda encoder, layers: Transformer(encoder.hidden_size, encoder.num_attention_heads, layers or 2),
}


@dataclass(frozen=True)
class PARADEConfig(PassageConfig):
    """Settings of PARADE.

    Attributes:
        aggregation: ``"transformer"``, ``"cnn"``, ``"attention"``, ``"max"`` or ``"mean"``.
        layers: Layers of the Transformer (2 in the paper) or of the tree (4 there).
    """

    aggregation: str = "transformer"
    layers: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.aggregation not in AGGREGATIONS:
            raise ValueError(f"aggregation must be one of {', '.join(AGGREGATIONS)}, got {self.aggregation!r}")
        if self.layers is not None:
            check_whole("layers", self.layers, instead=", or None for the paper's")
        if self.classifier:
            raise ValueError("PARADE aggregates vectors: it has no use for the head of a classifier")


class PARADEModel(PassageModel):
    """Passage vectors, aggregated into a document's, and a linear score.

    Args:
        config: The settings.
        encoder: As in :class:`~pyterrier_longdoc.models.passages.PassageModel`.
    """

    config_class = PARADEConfig

    def __init__(self, config: PARADEConfig, encoder: PreTrainedModel | None = None) -> None:
        super().__init__(config, encoder)
        self.aggregation = AGGREGATIONS[config.aggregation](self.encoder.config, config.layers)
        self.head = new_head(self.encoder.config)

    def aggregate(self, outputs: Tensor) -> Tensor:
        """See :meth:`PassageModel.aggregate <pyterrier_longdoc.models.passages.PassageModel.aggregate>`."""
        return self.head(self.aggregation(outputs)).squeeze(-1)
