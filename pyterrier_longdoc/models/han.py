"""HAN: hierarchical attention networks as a dual encoder (Yang et al., NAACL 2016; a baseline of the SMITH paper).

A bidirectional GRU reads the words of each sentence, attention sums its states into a sentence vector; another one does
the same with the sentence vectors of a document. How many such floors a tower has is its depth, so SMASH is made of the
same towers. The sequences of all documents of a floor form one pool, sorted by length and packed: no padding is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.backends import cudnn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from pyterrier_longdoc.checks import PlainSettings, check_whole
from pyterrier_longdoc.models.dual_encoder import DualEncoderModel, unit
from pyterrier_longdoc.pooling import Budget, Pool, pooled
from pyterrier_longdoc.text.sentences import PARAGRAPH, SENTENCE, Structured
from pyterrier_longdoc.windows import Ragged


@dataclass(frozen=True)
class HANConfig(PlainSettings):
    """Settings of :class:`HANModel`.

    Attributes:
        dims: Length of the token vectors.
        vocabulary: Rows of the table of token vectors.
        hidden: States of a GRU in each direction (50 in the paper).

    Raises:
        ValueError: If one is under 1.
    """

    dims: int
    vocabulary: int
    hidden: int = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in vars(self).items():
            check_whole(name, value)


#: Gives the vectors of the items with some numbers: of tokens, or of what a floor made of them.
Rows = Callable[[Tensor], Tensor]


class Parts(NamedTuple):
    """What the parts on the highest floor of a tower add to the vectors of their documents.

    Attributes:
        states: State of each part times its attention; those of a document sum up to its vector, ``[parts, 2h]``.
        document: The document of each part, int64 ``[parts]``.
        tokens: First and past-last token of each part in its document, int64 ``[parts, 2]``.
    """

    states: Tensor
    document: np.ndarray
    tokens: np.ndarray


class HANModel(DualEncoderModel):
    """HAN over token ids.

    Args:
        config: See :class:`HANConfig`.
    """

    config_class = HANConfig
    #: Depths of the towers whose vectors, one behind the other, make the vector of a document.
    depths: ClassVar[tuple[int, ...]] = (2,)

    def __init__(self, config: HANConfig) -> None:
        super().__init__()
        self.config = config
        self.vectors = nn.Embedding(config.vocabulary, config.dims)
        self.towers = nn.ModuleList(Tower(config.dims, config.hidden, depth) for depth in self.depths)

    @property
    def dims(self) -> int:
        """Length of a document's vector."""
        return 2 * self.config.hidden * len(self.depths)

    def representation_parameters(self) -> list[nn.Parameter]:
        """The token vectors, which exist before any training."""
        return [self.vectors.weight]

    def encode_documents(self, documents: Structured, budget: Budget) -> Tensor:
        """Unit vectors of documents, float32 ``[n, dims]``; see :class:`DualEncoderModel`.

        Args:
            documents: Token ids with their sentences and paragraphs; an empty document is read as one token 0.
            budget: Tokens of a forward pass.
        """
        documents = _without_empty(documents)
        rows = self._token_vectors(documents)
        return unit(torch.cat([tower(rows, documents, budget) for tower in self.towers], dim=1))

    def parts(self, documents: Structured, budget: Budget) -> Iterator[Parts]:
        """What each document's vector is the sum of, before it is scaled to length 1, tower by tower."""
        documents = _without_empty(documents)
        for tower in self.towers:
            yield tower.parts(self._token_vectors(documents), documents, budget)

    def _token_vectors(self, documents: Ragged) -> Rows:
        tokens = torch.from_numpy(documents.values.astype(np.int64)).to(self.device)
        return lambda index: self.vectors(tokens[index])


class Tower(nn.Module):
    """Floors of attentive GRUs: over words; words and sentences; or words, sentences and paragraphs.

    Args:
        dims: Length of the token vectors.
        hidden: States of a GRU in each direction.
        depth: Number of floors, 1 to 3.
    """

    def __init__(self, dims: int, hidden: int, depth: int) -> None:
        super().__init__()
        self.floors = nn.ModuleList(AttentiveGRU(2 * hidden if floor else dims, hidden) for floor in range(depth))

    def forward(self, rows: Rows, documents: Structured, budget: Budget) -> Tensor:
        """The vector of each document, ``[n, 2 * hidden]``."""
        for floor, (lower, upper) in zip(self.floors, self._borders(documents), strict=True):
            vectors = floor(rows, np.searchsorted(lower, upper), budget)
            rows = vectors.__getitem__
        return vectors

    def parts(self, rows: Rows, documents: Structured, budget: Budget) -> Parts:
        """What the vector of each document is the sum of."""
        *below, (lower, upper) = self._borders(documents)
        for floor, borders in zip(self.floors, below, strict=False):
            rows = floor(rows, np.searchsorted(*borders), budget).__getitem__
        spans = np.searchsorted(lower, upper)
        document = np.repeat(np.arange(len(documents)), np.diff(spans))
        tokens = np.stack([lower[:-1], lower[1:]], axis=1) - documents.offsets[document][:, None]
        return Parts(self.floors[-1].weighted(rows, spans, budget), document, tokens)

    def _borders(self, documents: Structured) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each floor, where in the flat tokens its items begin, and where its sequences do (and the end of all)."""
        end = len(documents.values)
        inner = [np.append(np.flatnonzero(documents.begins >= level), end) for level in (SENTENCE, PARAGRAPH)]
        borders = [np.arange(end + 1), *inner[: len(self.floors) - 1], documents.offsets]
        return list(zip(borders[:-1], borders[1:], strict=True))


class AttentiveGRU(nn.Module):
    """Reads sequences of vectors in both directions and sums their states, weighted by attention.

    The weight of state h is the softmax over its sequence of u·tanh(W h + b) (HAN, eq. 5-7). Always in float32.

    Args:
        inputs: Length of the vectors that are read.
        hidden: States in each direction.
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.gru = nn.GRU(inputs, hidden, batch_first=True, bidirectional=True)
        self.attention = nn.Linear(2 * hidden, 2 * hidden)
        self.context = nn.Linear(2 * hidden, 1, bias=False)

    def forward(self, rows: Rows, spans: np.ndarray, budget: Budget) -> Tensor:
        """A vector for each sequence.

        Args:
            rows: Gives the vectors of items.
            spans: Where each sequence begins among all items, and the end of the last one; none is empty, ``[n + 1]``.
            budget: Items of a forward pass.

        Returns:
            float32 ``[n, 2 * hidden]``.
        """
        return pooled(np.diff(spans), budget, lambda batch: self._weighted(rows, spans, batch)[0].sum(1))

    def weighted(self, rows: Rows, spans: np.ndarray, budget: Budget) -> Tensor:
        """The weighted state of each item, ``[spans[-1], 2 * hidden]``; arguments as in :meth:`forward`."""
        found = torch.empty(int(spans[-1]), 2 * self.gru.hidden_size, device=self.context.weight.device)
        for _, (states, places) in Pool(np.diff(spans), budget).run(lambda batch: self._weighted(rows, spans, batch)):
            found[places[places >= 0]] = states[places >= 0]
        return found

    def _weighted(self, rows: Rows, spans: np.ndarray, batch: np.ndarray) -> tuple[Tensor, Tensor]:
        """Weighted states ``[b, longest, 2 * hidden]``, zeros behind a sequence's end; and whose they are, or -1."""
        device = self.context.weight.device
        lengths = np.diff(spans)[batch]
        columns = np.arange(lengths.max())
        places = np.where(columns < lengths[:, None], spans[:-1][batch][:, None] + columns, -1)
        places = torch.from_numpy(places).to(device)
        # cuDNN's GRU has gradients in training mode alone
        without = torch.is_grad_enabled() and not self.training
        with torch.autocast(device.type, enabled=False), cudnn.flags() if without else nullcontext():
            vectors = rows(places.clamp(min=0)).float()
            packed = pack_padded_sequence(vectors, torch.from_numpy(lengths), batch_first=True)
            states = pad_packed_sequence(self.gru(packed)[0], batch_first=True)[0]
            scores = self.context(torch.tanh(self.attention(states))).squeeze(2)
            return states * scores.masked_fill(places < 0, -torch.inf).softmax(1)[..., None], places


def _without_empty(documents: Structured) -> Structured:
    """The documents, with one token 0 in place of an empty one.

    Raises:
        TypeError: If they do not know their sentences.
    """
    if not isinstance(documents, Structured):
        raise TypeError(f"documents must be tokenised by sentences (Structured), got {type(documents).__name__}")
    empty = documents.offsets[:-1][documents.lengths == 0]
    offsets = np.concatenate([[0], np.cumsum(np.maximum(documents.lengths, 1))])
    values, begins = np.insert(documents.values, empty, 0), np.insert(documents.begins, empty, PARAGRAPH)
    return Structured(values, offsets, begins)
