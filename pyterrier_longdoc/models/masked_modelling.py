"""SMITH's pre-training: masked words, as in BERT, and masked sentence blocks (Yang et al., CIKM 2020, section 4.2).

Some words are hidden from the sentence level Transformer, which is to name them. And of each document some blocks are
replaced by one learned vector, before the document level Transformer sees them: from the blocks around it, each is to
be told from all the other blocks that were masked in the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from pyterrier_longdoc.models.encoder import encode_sequences
from pyterrier_longdoc.pooling import Budget
from pyterrier_longdoc.windows import Ragged

if TYPE_CHECKING:
    from pyterrier_longdoc.models.smith import SMITHModel

#: Words whose probabilities over the whole vocabulary are in memory at once.
_WORDS_AT_ONCE = 512


class MaskedHeads(nn.Module):
    """What only pre-training uses: the vector of masked blocks, and what predicts words and blocks.

    Args:
        width: Width of the model's states.
        vocabulary: Number of words.
        word_width: Width of their vectors, in most encoders that of the states.
        activation: The model's GELU.
    """

    def __init__(
        self, width: int, vocabulary: int, word_width: int, activation: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.block_mask = nn.Parameter(torch.empty(width).normal_(std=0.02))
        self.words, self.blocks = _Transform(width, word_width, activation), _Transform(width, width, activation)
        self.word_bias = nn.Parameter(torch.zeros(vocabulary))

    def word_logits(self, states: Tensor, table: Tensor) -> Tensor:
        """Logits ``[n, vocabulary]`` of masked words from their states and the table of word vectors."""
        return functional.linear(self.words(states), table, self.word_bias)


class _Transform(nn.Module):
    """Dense, GELU, layer norm, as before BERT's word predictions."""

    def __init__(self, width: int, output: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.dense, self.norm = nn.Linear(width, output), nn.LayerNorm(output, eps=1e-12)
        self.activation = activation
        nn.init.normal_(self.dense.weight, std=0.02)
        nn.init.zeros_(self.dense.bias)

    def forward(self, states: Tensor) -> Tensor:
        """``[n, width]`` to ``[n, output]``."""
        return self.norm(self.activation(self.dense(states)))


class Masked(NamedTuple):
    """What is hidden of some documents.

    Attributes:
        tokens: Places of masked words in ``documents.values``, ascending, ``[w]``.
        words: What stood there, ``[w]``.
        blocks: Numbers of masked blocks, counted over all documents, ``[k]``.
    """

    tokens: np.ndarray
    words: np.ndarray
    blocks: np.ndarray


class Predictions(NamedTuple):
    """How well what was hidden is predicted; all float32.

    Attributes:
        word_losses: Cross entropy of each masked word, ``[w]``.
        words_right: 1 where the right word is the most probable one, ``[w]``.
        block_losses: Cross entropy of each masked block among all of them, ``[k]`` (eq. 5).
        blocks_right: 1 where the right block is the most probable one, ``[k]``.
    """

    word_losses: Tensor
    words_right: Tensor
    block_losses: Tensor
    blocks_right: Tensor


class MaskedModelling(nn.Module):
    """A model with its masked heads, as the trainer calls it.

    Args:
        model: The model; it needs its masked heads.
    """

    def __init__(self, model: SMITHModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, documents: Ragged, masked: Masked, budget: Budget) -> Predictions:
        """Predicts what was hidden.

        Args:
            documents: Token ids of documents in which words are masked already.
            masked: What was hidden; no blocks at all leave the document level out.
            budget: Tokens of a forward pass.
        """
        windows = self.model.blocks(documents)
        sequences = self.model.config.template.windows(documents, windows)
        longest = int(sequences.lengths.max())

        def states(output, items: np.ndarray) -> Tensor:  # noqa: ANN001 (an output of transformers)
            hidden = output.last_hidden_state
            return functional.pad(hidden, (0, 0, 0, longest - hidden.shape[1]))

        hidden = encode_sequences(self.model.encoder, sequences, budget, states)
        index, real = windows.flat_index(documents)
        place = np.zeros(len(documents.values), np.int64)
        columns = np.arange(index.shape[1]) + sequences.starts[:, :1]
        place[index[real]] = (np.arange(len(windows))[:, None] * longest + columns)[real]
        words = self.predict_words(hidden.flatten(0, 1)[self._tensor(place[masked.tokens])], self._tensor(masked.words))
        rows = windows.by_document(len(documents))
        vectors = self.model.sentence_vectors(self.model.pool_states(hidden, sequences.lengths))
        blocks = self.predict_blocks(vectors, rows, masked.blocks, budget)
        return Predictions(*words, *blocks)

    def predict_words(self, states: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        """Losses and hits ``[w]`` of masked words from their states ``[w, width]``.

        Their probabilities, 30,000 a word, are not kept for the backward pass but computed anew.
        """
        table = self.model.encoder.get_input_embeddings().weight
        parts = [
            checkpoint(self._predict_some_words, part, truth, table, use_reentrant=False)
            for part, truth in zip(states.split(_WORDS_AT_ONCE), words.split(_WORDS_AT_ONCE), strict=True)
        ]
        losses, right = zip(*parts, strict=True)
        return torch.cat(losses), torch.cat(right)

    def _predict_some_words(self, states: Tensor, words: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.model.masked_heads.word_logits(states, table).float()
        return functional.cross_entropy(logits, words, reduction="none"), (logits.argmax(1) == words).float()

    def predict_blocks(
        self, vectors: Tensor, rows: Ragged, masked: np.ndarray, budget: Budget
    ) -> tuple[Tensor, Tensor]:
        """Losses and hits ``[k]`` of masked blocks among each other (eq. 4 and 5).

        Args:
            vectors: Vectors of all blocks, ``[blocks, width]``.
            rows: Rows of the blocks of each document.
            masked: Rows of the masked ones, ``[k]``.
            budget: Tokens of a forward pass.
        """
        if not len(masked):
            return vectors.new_zeros(0), vectors.new_zeros(0)
        row, truth = self._tensor(masked), torch.arange(len(masked), device=vectors.device)
        states = self.model.document_level.contextualize(self.model.mask_blocks(vectors, masked), rows, budget)
        document = np.searchsorted(rows.offsets, masked, side="right") - 1
        chosen = states[self._tensor(document), self._tensor(masked - rows.offsets[document])]
        similarity = self.model.masked_heads.blocks(chosen).float() @ vectors[row].float().T
        return functional.cross_entropy(similarity, truth, reduction="none"), (similarity.argmax(1) == truth).float()

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.asarray(array, np.int64)).to(self.model.device)
