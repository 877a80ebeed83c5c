"""Conv-KNRM: kernel pooling over the cosines of all pairs of n-grams (Dai et al., WSDM 2018).

Tokens are masked *before* the convolutions, so that padding never leaks into the last n-grams of a document: a score
does not depend on the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pyterrier_longdoc.models.kernel_data import Evidence, KernelConfig, Queries
from pyterrier_longdoc.models.kernel_model import KernelModel
from pyterrier_longdoc.models.kernels import KernelBank, cosine_matrix, kernel_weights, log_pool, unit
from pyterrier_longdoc.models.occlusion import occlusion_evidence


@dataclass(frozen=True)
class ConvKNRMConfig(KernelConfig):
    """Settings of Conv-KNRM.

    Attributes:
        ngrams: Widths of the convolutions, from 1 to this many tokens.
        filters: Width of an n-gram vector.
        centres: Centres of the kernels; the first one counts exact matches.
        exact_width: Width of the first kernel.
        width: Width of the others.
        scale: Factor of the logs of the soft term frequencies.
    """

    ngrams: int = 3
    filters: int = 128
    centres: tuple[float, ...] = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9)
    exact_width: float = 1e-3
    width: float = 0.1
    scale: float = 0.01


class ConvKNRMModel(KernelModel):
    """Convolutions of 1 to n tokens, kernel pooling of each pair of them, one linear layer.

    Args:
        config: The settings.
    """

    config_class = ConvKNRMConfig

    def __init__(self, config: ConvKNRMConfig) -> None:
        super().__init__(config)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.dims, config.filters, kernel_size=n + 1) for n in range(config.ngrams)
        )
        self.kernels = KernelBank(config.centres, (config.exact_width, *[config.width] * (len(config.centres) - 1)))
        self.dense = kernel_weights(self.kernels, copies=config.ngrams**2)

    @classmethod
    def from_matchmaker(cls, state_dict: Mapping[str, Tensor], *, heads: int | None = None) -> ConvKNRMModel:
        """Loads the parameters of matchmaker's ``conv_knrm.py``.

        Args:
            state_dict: Its ``state_dict()``; vectors are not part of it.
            heads: Not used (there is no attention); the family shares one signature.
        """
        state = {name: torch.as_tensor(value) for name, value in state_dict.items()}
        ngrams = sum(name.startswith("convolutions.") and name.endswith(".weight") for name in state)
        filters, dims, _ = state["convolutions.0.1.weight"].shape
        model = cls(ConvKNRMConfig(dims=dims, ngrams=ngrams, filters=filters))
        renamed = {"dense.weight": state["dense.weight"]}
        for n in range(ngrams):
            for part in ("weight", "bias"):
                renamed[f"convolutions.{n}.{part}"] = state[f"convolutions.{n}.1.{part}"]
        kept = {name: value for name, value in model.state_dict().items() if name not in renamed}
        model.load_state_dict({**kept, **renamed})
        return model.eval()

    @property
    def width(self) -> int:
        """Width of an encoded token: its n-gram vectors side by side."""
        return self.config.ngrams * self.config.filters

    def contextualize_query(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """n-gram vectors side by side, ``[b, tokens, ngrams * filters]``."""
        return self._ngrams(vectors, mask)

    def contextualize_windows(self, vectors: Tensor, rows: Tensor, mask: Tensor | None, kept: slice) -> Tensor:
        """The same for a whole document; ``rows`` is not used."""
        return self._ngrams(vectors, mask)[:, kept]

    def _ngrams(self, vectors: Tensor, mask: Tensor | None) -> Tensor:
        masked = vectors if mask is None else vectors * mask[..., None]
        signal = masked.transpose(1, 2)
        padded = (nn.functional.pad(signal, (0, n)) for n in range(len(self.convolutions)))
        outputs = [convolution(each) for convolution, each in zip(self.convolutions, padded, strict=True)]
        return torch.cat(outputs, dim=1).relu().transpose(1, 2)

    def unit_vectors(self, vectors: Tensor) -> Tensor:
        """Unit vectors of each n-gram on its own."""
        return unit(vectors.unflatten(-1, (self.config.ngrams, self.config.filters))).flatten(-2)

    def interact(self, queries: Queries, documents: Tensor, mask: Tensor) -> Tensor:
        """Scores of pairs; see :meth:`KernelModel.interact`."""
        sums = [self.kernels.sums(cosine) for cosine in self._cosines(queries, documents, mask)]
        return self._score(torch.cat(sums, dim=-1), queries)

    def evidence(self, queries: Queries, documents: Tensor, mask: Tensor) -> Evidence:
        """What the score loses without a region's matches; see :func:`occlusion_evidence`."""
        cosines = self._cosines(queries, documents, mask)
        activations = (activation for cosine in cosines for activation in self.kernels(cosine))
        return occlusion_evidence(activations, mask, lambda sums: self._score(sums, queries))

    def _cosines(self, queries: Queries, documents: Tensor, mask: Tensor) -> Iterator[Tensor]:
        filters = self.config.filters
        for query in self.unit_vectors(queries.vectors).split(filters, dim=-1):
            for document in documents.split(filters, dim=-1):
                yield cosine_matrix(query, document, mask)

    def _score(self, sums: Tensor, queries: Queries) -> Tensor:
        return self.dense(log_pool(sums, queries.mask) * self.config.scale).squeeze(-1)
