"""How much is the next match of a term worth? The saturation functions of TKL (eq. 4-5 and Table 2 of its paper).

Each maps the soft frequency K of a query term in a region to a value. The learned ones draw a curve a·K^(1/b) - c for
each term, with a, b, c linear in [e ; number of tokens in the region]; with b = 100 at the start the curve is a
logarithm in all but name, since 100·(K^.01 - 1) ≈ ln K. They differ in e:

* ``salience``: ReLU of one learned scalar per vocabulary term, which starts as its IDF (the paper's eq. 5);
* ``idf``: ReLU of the fixed IDF;
* ``embedding``: a layer norm over [w·q̂ ; count], without ReLU (the published code; for its checkpoints);
* ``linear``: a·K + b with e as in ``idf``, and ``log``: ln K. Both are the paper's ablations.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

KINDS = ("salience", "embedding", "idf", "log", "linear")


class Saturation(nn.Module):
    """One of the functions above.

    Args:
        kind: Its name.
        dims: Width of the contextualised query vectors (for ``embedding``).
        kernels: Number of kernels (for ``log``).

    Raises:
        ValueError: If ``kind`` is unknown.
    """

    def __init__(self, kind: str, dims: int, kernels: int) -> None:
        super().__init__()
        if kind not in KINDS:
            raise ValueError(f"saturation must be one of {KINDS}, got {kind!r}")
        self.kind = kind
        if kind == "log":
            self.factor = nn.Parameter(torch.ones(kernels))
            return
        self.curves = nn.Linear(2, 2 if kind == "linear" else 3)
        nn.init.uniform_(self.curves.weight, -0.014, 0.014)
        nn.init.constant_(self.curves.bias, 100.0)
        if kind in ("salience", "idf"):  # a and c grow with e alike: the curve starts as (1 + e) ln K
            with torch.no_grad():
                self.curves.weight[0::2, 0] += 100.0
        if kind == "embedding":
            self.reduce = nn.Linear(dims, 1, bias=False)
            self.norm = nn.LayerNorm(2)

    @property
    def needs_salience(self) -> bool:
        """Whether query terms need a weight (:attr:`~pyterrier_longdoc.models.kernel_data.Queries.salience`)."""
        return self.kind in ("salience", "idf", "linear")

    def load_matchmaker(self, state: Mapping[str, Tensor]) -> None:
        """Takes the saturation of a matchmaker TKL checkpoint."""
        if self.kind == "log":
            self.factor.data = state["kernel_mult"][0].flatten().clone()
            return
        layers = ("saturation_linear", "saturation_linear2", "saturation_linear3")[: len(self.curves.bias)]
        self.curves.weight.data = torch.cat([state[f"{layer}.weight"] for layer in layers])
        self.curves.bias.data = torch.cat([state[f"{layer}.bias"] for layer in layers])
        if self.kind == "embedding":
            self.reduce.weight.data = state["sat_emb_reduce1.weight"].clone()
            self.norm.load_state_dict({name: state[f"sat_normer.{name}"] for name in ("weight", "bias")})

    def curves_of(self, query: Tensor, mask: Tensor, salience: Tensor | None, counts: Tensor) -> tuple[Tensor, ...]:
        """The curve of each query term in each region; that of padding is 0 everywhere.

        Args:
            query: Contextualised query vectors, ``[pairs, n, d]``.
            mask: Real query tokens, bool ``[pairs, n]``.
            salience: Weight of each query term, ``[pairs, n]``.
            counts: Real tokens of each region, ``[pairs, r]``.

        Returns:
            What :meth:`forward` takes as ``curve``, each ``[pairs, n, r]`` (``log``: ``[pairs, n, 1]``).

        Raises:
            ValueError: If the function needs term weights and ``salience`` is ``None``.
        """
        real = mask[..., None].to(counts.dtype)
        if self.kind == "log":
            return (real,)
        if self.kind == "embedding":
            term = self.reduce(query.to(self.reduce.weight.dtype))
        elif salience is None:
            raise ValueError(f"saturation {self.kind!r} needs the weight (IDF) of each query term; none was given")
        else:
            term = salience.relu()[..., None]
        features = torch.stack(torch.broadcast_tensors(term, counts[:, None, :].to(term.dtype)), dim=-1)
        parts = self.curves(self.norm(features) if self.kind == "embedding" else features).unbind(-1)
        if self.kind == "linear":
            return tuple(part * real for part in parts)
        height, root, shift = parts
        return height * real, 1 / root, shift * real

    def forward(self, frequency: Tensor, curve: tuple[Tensor, ...], kernel: int) -> Tensor:
        """Saturates the frequencies under one kernel.

        Args:
            frequency: Sums of activations, ``[pairs, n, r]``.
            curve: From :meth:`curves_of`.
            kernel: Number of the kernel.

        Returns:
            ``[pairs, n, r]``, 0 for padding.
        """
        if self.kind == "linear":
            slope, shift = curve
            return slope * frequency + shift
        if self.kind == "log":
            return (frequency * self.factor[kernel]).clamp(min=1e-10).log() * curve[0]
        height, power, shift = curve
        return height * frequency.clamp(min=1e-10).pow(power) - shift
