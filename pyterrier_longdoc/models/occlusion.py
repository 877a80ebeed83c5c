"""Explaining models that pool a whole document at once: what would the score be without this part's matches?"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from pyterrier_longdoc.models.kernel_data import Evidence

#: Tokens of a part.
REGION = 30


def occlusion_evidence(
    activations: Iterable[Tensor], mask: Tensor, score: Callable[[Tensor], Tensor]
) -> Evidence:
    """Weighs each stretch of 30 tokens by the score that is lost when its matches are taken away.

    Args:
        activations: Of each kernel, ``[pairs, query tokens, document tokens]``.
        mask: Real document tokens, bool ``[pairs, document tokens]``.
        score: Scores ``[pairs]`` from kernel sums ``[pairs, query tokens, kernels]``.

    Returns:
        One region a stretch, in the order of the text.
    """
    stacked = torch.stack(list(activations), dim=-1)
    whole = stacked.sum(2)
    full = score(whole)
    weights = [full - score((whole - part.sum(2)).clamp(min=0)) for part in stacked.split(REGION, dim=2)]
    start = torch.arange(0, mask.shape[1], REGION, device=mask.device).expand(len(mask), -1)
    lengths = mask.sum(1, keepdim=True)
    end = torch.minimum(start + REGION, lengths)
    return Evidence(torch.where(start < lengths, start, -1), end, torch.stack(weights, dim=1))
