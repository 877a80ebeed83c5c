"""TK: a small Transformer, a highway mix and kernel pooling (Hofstätter et al., ECAI 2020).

Three forms are published under the name. The default is the last one (one branch of natural logs, ``ecai20_tk``). The
earlier ones (base-2 logs beside a branch of means, with torch's encoder in ``tk_native`` and AllenNLP's stacked
attention in ``tk``) are a config field, for their checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pyterrier_longdoc.models.contextualizer import Contextualizer, Positions
from pyterrier_longdoc.models.kernel_data import Evidence, KernelConfig, Queries
from pyterrier_longdoc.models.kernel_model import KernelModel
from pyterrier_longdoc.models.kernels import CENTRES, WIDTH, KernelBank, cosine_matrix, kernel_weights, log_pool
from pyterrier_longdoc.models.occlusion import occlusion_evidence
from pyterrier_longdoc.models.stacked_attention import StackedAttention

#: Documents' positions start here in the form "log", so that they differ from the query's.
_DOCUMENT_OFFSET = 500
_FORMS = ("log", "log2_mean", "stacked")


@dataclass(frozen=True)
class TKConfig(KernelConfig):
    """Settings of TK.

    Attributes:
        heads: Attention heads.
        layers: Transformer layers.
        feedforward: Width of their hidden layers.
        form: ``"log"``; or ``"log2_mean"`` or ``"stacked"`` (with AllenNLP's encoder), for their checkpoints.
        mix: Whether contextualised vectors are mixed with the original ones.
        projection: Width of the attention of the form ``"stacked"``.
    """

    heads: int = 10
    layers: int = 2
    feedforward: int = 100
    form: str = "log"
    mix: bool = True
    projection: int = 32


class TKModel(KernelModel):
    """Contextualised vectors of the whole document, kernel pooling, a fixed log.

    Args:
        config: The settings.

    Raises:
        ValueError: If ``config.form`` is unknown or the heads do not divide the vectors.
    """

    config_class = TKConfig

    def __init__(self, config: TKConfig) -> None:
        super().__init__(config)
        if config.form not in _FORMS:
            raise ValueError(f"form must be one of {_FORMS}, got {config.form!r}")
        sizes = (config.dims, config.heads, config.layers, config.feedforward)
        one_branch = config.form == "log"
        if config.form == "stacked":
            self.contextualizer = StackedAttention(*sizes, config.projection)
        else:
            self.contextualizer = Contextualizer(*sizes, mix=config.mix)
        self.query_positions = Positions(200, config.dims, trained=False)
        self.document_positions = Positions(200, config.dims, _DOCUMENT_OFFSET if one_branch else 0, trained=False)
        self.kernels = KernelBank(CENTRES, [WIDTH] * len(CENTRES))
        self.scale = nn.Parameter(torch.ones(len(CENTRES)) if one_branch else torch.tensor([0.01]))
        self.dense = kernel_weights(self.kernels)
        self.dense_mean = None if one_branch else kernel_weights(self.kernels)
        self.combine = None if one_branch else nn.Linear(2, 1, bias=False)

    @classmethod
    def from_matchmaker(cls, state_dict: Mapping[str, Tensor], *, heads: int, mix: bool = True) -> TKModel:
        """Loads the parameters of matchmaker's ``ecai20_tk.py``, ``tk_native.py`` or ``tk.py``.

        Args:
            state_dict: Its ``state_dict()``; vectors are not part of it. The form is read from its keys.
            heads: Attention heads, which the parameters do not tell.
            mix: The setting ``tk_mix_hybrid_context`` of ``ecai20_tk``.
        """
        state = {name: torch.as_tensor(value) for name, value in state_dict.items()}
        model = cls(_config_of(state, heads, mix))
        model.contextualizer.load_matchmaker(state)
        with torch.no_grad():
            if model.combine is None:
                for own, theirs in ((model.query_positions, "q"), (model.document_positions, "d")):
                    rows = state[f"positional_features_{theirs}"][0][: len(own.table)]  # the others go on alike
                    own.table[: len(rows)] = rows
                model.scale.copy_(state["kernel_alpha_scaler"].flatten())
                model.dense.weight.copy_(state["kernel_bin_weights.weight"])
            else:
                model.scale.copy_(state["nn_scaler"])
                model.dense.weight.copy_(state["dense.weight"])
                model.dense_mean.weight.copy_(state["dense_mean.weight"])
                model.combine.weight.copy_(state["dense_comb.weight"])
        return model.eval()

    def contextualize_query(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """See :meth:`KernelModel.contextualize_query`."""
        rows = torch.arange(vectors.shape[1], device=vectors.device).expand(len(vectors), -1)
        return self.contextualizer(vectors, self.query_positions(rows), mask)

    def contextualize_windows(self, vectors: Tensor, rows: Tensor, mask: Tensor | None, kept: slice) -> Tensor:
        """See :meth:`KernelModel.contextualize_windows`."""
        return self.contextualizer(vectors, self.document_positions(rows), mask, kept)

    def interact(self, queries: Queries, documents: Tensor, mask: Tensor) -> Tensor:
        """Scores of pairs; see :meth:`KernelModel.interact`."""
        return self._score(self.kernels.sums(self._cosine(queries, documents, mask)), queries, mask)

    def evidence(self, queries: Queries, documents: Tensor, mask: Tensor) -> Evidence:
        """What the score loses without a region's matches; see :func:`occlusion_evidence`."""
        activations = self.kernels(self._cosine(queries, documents, mask))
        return occlusion_evidence(activations, mask, lambda sums: self._score(sums, queries, mask))

    def _cosine(self, queries: Queries, documents: Tensor, mask: Tensor) -> Tensor:
        return cosine_matrix(self.unit_vectors(queries.vectors), documents, mask)

    def _score(self, sums: Tensor, queries: Queries, mask: Tensor) -> Tensor:
        if self.combine is None:
            return self.dense(log_pool(sums * self.scale, queries.mask)).squeeze(-1)
        logs = log_pool(sums, queries.mask) / math.log(2)
        means = (sums * queries.mask[..., None]).sum(1) / (mask.sum(1, keepdim=True) + 1)
        branches = [self.dense(logs * self.scale), self.dense_mean(means * self.scale)]
        return self.combine(torch.cat(branches, dim=-1)).squeeze(-1)


def _config_of(state: Mapping[str, Tensor], heads: int, mix: bool) -> TKConfig:
    if "stacked_att.layer_norm_0.gamma" in state:
        joint, dims = state["stacked_att.self_attention_0._combined_projection.weight"].shape
        layers = sum(name.endswith("_output_projection.weight") for name in state)
        hidden = len(state["stacked_att.feedforward_0._linear_layers.0.weight"])
        return TKConfig(dims, heads=heads, layers=layers, feedforward=hidden, form="stacked", projection=joint // 3)
    hidden, dims = state["contextualizer.layers.0.linear1.weight"].shape
    layers = sum(name.endswith("out_proj.weight") for name in state)
    form = "log" if "kernel_bin_weights.weight" in state else "log2_mean"
    return TKConfig(dims, heads=heads, layers=layers, feedforward=hidden, form=form, mix=mix)
