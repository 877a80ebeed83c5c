"""What all dual encoders share: one unit vector a text, the cosine of two, and the logit that training makes of it.

A document is encoded without its query, so its vector can be kept in an index; matching is a dot product. The towers
share all weights: a query is a document, short or long, unless a model says otherwise.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from pyterrier_longdoc.pooling import Budget
from pyterrier_longdoc.windows import Ragged


class DualEncoderModel(nn.Module):
    """Encodes texts into unit vectors; a subclass has ``dims`` and :meth:`encode_documents`.

    Scores are cosines. In training mode they are the logits scale·cos + bias, both learned: cosines lie too close
    together for any loss that squashes them (SMITH, eq. 9, where the scale is fixed).

    Args:
        scale: Start of the scale.
        bias: Start of the bias.

    Attributes:
        dims: Length of the vectors.
    """

    dims: int

    def __init__(self, scale: float = 6.0, bias: float = -3.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))
        self.bias = nn.Parameter(torch.tensor(bias))

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.scale.device

    def encode_documents(self, documents: Ragged, budget: Budget) -> Tensor:
        """Unit vectors of documents.

        Args:
            documents: Token ids without special tokens, with what the ranker's ``tokenize`` adds to them.
            budget: Tokens of a forward pass.

        Returns:
            float32 ``[n, dims]``; of length 1.
        """
        raise TypeError(f"{type(self).__name__} does not say how to encode")

    def encode_queries(self, queries: Ragged, budget: Budget) -> Tensor:
        """Unit vectors of queries; arguments as in :meth:`encode_documents`."""
        return self.encode_documents(queries, budget)

    def encode_views(self, documents: Ragged, budget: Budget, *, recompute: bool = False) -> tuple[Tensor, np.ndarray]:
        """Unit vectors of what contrastive training compares: of each document, or of several parts of it.

        Args:
            documents: As in :meth:`encode_documents`.
            budget: Tokens of a forward pass.
            recompute: Whether a model that can keeps less in memory and computes its encoder twice.

        Returns:
            float32 ``[v, dims]``, and the document of each, int64 ``[v]``, ascending.
        """
        return self.encode_documents(documents, budget), np.arange(len(documents))

    def forward(self, queries: Ragged, documents: Ragged, pairs: np.ndarray, budget: Budget) -> Tensor:
        """Scores pairs of texts, encoding each text once.

        Args:
            queries: Token ids of the queries.
            documents: Token ids of the documents.
            pairs: Query and document number of each pair, ``[p, 2]``.
            budget: Tokens of a forward pass.

        Returns:
            float32 ``[p]``: cosines, or logits in training mode.
        """
        query, document = torch.from_numpy(np.ascontiguousarray(pairs.T, np.int64)).to(self.device)
        left, right = self.encode_queries(queries, budget), self.encode_documents(documents, budget)
        with torch.autocast(self.device.type, enabled=False):
            cosines = (left[query].float() * right[document].float()).sum(1)
            return self.scale * cosines + self.bias if self.training else cosines


def mean_state(states: Tensor, lengths: np.ndarray) -> Tensor:
    """The mean over the real tokens of each sequence, special ones included, float32 ``[b, d]``.

    Args:
        states: ``[b, tokens, d]``.
        lengths: Tokens of each that are real; they come first, ``[b]``.
    """
    own = torch.from_numpy(np.asarray(lengths)).to(states.device)[:, None]
    real = torch.arange(states.shape[1], device=states.device) < own
    return (states.float() * real[..., None]).sum(1) / own


def unit(vectors: Tensor) -> Tensor:
    """Vectors scaled to length 1, in float32 whatever the encoder's precision."""
    return functional.normalize(vectors.float(), dim=-1)
