"""Inter-circle interaction: the groups of a document hear of each other through their central states (eq. 10)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from pyterrier_longdoc.pooling import Budget, Pool


class Exchange(nn.Module):
    """c ← W[c ; c'], where c' is what a small Transformer layer makes of all central states c of a document.

    It starts by passing c with little of c', so that an encoder's pretrained states are not scrambled.

    Args:
        dims: Width of the states.
        heads: Attention heads of the layer.
        hidden: Width of its hidden layer.
    """

    def __init__(self, dims: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(dims, heads, hidden, dropout=0.1, batch_first=True)
        self.mix = nn.Linear(2 * dims, dims)
        with torch.no_grad():
            nn.init.normal_(self.mix.weight, std=0.02)
            self.mix.weight[:, :dims] += torch.eye(dims)
            self.mix.bias.zero_()

    def forward(self, central: Tensor, counts: np.ndarray, budget: Budget) -> Tensor:
        """States after the exchange.

        Args:
            central: ``[groups, d]``, documents one behind the other.
            counts: Groups of each document.
            budget: Groups of one pass.

        Returns:
            ``[groups, d]``.
        """
        parts, places = [], []
        for rows in rows_of_equal_counts(counts, budget):
            own = central[torch.from_numpy(rows).to(central.device)]
            parts.append(self.mix(torch.cat([own, self.layer(own)], dim=-1)).flatten(0, 1))
            places.append(rows.ravel())
        back = torch.from_numpy(np.argsort(np.concatenate(places))).to(central.device)
        return torch.cat(parts)[back]


def rows_of_equal_counts(counts: np.ndarray, budget: Budget) -> Iterator[np.ndarray]:
    """Numbers of the groups of documents that have equally many, ``[documents, groups]`` each: none is padded."""
    starts = np.cumsum(counts) - counts
    for batch, _ in Pool(counts, budget, kinds=counts).run(lambda batch: True):
        if counts[batch[0]]:
            yield starts[batch][:, None] + np.arange(counts[batch[0]])
