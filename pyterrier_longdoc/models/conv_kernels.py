"""CK: how well a passage matches a query, from trigrams and kernel pooling, at a fraction of an encoder's cost.

The efficient student of IDCM (Hofstätter et al., SIGIR 2021, Section 3.2): one convolution of three tokens over the
encoder's embeddings, the kernels of KNRM over the cosines of query and passage, a learned weight for each.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pyterrier_longdoc.models.kernels import CENTRES, WIDTH, KernelBank, cosine_matrix, unit

_TRIGRAM = 3
#: Least soft term frequency under the logarithm, that of the published code.
_LEAST = 1e-4


class ConvKernels(nn.Module):
    """Scores passages.

    Args:
        dims: Width of the embeddings.
        filters: Width of a trigram's vector; as wide as an embedding if ``None``.
        projection: Width that embeddings are reduced to before, if at all.
    """

    def __init__(self, dims: int, filters: int | None = None, projection: int | None = None) -> None:
        super().__init__()
        self.projection = None if projection is None else nn.Linear(dims, projection)
        self.convolution = nn.Conv1d(projection or dims, filters or dims, kernel_size=_TRIGRAM)
        self.kernels = KernelBank(CENTRES, [WIDTH] * len(CENTRES))
        self.scale = nn.Parameter(torch.ones(len(CENTRES)))
        self.dense = nn.Linear(len(CENTRES), 1)
        with torch.no_grad():  # close matches count for a passage from the start, as in all kernel models here
            self.dense.weight.copy_(0.014 * self.kernels.mu)
            self.dense.bias.zero_()

    def forward(self, query: Tensor, query_mask: Tensor, passage: Tensor, passage_mask: Tensor) -> Tensor:
        """Scores pairs.

        Args:
            query: Embeddings ``[b, m, d]``.
            query_mask: Real tokens, bool ``[b, m]``.
            passage: Embeddings ``[b, n, d]``; trigrams reach into the padding of a passage, not into a query's.
            passage_mask: Real tokens, bool ``[b, n]``.

        Returns:
            float32 ``[b]``.
        """
        # Trigrams of a query see nothing behind it, however many tokens it is padded by
        left, right = self._trigrams(query, query_mask), self._trigrams(passage, None)
        with torch.autocast(query.device.type, enabled=False):
            sums = self.kernels.sums(cosine_matrix(unit(left), unit(right), passage_mask))
            logs = (sums * self.scale).clamp(min=_LEAST).log() * query_mask[..., None]
            return self.dense(logs.sum(1)).squeeze(-1)

    def _trigrams(self, embeddings: Tensor, mask: Tensor | None) -> Tensor:
        projected = embeddings if self.projection is None else self.projection(embeddings)
        projected = projected if mask is None else projected * mask[..., None]
        signal = nn.functional.pad(projected.transpose(1, 2), (0, _TRIGRAM - 1))
        return self.convolution(signal).relu().transpose(1, 2)
