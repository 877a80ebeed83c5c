"""TKL: local self-attention over long text and a topography of relevance (Hofstätter et al., SIGIR 2020).

A document is cut into cores of 40 tokens that see 5 more on both sides; each such window is contextualised by a small
Transformer, so that cost grows linearly with length. Soft matches are summed over sliding regions of 30 tokens,
saturated by a learned curve for each query term, and the score is read off the highest separate peaks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from pyterrier_longdoc.checks import check_whole
from pyterrier_longdoc.models.contextualizer import Contextualizer, Positions
from pyterrier_longdoc.models.kernel_data import Evidence, KernelConfig, Queries
from pyterrier_longdoc.models.kernel_model import KernelModel
from pyterrier_longdoc.models.kernels import CENTRES, WIDTH, KernelBank, cosine_matrix, kernel_weights
from pyterrier_longdoc.models.regions import NEIGHBOURS, overhang, region_counts, region_sums, top_local_max
from pyterrier_longdoc.models.saturation import Saturation
from pyterrier_longdoc.windows import Windows, contiguous_windows

_DOCUMENT_OFFSET = 500


@dataclass(frozen=True)
class TKLConfig(KernelConfig):
    """Settings of TKL; the defaults are the paper's.

    Attributes:
        heads: Attention heads.
        layers: Transformer layers.
        feedforward: Width of their hidden layers.
        core: Tokens of a window that are kept (w).
        context: Tokens that a window sees on each side (half of the overlap o).
        region: Tokens of a saturation region.
        stride: Tokens from one region to the next.
        peaks: Regions that make the score (t), each with two neighbours on both sides.
        saturation: See :mod:`~pyterrier_longdoc.models.saturation`.

    Raises:
        ValueError: If a number is out of range.
    """

    heads: int = 10
    layers: int = 2
    feedforward: int = 100
    core: int = 40
    context: int = 5
    region: int = 30
    stride: int = 2
    peaks: int = 3
    saturation: str = "salience"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("core", 1), ("region", 1), ("stride", 1), ("peaks", 1), ("context", 0)):
            check_whole(name, getattr(self, name), least)
        if self.stride > self.region:
            raise ValueError(f"stride={self.stride} would skip tokens between regions of {self.region}")


class TKLModel(KernelModel):
    """Local contextualisation, saturated kernel sums by region, top-local-max.

    Args:
        config: The settings.

    Raises:
        ValueError: If the saturation is unknown, the heads do not divide the vectors or a size is not positive.
    """

    config_class = TKLConfig

    def __init__(self, config: TKLConfig) -> None:
        super().__init__(config)
        self.contextualizer = Contextualizer(config.dims, config.heads, config.layers, config.feedforward)
        self.query_positions = Positions(30, config.dims)
        self.document_positions = Positions(config.core + 2 * config.context, config.dims, _DOCUMENT_OFFSET)
        self.kernels = KernelBank(CENTRES, [WIDTH] * len(CENTRES))
        self.saturation = Saturation(config.saturation, config.dims, len(CENTRES))
        self.dense = kernel_weights(self.kernels)
        read = config.peaks * (1 + 2 * NEIGHBOURS)
        self.peak_weights = nn.Parameter(torch.full((read,), 1 / read))  # a mean: scores start in reach of the losses
        self.salience = nn.Parameter(torch.ones(config.vocabulary), requires_grad=config.saturation == "salience")

    @classmethod
    def from_matchmaker(
        cls, state_dict: Mapping[str, Tensor], *, heads: int, saturation: str = "embedding"
    ) -> TKLModel:
        """Loads the parameters of matchmaker's ``sigir20_tkl.py``.

        Args:
            state_dict: Its ``state_dict()``; vectors are not part of it.
            heads: Attention heads, which the parameters do not tell.
            saturation: Its ``tk_saturation_type``, or ``"salience"``.
        """
        state = {name: torch.as_tensor(value) for name, value in state_dict.items()}
        hidden, dims = state["contextualizer.layers.0.linear1.weight"].shape
        layers = sum(name.endswith("out_proj.weight") for name in state)
        model = cls(TKLConfig(dims, heads=heads, layers=layers, feedforward=hidden, saturation=saturation))
        model.contextualizer.load_matchmaker(state)
        model.query_positions.table.data = state["positional_features_q"][0].clone()
        model.document_positions.table.data = state["positional_features_d"][0, :50].clone()
        model.dense.weight.data = state["dense.weight"].clone()
        model.peak_weights.data = state["chunk_scoring"].flatten().clone()
        model.saturation.load_matchmaker(state)
        return model.eval()

    def set_idf(self, idf: np.ndarray) -> None:
        """Starts the weight of each vocabulary term, ``[vocabulary]``, from its IDF in a collection.

        Raises:
            ValueError: If there are not as many values as terms.
        """
        if np.shape(idf) != tuple(self.salience.shape):
            raise ValueError(f"{len(self.salience)} terms need as many IDF values, got the shape {np.shape(idf)}")
        with torch.no_grad():
            self.salience.copy_(torch.as_tensor(idf))

    @property
    def has_idf(self) -> bool:
        """Whether term weights were ever set; they start as ones."""
        return bool((self.salience != 1).any())

    def document_windows(self, lengths: np.ndarray) -> Windows:
        """Cores of 40 tokens with 5 more on both sides."""
        return contiguous_windows(lengths, self.config.core, self.config.context)

    def contextualize_query(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """See :meth:`KernelModel.contextualize_query`."""
        rows = torch.arange(vectors.shape[1], device=vectors.device).expand(len(vectors), -1)
        return self.contextualizer(vectors, self.query_positions(rows), mask)

    def contextualize_windows(self, vectors: Tensor, rows: Tensor, mask: Tensor | None, kept: slice) -> Tensor:
        """Positions restart in each window: its first core token is row 5, wherever the window lies."""
        rows = (rows + self.config.context).clamp(max=len(self.document_positions.table) - 1)
        return self.contextualizer(vectors, self.document_positions(rows), mask, kept)

    def query_salience(self, ids: Tensor) -> Tensor | None:
        """See :meth:`KernelModel.query_salience`."""
        return self.salience[ids] if self.saturation.needs_salience else None

    def topography(self, queries: Queries, documents: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Score of each region (eq. 6); arguments as in :meth:`interact`.

        Returns:
            Scores ``[pairs, regions]``, 0 where a region is empty, and the tokens that each region holds.
        """
        size, stride, tokens = self.config.region, self.config.stride, mask.shape[1]
        query = self.unit_vectors(queries.vectors)
        cosine = cosine_matrix(query, documents, mask, more=overhang(tokens, size, stride))
        counts = region_counts(mask.sum(1), -(-tokens // stride), size, stride)
        curve = self.saturation.curves_of(queries.vectors, queries.mask, queries.salience, counts)
        topography = cosine.new_zeros(counts.shape)
        for number, activation in enumerate(self.kernels(cosine)):
            saturated = self.saturation(region_sums(activation, size, stride), curve, number)
            topography = topography + saturated.sum(1) * self.dense.weight[0, number]
        return topography * (counts > 0), counts

    def interact(self, queries: Queries, documents: Tensor, mask: Tensor) -> Tensor:
        """Scores of pairs; see :meth:`KernelModel.interact`."""
        return self._peaks(*self.topography(queries, documents, mask))[1] @ self.peak_weights

    def evidence(self, queries: Queries, documents: Tensor, mask: Tensor) -> Evidence:
        """The regions that top-local-max picked, highest first, each with what it and its neighbours add to the score.

        A pick on the plain behind the end stands for the last tokens that its neighbours still hold, if any: the
        weights always add up to the score.
        """
        topography, counts = self.topography(queries, documents, mask)
        index, values = self._peaks(topography, counts)
        weight = (values * self.peak_weights).unflatten(1, (-1, self.config.peaks)).sum(1)
        start = index * self.config.stride
        lengths = mask.sum(1, keepdim=True)
        start = torch.where(start < lengths, start, (start - NEIGHBOURS * self.config.stride).clamp(min=0))
        end = torch.minimum(start + self.config.region, lengths)
        return Evidence(torch.where(start < lengths, start, -1), end, weight)

    def _peaks(self, topography: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        return top_local_max(topography, counts, self.config.peaks, -(-self.config.region // self.config.stride))
