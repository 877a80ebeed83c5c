"""Two-stage pooling of TKL: a topography of relevance over the document, and its highest separate peaks (eq. 7).

A document is scored as if it were padded far beyond its end: regions that are partly filled exist, and where a document
has fewer separate regions than peaks are wanted, the rest is read off the empty plain behind it, where all scores are
zero. So a score is a function of the document alone, never of the batch that it happened to be padded in.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

#: Peaks are read with this many neighbours on each side.
NEIGHBOURS = 2
_VIRTUAL, _TAKEN = -1e30, -2e30


def region_sums(activation: Tensor, size: int, stride: int) -> Tensor:
    """Sums over ``size`` tokens at every ``stride``-th token.

    Args:
        activation: ``[pairs, n, tokens]``, with :func:`overhang` more than the document has, all 0.
        size: Tokens of a region.
        stride: Tokens from one region to the next.

    Returns:
        ``[pairs, n, regions]``.
    """
    if size % stride:
        return nn.functional.avg_pool2d(activation, (1, size), (1, stride), divisor_override=1)
    blocks = sum(activation[..., first::stride] for first in range(stride))
    return _sliding_sums(blocks, size // stride)


def _sliding_sums(blocks: Tensor, count: int) -> Tensor:
    """Sums of ``count`` neighbours, from sums of 1, 2, 4 ... of them: on a CPU ten times as fast as pooling.

    Only sums, no differences of running totals: small values next to large ones keep their precision for the logarithm.
    """
    regions, total, start, width = blocks.shape[-1] - count + 1, None, 0, 1
    while True:
        if count & width:
            part = blocks[..., start : start + regions]
            total, start = part if total is None else total + part, start + width
        if 2 * width > count:
            return total
        blocks, width = blocks[..., :-width] + blocks[..., width:], 2 * width


def overhang(tokens: int, size: int, stride: int) -> int:
    """Tokens that have to follow ``tokens`` others, so that a region starts at every ``stride``-th of these."""
    return max(0, (-(-tokens // stride) - 1) * stride + size - tokens)


def region_counts(lengths: Tensor, regions: int, size: int, stride: int) -> Tensor:
    """Real tokens of each region, ``[pairs, regions]``, from the documents' lengths ``[pairs]``."""
    starts = torch.arange(regions, device=lengths.device) * stride
    return (lengths[:, None] - starts).clamp(0, size)


def top_local_max(topography: Tensor, counts: Tensor, peaks: int, distance: int) -> tuple[Tensor, Tensor]:
    """Picks the highest peaks that do not overlap, and reads them with their neighbours.

    Args:
        topography: Score of each region, 0 where it is empty, ``[pairs, r]``.
        counts: Real tokens of each region, ``[pairs, r]``.
        peaks: How many to pick.
        distance: Peaks are at least this many regions apart.

    Returns:
        ``(index, values)``: the regions picked, highest first, int64 ``[pairs, peaks]``, and the scores in the order
        peaks, left neighbours, right neighbours, second left, second right, ``[pairs, 5 * peaks]``.
    """
    room = peaks * distance + NEIGHBOURS
    plain = nn.functional.pad(topography, (0, room))
    keys = plain.detach().masked_fill(nn.functional.pad(counts, (0, room)) == 0, _VIRTUAL)
    columns = torch.arange(keys.shape[1], device=keys.device)
    picked = []
    for _ in range(peaks):
        highest = keys.amax(1, keepdim=True)
        found = (keys == highest) | keys.isnan()  # NaN equals nothing; it has to reach the score, where it is reported
        best = torch.where(found, columns, keys.shape[1]).amin(1)  # the first of equals, on every device
        picked.append(best)
        keys = keys.masked_fill((columns - best[:, None]).abs() < distance, _TAKEN)
    index = torch.stack(picked, dim=1)
    shifts = [0] + [side * step for step in range(1, NEIGHBOURS + 1) for side in (-1, 1)]
    around = torch.cat([index + shift for shift in shifts], dim=1).clamp(min=0)
    return index, plain.gather(1, around)
