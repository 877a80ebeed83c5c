"""KNRM: kernel pooling over the cosines of static term vectors (Xiong et al., SIGIR 2017)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pyterrier_longdoc.models.kernel_data import Evidence, KernelConfig, Queries
from pyterrier_longdoc.models.kernel_model import KernelModel
from pyterrier_longdoc.models.kernels import KernelBank, cosine_matrix, kernel_weights, log_pool
from pyterrier_longdoc.models.occlusion import occlusion_evidence


@dataclass(frozen=True)
class KNRMConfig(KernelConfig):
    """Settings of KNRM.

    Attributes:
        centres: Centres of the kernels; the first one counts exact matches.
        exact_width: Width of the first kernel.
        width: Width of the others.
        scale: Factor of the logs of the soft term frequencies.
    """

    centres: tuple[float, ...] = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9)
    exact_width: float = 1e-4
    width: float = 0.1
    scale: float = 0.01


class KNRMModel(KernelModel):
    """Soft term frequencies in bins of similarity, their logs, one linear layer.

    Args:
        config: The settings.
    """

    config_class = KNRMConfig

    def __init__(self, config: KNRMConfig) -> None:
        super().__init__(config)
        others = len(config.centres) - 1
        self.kernels = KernelBank(config.centres, (config.exact_width, *[config.width] * others))
        self.dense = kernel_weights(self.kernels)

    @classmethod
    def from_matchmaker(cls, state_dict: Mapping[str, Tensor], *, heads: int | None = None) -> KNRMModel:
        """Loads the parameters of matchmaker's ``knrm.py``.

        Args:
            state_dict: Its ``state_dict()``; vectors are not part of it.
            heads: Not used (there is no attention); the family shares one signature.
        """
        model = cls(KNRMConfig(dims=0))  # vectors of any width will do
        model.dense.load_state_dict({"weight": torch.as_tensor(state_dict["dense.weight"])})
        return model.eval()

    def interact(self, queries: Queries, documents: Tensor, mask: Tensor) -> Tensor:
        """Scores of pairs; see :meth:`KernelModel.interact`."""
        return self._score(self.kernels.sums(self._cosine(queries, documents, mask)), queries)

    def evidence(self, queries: Queries, documents: Tensor, mask: Tensor) -> Evidence:
        """What the score loses without a region's matches; see :func:`occlusion_evidence`."""
        activations = self.kernels(self._cosine(queries, documents, mask))
        return occlusion_evidence(activations, mask, lambda sums: self._score(sums, queries))

    def _cosine(self, queries: Queries, documents: Tensor, mask: Tensor) -> Tensor:
        return cosine_matrix(self.unit_vectors(queries.vectors), documents, mask)

    def _score(self, sums: Tensor, queries: Queries) -> Tensor:
        return self.dense(log_pool(sums, queries.mask) * self.config.scale).squeeze(-1)
