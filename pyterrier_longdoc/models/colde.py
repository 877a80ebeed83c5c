"""CoLDE: sections of chunks, compared at three levels (Jha, Rakesh, Chandrashekar, Samavedhi, Reddy, TKDD 2023).

A document is a few sections, a section is chunks of up to 512 tokens. BERT makes a vector of each chunk, knowing by two
more embeddings which section and chunk it reads. Then the chunks of a section look at those of the next section of the
same document, a BiLSTM reads what they saw, and a projection makes the section's vector. The document's vector lies
between those of its sections. No document ever looks at another one, so vectors can be kept in an index, and documents,
sections and chunks can be compared by their vectors, each level on its own.

The chunks of all documents of a call run through BERT as one pool. In training BERT can compute each batch of the pool
twice instead of keeping it in memory, so that the 200 documents of one contrastive step need little more than eight.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence
from transformers import PreTrainedModel

from pyterrier_longdoc.models.colde_settings import CoLDEConfig
from pyterrier_longdoc.models.dual_encoder import DualEncoderModel, unit
from pyterrier_longdoc.models.encoder import build_encoder, check_room, encode_sequences
from pyterrier_longdoc.models.match_bert import picker
from pyterrier_longdoc.pooling import Budget, pooled
from pyterrier_longdoc.text.sections import MAX_SECTIONS, Chunks, section_chunks
from pyterrier_longdoc.windows import Ragged, Windows


class SectionRows(NamedTuple):
    """Which chunks the sections of some documents consist of, sorted by document and number of the section.

    Attributes:
        rows: Rows of the chunks' vectors that each section consists of, at least one, ``s`` sections.
        following: The section that each one's chunks look at: the next one of its document, behind the last the first.
        document: The document that each belongs to, int64 ``[s]``.
        section: Its number there, int64 ``[s]``.
    """

    rows: Ragged
    following: np.ndarray
    document: np.ndarray
    section: np.ndarray

    @classmethod
    def of(cls, row: np.ndarray, document: np.ndarray, section: np.ndarray) -> SectionRows:
        """Groups chunks into sections.

        Args:
            row: Row of each chunk's vector, ``[c]``; those of a section in the order in which they are read.
            document: Its document, ``[c]``, from 0 without gaps.
            section: Number of its section, ``[c]``.
        """
        order = np.lexsort((section, document))  # stable
        key = document[order] * MAX_SECTIONS + section[order]
        keys, first = np.unique(key, return_index=True)
        owner = keys // MAX_SECTIONS
        opening = np.searchsorted(owner, owner)
        following = np.arange(1, len(keys) + 1)
        last = np.append(owner[1:] != owner[:-1], True)
        following[last] = opening[last]
        return cls(Ragged(row[order], np.append(first, len(order))), following, owner, keys % MAX_SECTIONS)


class Levels(NamedTuple):
    """Vectors of one document's parts.

    Attributes:
        document: Unit vector, ``[dims]``.
        sections: Unit vectors in the order of their numbers, ``[s, dims]``.
        numbers: Those numbers, int64 ``[s]``.
        chunks: What the BiLSTM reads of each chunk, ``[c, width]``.
        attention: How much each chunk (row) looks at each other one, mean over heads, ``[c, c]``; ``None`` without
            attention. The weights of a row sum up to 1.
        windows: The tokens of each chunk.
        section_of: Row of ``sections`` that each chunk belongs to, int64 ``[c]``.
    """

    document: Tensor
    sections: Tensor
    numbers: np.ndarray
    chunks: Tensor
    attention: Tensor | None
    windows: Windows
    section_of: np.ndarray


class CoLDEModel(DualEncoderModel):
    """Encodes documents, their sections and their chunks; see the module's text.

    The embeddings of sections and chunks start at 0, so that a pretrained encoder begins as what it was.

    Args:
        config: The settings.
        encoder: The chunks' Transformer, if it exists already; otherwise one with random weights is built.

    Raises:
        ValueError: If the settings do not fit together.
    """

    config_class = CoLDEConfig

    def __init__(self, config: CoLDEConfig, encoder: PreTrainedModel | None = None) -> None:
        super().__init__()
        self.config = config
        self.dims = config.dims
        self.encoder = build_encoder(config.encoder, config.kind) if encoder is None else encoder
        check_room(self.encoder, config.template.single, 0, config.room, "chunk_tokens")
        width = self.encoder.config.hidden_size
        if config.augmentation:
            embedded = self.encoder.get_input_embeddings().embedding_dim
            self.section_embeddings = nn.Embedding(MAX_SECTIONS, embedded)
            self.chunk_embeddings = nn.Embedding(config.chunk_numbers, embedded)
            for table in (self.section_embeddings, self.chunk_embeddings):
                nn.init.zeros_(table.weight)
        if config.lstm:
            if width % config.heads:
                raise ValueError(f"heads={config.heads} does not divide the encoder's width of {width}")
            self.attention = nn.MultiheadAttention(width, config.heads, batch_first=True)
            self.lstm = nn.LSTM(width, config.hidden, batch_first=True, bidirectional=True)
        self.projection = nn.Linear(2 * config.hidden if config.lstm else width, config.dims)

    def representation_parameters(self) -> list[nn.Parameter]:
        """Parameters of the encoder, which may be trained at a rate of their own."""
        return list(self.encoder.parameters())

    # From documents to vectors ----------------------------------------------------------------------------------------

    def chunks(self, documents: Ragged) -> Chunks:
        """The chunks of documents; without known sections a document is a single one."""
        return section_chunks(documents, self.config.room)

    def encode_documents(self, documents: Ragged, budget: Budget) -> Tensor:
        """Unit vectors of documents, float32 ``[n, dims]``: that of the mean of their sections' vectors.

        Args:
            documents: Token ids without special tokens, with their sections
                (:class:`~pyterrier_longdoc.text.sections.Sectioned`).
            budget: Tokens of a forward pass.
        """
        vectors, document = self.encode_views(documents, budget)
        return _means(vectors, document)

    def encode_views(self, documents: Ragged, budget: Budget, *, recompute: bool = False) -> tuple[Tensor, np.ndarray]:
        """Unit vectors of the sections of documents, which training contrasts.

        Args:
            documents: As in :meth:`encode_documents`.
            budget: Tokens of a forward pass.
            recompute: As in :func:`~pyterrier_longdoc.models.encoder.encode_sequences`.

        Returns:
            float32 ``[s, dims]``, and the document of each, int64 ``[s]``, ascending.
        """
        chunks = self.chunks(documents)
        vectors = self.encode_chunks(documents, chunks, budget, recompute=recompute)
        sections = SectionRows.of(np.arange(len(vectors)), chunks.windows.document, chunks.section)
        return self.combine_chunks(vectors, sections, budget), sections.document

    def encode_chunks(self, documents: Ragged, chunks: Chunks, budget: Budget, *, recompute: bool = False) -> Tensor:
        """Vectors of chunks by the encoder, float32 ``[c, width]``; arguments as in :meth:`encode_views`."""
        sequences = self.config.template.windows(documents, chunks.windows)
        places = np.minimum(chunks.number, self.config.chunk_numbers - 1)

        def embed(ids: Tensor, batch: np.ndarray) -> Tensor:
            section, chunk = (torch.from_numpy(each[batch]).to(ids.device) for each in (chunks.section, places))
            place = self.section_embeddings(section) + self.chunk_embeddings(chunk)
            return self.encoder.get_input_embeddings()(ids) + place[:, None]

        pick = picker(self.config.pooling, sequences)
        placed = embed if self.config.augmentation else None
        return encode_sequences(self.encoder, sequences, budget, pick, embed=placed, recompute=recompute)

    def combine_chunks(self, vectors: Tensor, sections: SectionRows, budget: Budget) -> Tensor:
        """Unit vectors of sections from those of their chunks, float32 ``[s, dims]``."""
        lengths = np.maximum(sections.rows.lengths, sections.rows.lengths[sections.following])
        with torch.autocast(self.device.type, enabled=False):
            return pooled(lengths, budget, partial(self._sections, vectors, sections))

    def _sections(self, vectors: Tensor, sections: SectionRows, batch: np.ndarray) -> Tensor:
        inputs, mask, _ = self._inputs(vectors, sections, batch)
        if self.config.lstm:
            packed = pack_padded_sequence(inputs, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
            _, (states, _) = self.lstm(packed)
            summary = torch.cat([states[0], states[1]], dim=1)
        else:
            summary = (inputs * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return unit(self.projection(summary))

    def _inputs(
        self, vectors: Tensor, sections: SectionRows, batch: np.ndarray, *, weights: bool = False
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """What the BiLSTM reads of some sections: their chunks, each with what it saw in the next section.

        Returns:
            ``[b, most chunks, width]``, which of them are real, bool ``[b, most chunks]``, and if asked for the mean
            over heads of the attention weights, ``[b, most chunks, most chunks of the next sections]``.
        """
        own, mask = self._gathered(vectors, sections.rows, batch)
        if not self.config.lstm:
            return own, mask, None
        others, real = self._gathered(vectors, sections.rows, sections.following[batch])
        seen, attention = self.attention(own, others, others, key_padding_mask=~real, need_weights=weights)
        return own + seen, mask, attention

    def _gathered(self, vectors: Tensor, rows: Ragged, batch: np.ndarray) -> tuple[Tensor, Tensor]:
        index, mask = rows.flat_index(batch)
        row, real = (torch.from_numpy(each).to(vectors.device) for each in (rows.values[index], mask))
        return vectors.float()[row], real

    # Explaining -------------------------------------------------------------------------------------------------------

    def occluded(self, document: Ragged, budget: Budget) -> tuple[Windows, Tensor]:
        """The vectors that a document would have without each of its chunks.

        Args:
            document: The one document.
            budget: Tokens of a forward pass.

        Returns:
            Its ``c`` chunks, and unit vectors ``[c, dims]``; without its only one it is empty.
        """
        chunks = self.chunks(document)
        count = len(chunks.windows)
        if count == 1:
            return chunks.windows, self.encode_documents(document.head(np.zeros(1, np.int64)), budget)
        vectors = self.encode_chunks(document, chunks, budget)
        without, row = np.nonzero(~np.eye(count, dtype=bool))
        sections = SectionRows.of(row, without, chunks.section[row])
        return chunks.windows, _means(self.combine_chunks(vectors, sections, budget), sections.document)

    def levels(self, documents: Ragged, budget: Budget) -> list[Levels]:
        """The vectors of each document and of its sections and chunks, and what its chunks look at."""
        chunks = self.chunks(documents)
        vectors = self.encode_chunks(documents, chunks, budget)
        sections = SectionRows.of(np.arange(len(vectors)), chunks.windows.document, chunks.section)
        combined = self.combine_chunks(vectors, sections, budget)
        whole = _means(combined, sections.document)
        found = []
        for number in range(len(documents)):
            batch = np.flatnonzero(sections.document == number)
            own = np.flatnonzero(chunks.windows.document == number)
            read, attention = self._read_chunks(vectors, sections, batch, own[0])
            found.append(Levels(
                whole[number], combined[batch], sections.section[batch], read, attention, chunks.windows.take(own),
                np.searchsorted(sections.section[batch], chunks.section[own]),
            ))
        return found

    def _read_chunks(
        self, vectors: Tensor, sections: SectionRows, batch: np.ndarray, first: int
    ) -> tuple[Tensor, Tensor | None]:
        """What the BiLSTM reads of one document's chunks, and their attention, both in the order of the chunks."""
        with torch.autocast(self.device.type, enabled=False):
            inputs, mask, weights = self._inputs(vectors, sections, batch, weights=True)
        own, seen = (sections.rows.take(each) for each in (batch, sections.following[batch]))
        rows = torch.from_numpy(own.values - first).to(inputs.device)
        read = torch.empty_like(inputs[mask]).index_copy(0, rows, inputs[mask])
        if weights is None:
            return read, None
        attention = weights.new_zeros(len(rows), len(rows))
        for number in range(len(batch)):
            row, column = (torch.from_numpy(each[number] - first).to(rows) for each in (own, seen))
            attention[row[:, None], column] = weights[number, : len(row), : len(column)]
        return read, attention


def _means(vectors: Tensor, document: np.ndarray) -> Tensor:
    """Unit vectors of the means over documents, ``[n, d]``, of vectors ``[s, d]`` that are sorted by document."""
    rows = Ragged(np.arange(len(document)), np.searchsorted(document, np.arange(document.max() + 2)))
    index, mask = rows.flat_index(np.arange(len(rows)))
    row, real = (torch.from_numpy(each).to(vectors.device) for each in (index, mask))
    return unit((vectors[row] * real[..., None]).sum(1))
