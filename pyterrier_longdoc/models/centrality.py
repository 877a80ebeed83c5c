"""How much each token of a document matters to a query, seen by a frozen encoder (Socialformer, eq. 6-7).

All tokens are weighed by their likeness to the query; the most alike, as many as the encoder reads at once, then by
how much the encoder's [CLS] attends to them. One document at a time and in full precision: what is drawn from these
weights must not depend on the company a document is computed in.
"""

from __future__ import annotations

import copy
import warnings

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from pyterrier_longdoc.graph.weights import scaled
from pyterrier_longdoc.models.encoder import max_positions
from pyterrier_longdoc.models.lockstep import embed, layers_of
from pyterrier_longdoc.text.template import Frame, Sequences
from pyterrier_longdoc.windows import Ragged

#: Tokens that the encoder reads, query and special tokens included.
_READ = 512
#: Weights are rounded to so many steps: no noise of floating point decides whether two tokens are connected.
_STEPS = 2**12 - 1


class Centrality(nn.Module):
    """Dynamic centrality.

    Args:
        encoder: The encoder; a copy of it is kept, which training does not change.
        frame: How it frames a query and a text.
        attention: Whether to look at attention at all; without, likeness alone counts, which costs next to nothing.
    """

    def __init__(self, encoder: PreTrainedModel, frame: Frame, *, attention: bool = True) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(encoder) if attention else None
        self.vectors = None if attention else copy.deepcopy(encoder.get_input_embeddings())
        self.frame = frame
        self.requires_grad_(False)
        self.eval()

    def train(self, mode: bool = True) -> Centrality:
        """Stays as it is: frozen, without dropout."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, query: np.ndarray, document: np.ndarray) -> np.ndarray:
        """Weights of a document's tokens.

        Args:
            query: Token ids of the query, ``[m]``.
            document: Token ids of the document, ``[n]``.

        Returns:
            float32 ``[n]``, multiples of 1/4095 in [0, 1]; zeros if the query has no tokens.
        """
        if not len(query) or not len(document):
            return np.zeros(len(document), np.float32)
        with torch.autocast(next(self.parameters()).device.type, enabled=False):
            weights = self._likeness(query, document)
            if self.encoder is not None:
                weights = self._attended(query, document, weights)
        if not np.isfinite(weights).all():
            warnings.warn(
                "the frozen encoder of dynamic centrality gives weights that are not finite; they are read as 0",
                RuntimeWarning, stacklevel=2,
            )
            weights = np.nan_to_num(weights, posinf=0.0, neginf=0.0)
        return (np.round(scaled(weights) * _STEPS) / _STEPS).astype(np.float32)

    def _likeness(self, query: np.ndarray, document: np.ndarray) -> np.ndarray:
        vectors = self.vectors if self.encoder is None else self.encoder.get_input_embeddings()
        mean = vectors(_ids(query, vectors)).float().mean(0, keepdim=True)
        likeness = functional.cosine_similarity(vectors(_ids(document, vectors)).float(), mean)
        return likeness.double().cpu().numpy()

    def _attended(self, query: np.ndarray, document: np.ndarray, likeness: np.ndarray) -> np.ndarray:
        """The likeness, shared out anew among the most alike tokens in proportion to attention."""
        room = min(_READ, max_positions(self.encoder) or _READ) - len(query) - self.frame.extra
        chosen = np.sort(np.argsort(-likeness, kind="stable")[: max(0, room)])
        total = likeness[chosen].sum()
        if total <= 0:  # nothing to share out
            return likeness
        texts = [Ragged.from_lists([text]) for text in (query, document[chosen])]
        sequence = Sequences.framed(self.frame, texts, pad=0)
        start = sequence.starts[0, 1]
        attention = self._first_token_attention(sequence)[start : start + len(chosen)]
        weights = likeness.copy()
        weights[chosen] = attention * (total / attention.sum())
        return weights

    def _first_token_attention(self, sequence: Sequences) -> np.ndarray:
        """How much the first token attends to each in the last layer, summed over heads, ``[tokens]``."""
        ids, types, _ = (torch.from_numpy(table).to(self.encoder.device) for table in sequence.table(np.array([0])))
        hidden = embed(self.encoder, ids, types)
        *layers, last = layers_of(self.encoder)
        for layer in layers:
            hidden = layer(hidden)
        attention = last.attention.self
        heads = attention.num_attention_heads
        query = attention.query(hidden[0, :1]).unflatten(-1, (heads, -1))
        key = attention.key(hidden[0]).unflatten(-1, (heads, -1))
        scores = torch.einsum("qhd,khd->hk", query, key) * query.shape[-1] ** -0.5
        return scores.softmax(-1).sum(0).double().cpu().numpy()


def _ids(tokens: np.ndarray, module: nn.Module) -> Tensor:
    return torch.from_numpy(tokens.astype(np.int64)).to(next(module.parameters()).device)
