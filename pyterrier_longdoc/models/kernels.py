"""Kernel pooling: soft term matches, counted in bins of similarity (Xiong et al., SIGIR 2017).

One bank of Gaussian kernels, one cosine and one masking rule serve KNRM, Conv-KNRM, TK and TKL. All of it runs in
float32, whatever the precision of the encoder: a kernel of width 0.001 means nothing in bfloat16.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

#: Kernel centres and width of TK and TKL.
CENTRES = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9)
WIDTH = 0.1
#: A similarity so far from every centre that all kernels are exactly 0 there: the mark of padding.
_FAR = 1e4


class KernelBank(nn.Module):
    """Gaussian kernels over cosine similarities (TKL paper, eq. 2).

    Args:
        centres: mu of each kernel, ``[k]``.
        widths: sigma of each kernel, ``[k]``.

    Raises:
        ValueError: If a width is not positive or the numbers of centres and widths differ.
    """

    def __init__(self, centres: Sequence[float], widths: Sequence[float]) -> None:
        super().__init__()
        if len(widths) != len(centres) or not all(width > 0 for width in widths):
            raise ValueError(f"kernels need one positive width for each of {len(centres)} centres, got {list(widths)}")
        self.register_buffer("mu", torch.tensor(list(centres), dtype=torch.float32))
        self.register_buffer("sigma", torch.tensor(list(widths), dtype=torch.float32))

    def forward(self, cosine: Tensor) -> Iterator[Tensor]:
        """The activations of one kernel after the other, each of the shape of ``cosine``.

        Kernel by kernel, because one of them stays in a CPU's cache and all of them do not.
        """
        factors = (-0.5 / self.sigma**2).tolist()
        for centre, factor in zip(self.mu.tolist(), factors, strict=True):
            yield (cosine - centre).square().mul(factor).exp()

    def __len__(self) -> int:
        return len(self.mu)

    def sums(self, cosine: Tensor) -> Tensor:
        """Soft term frequencies: activations summed over the document, ``[pairs, query tokens, kernels]``."""
        return torch.stack([activation.sum(-1) for activation in self(cosine)], dim=-1)


def kernel_weights(kernels: KernelBank, copies: int = 1) -> nn.Linear:
    """A linear layer over kernels that starts with weights .014 mu, for each of ``copies`` groups of them.

    So close matches count for a document from the first step, and distant ones against it. The published code starts
    from random weights of that size, half of which have the wrong sign.
    """
    layer = nn.Linear(copies * len(kernels), 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(0.014 * kernels.mu.repeat(copies))
    return layer


def unit(vectors: Tensor) -> Tensor:
    """Vectors of length 1, in float32 at least; the zero vector stays zero."""
    vectors = vectors if vectors.dtype == torch.float64 else vectors.float()
    return vectors / (vectors.norm(dim=-1, keepdim=True) + 1e-13)


def cosine_matrix(query: Tensor, document: Tensor, document_mask: Tensor, more: int = 0) -> Tensor:
    """Cosine similarities of unit vectors; padding is put out of reach of every kernel.

    Args:
        query: ``[pairs, query tokens, d]``.
        document: ``[pairs, document tokens, d]``.
        document_mask: Real tokens, bool ``[pairs, document tokens]``.
        more: Columns of padding to add behind the document.

    Returns:
        ``[pairs, query tokens, document tokens + more]``.
    """
    cosine = torch.bmm(query, document.transpose(1, 2)).masked_fill_(~document_mask[:, None, :], _FAR)
    return nn.functional.pad(cosine, (0, more), value=_FAR)


def log_pool(kernel_sums: Tensor, query_mask: Tensor) -> Tensor:
    """The fixed saturation of KNRM and TK: ln of kernel sums, added up over the real query tokens.

    Args:
        kernel_sums: ``[pairs, query tokens, kernels]``.
        query_mask: Bool ``[pairs, query tokens]``.

    Returns:
        ``[pairs, kernels]``.
    """
    return (kernel_sums.clamp(min=1e-10).log() * query_mask[..., None]).sum(1)
