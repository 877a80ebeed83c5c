"""What KNRM, Conv-KNRM, TK and TKL share: encode queries and documents apart, then match pair by pair.

A document's vectors do not depend on the query. So a document is encoded once for all queries of a call, and may be
kept between calls; a pair then costs a cosine matrix and its kernels. The architectures differ in how they
contextualise (``contextualize_*``), which windows they read (``document_windows``) and how they pool (``interact``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from pyterrier_longdoc.models.kernel_data import Evidence, KernelConfig, Queries
from pyterrier_longdoc.models.kernels import unit
from pyterrier_longdoc.pooling import Budget, Pool, pooled
from pyterrier_longdoc.windows import Ragged, Windows, contiguous_windows

#: A pair counts query tokens x document tokens, under this many times the token budget: a cosine is that much smaller
#: than a token's vectors.
_MATCH_FACTOR = 64


class KernelModel(nn.Module):
    """Base of the kernel family; see the module's text.

    Args:
        config: The settings.
    """

    config_class: ClassVar[type[KernelConfig]] = KernelConfig
    #: First parts of the names of :meth:`representation_parameters`.
    representation: ClassVar[tuple[str, ...]] = (
        "vectors.", "query_positions.", "document_positions.", "contextualizer.", "convolutions."
    )

    def __init__(self, config: KernelConfig) -> None:
        super().__init__()
        self.config = config
        self.vectors = nn.Embedding(config.vocabulary, config.dims)
        self.vectors.weight.requires_grad_(config.train_vectors)

    # What an architecture defines -------------------------------------------------------------------------------------

    def document_windows(self, lengths: np.ndarray) -> Windows:
        """The windows that are contextualised one by one; the whole document unless a model says otherwise."""
        return contiguous_windows(lengths, core=None)

    def contextualize_query(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Contextualised query vectors ``[b, tokens, d]``; every row has a real token."""
        return vectors

    def contextualize_windows(self, vectors: Tensor, rows: Tensor, mask: Tensor | None, kept: slice) -> Tensor:
        """Contextualised vectors of the columns ``kept`` of windows ``[b, width, d]``.

        ``rows`` numbers the tokens from the core's first one; ``mask`` is ``None`` where all are real.
        """
        return vectors[:, kept]

    def unit_vectors(self, vectors: Tensor) -> Tensor:
        """Vectors as the cosine wants them."""
        return unit(vectors)

    def query_salience(self, ids: Tensor) -> Tensor | None:
        """Weight of each query term ``[q, tokens]``, if the model has one."""
        return None

    def interact(self, queries: Queries, documents: Tensor, mask: Tensor) -> Tensor:
        """Scores of pairs.

        Args:
            queries: Encoded queries, one a pair.
            documents: Unit vectors ``[pairs, tokens, d]``.
            mask: Real document tokens, bool ``[pairs, tokens]``.

        Returns:
            float32 ``[pairs]``.
        """
        raise TypeError(f"{type(self).__name__} does not say how to match")

    def evidence(self, queries: Queries, documents: Tensor, mask: Tensor) -> Evidence:
        """Which regions made the scores; same arguments as :meth:`interact`."""
        raise TypeError(f"{type(self).__name__} does not say how to explain")

    def representation_parameters(self) -> list[nn.Parameter]:
        """Parameters that are trained at the lower rate: vectors, and what contextualises them."""
        return [parameter for name, parameter in self.named_parameters() if name.startswith(self.representation)]

    def set_idf(self, idf: np.ndarray) -> None:
        """Starts the weights of terms ``[vocabulary]`` from their IDF, in the models that have any."""

    # What they share --------------------------------------------------------------------------------------------------

    def forward(
        self, queries: Ragged, documents: Ragged, pairs: np.ndarray, budget: Budget | None = None
    ) -> Tensor:
        """Scores pairs of queries and documents given as token ids.

        Args:
            queries: Token ids of each query.
            documents: Token ids of each document.
            pairs: Query and document number of each pair, ``[p, 2]``.
            budget: Tokens of one pass; the device's default if ``None``.

        Returns:
            float32 ``[p]``.
        """
        budget = budget or Budget.for_device(self.device.type)
        encoded = self.encode_documents(documents, budget)
        return self.match(self.encode_queries(queries), encoded, documents, pairs, budget)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.vectors.weight.device

    def encode_queries(self, queries: Ragged) -> Queries:
        """Encodes queries from their token ids; one without tokens becomes zeros."""
        ids, mask = self._to_device(*queries.padded())
        return self._encode_query_vectors(self.vectors(ids), mask, self.query_salience(ids))

    def encode_documents(self, documents: Ragged, budget: Budget, vectors: Tensor | None = None) -> Tensor:
        """Contextualised unit vectors of all document tokens.

        Args:
            documents: Token ids of each document.
            budget: Tokens of one pass, context and padding included.
            vectors: Vectors ``[tokens, d]`` to use in place of the table's.

        Returns:
            ``[sum of lengths, d]``, in the order of ``documents.values``.
        """
        return self._encode(documents, budget, vectors, self.unit_vectors)

    def contextualize_documents(self, documents: Ragged, budget: Budget, vectors: Tensor | None = None) -> Tensor:
        """The same as :meth:`encode_documents`, before lengths are normalised."""
        return self._encode(documents, budget, vectors, lambda output: output)

    def _encode(
        self, documents: Ragged, budget: Budget, vectors: Tensor | None, finish: Callable[[Tensor], Tensor]
    ) -> Tensor:
        windows = self.document_windows(documents.lengths)
        ids = torch.from_numpy(documents.values).to(self.device)

        def compute(batch: np.ndarray) -> tuple[Tensor, Tensor]:
            chosen = windows.take(batch)
            index, mask = chosen.flat_index(documents)
            kept = slice(int(chosen.core[:, 0].min()), int(chosen.core[:, 1].max()))
            place, core, rows = self._to_device(index, chosen.core_mask()[:, kept], chosen.rows())
            full = None if mask.all() else self._to_device(mask)[0]
            inputs = self.vectors(ids[place]) if vectors is None else vectors[place]
            return place[:, kept][core], finish(self.contextualize_windows(inputs, rows, full, kept)[core])

        parts = (result for _, result in Pool(windows.widths, budget).run(compute))
        return _scattered(parts, self.vectors.weight.new_empty(len(ids), self.width))

    def _to_device(self, *arrays: np.ndarray) -> list[Tensor]:
        return [torch.from_numpy(array).to(self.device) for array in arrays]

    @property
    def width(self) -> int:
        """Width of an encoded token."""
        return self.config.dims

    def match(
        self, queries: Queries, vectors: Tensor, documents: Ragged, pairs: np.ndarray, budget: Budget
    ) -> Tensor:
        """Scores pairs of encoded queries and documents.

        Args:
            queries: Encoded queries.
            vectors: Encoded documents, ``[sum of lengths, d]``.
            documents: Their token ids; only the lengths count here.
            pairs: Query and document number of each pair, ``[p, 2]``.
            budget: Tokens of one pass.

        Returns:
            float32 ``[p]``.
        """
        if not len(pairs):
            return vectors.new_zeros(0)

        def compute(batch: np.ndarray) -> Tensor:
            with self._full_precision():
                return self.interact(*self._pair_tensors(queries, vectors, documents, pairs[batch]))

        # Queries of 5-8, 9-16, ... tokens apart: one long query would make all others of its batch as long
        widths = 2 ** np.ceil(np.log2(queries.mask.sum(1).clamp(min=4).cpu().numpy())).astype(np.int64)[pairs[:, 0]]
        return pooled(documents.lengths[pairs[:, 1]] * widths, budget.times(_MATCH_FACTOR), compute, kinds=widths)

    def explain(self, queries: Ragged, documents: Ragged, pairs: np.ndarray, budget: Budget) -> Iterator[Evidence]:
        """The :class:`Evidence` of each pair, one pair at a time; arguments as in :meth:`forward`.

        One document is in memory at a time: it is encoded once if its pairs follow each other.
        """
        encoded, held = self.encode_queries(queries), None
        for query, document in pairs:
            if document != held:
                held, alone = document, documents.take(np.array([document]))
                vectors = self.encode_documents(alone, budget)
            with self._full_precision():
                tensors = self._pair_tensors(encoded, vectors, alone, np.array([[query, 0]]))
                evidence = self.evidence(*tensors)
            yield Evidence(*(part[0] for part in evidence))

    def score_embeddings(
        self,
        query_vectors: Tensor,
        query_mask: Tensor,
        document_vectors: Tensor,
        document_mask: Tensor,
        query_idf: Tensor | None = None,
    ) -> Tensor:
        """Scores pairs given as uncontextualised vectors, in place of token ids.

        Args:
            query_vectors: ``[B, n, d]``.
            query_mask: Real tokens, ``[B, n]``, padding behind them.
            document_vectors: ``[B, m, d]``.
            document_mask: Real tokens, ``[B, m]``, padding behind them.
            query_idf: IDF of each query term, ``[B, n]``, for the models that use it.

        Returns:
            ``[B]``.

        Raises:
            ValueError: If a mask is not of the form 1 ... 1 0 ... 0.
        """
        query_mask, document_mask = _prefix(query_mask, "query_mask"), _prefix(document_mask, "document_mask")
        lengths = document_mask.sum(1).cpu().numpy()
        documents = Ragged.from_lists([np.zeros(length, np.int32) for length in lengths])
        budget = Budget.for_device(self.device.type)
        vectors = self.encode_documents(documents, budget, document_vectors[document_mask])
        queries = self._encode_query_vectors(query_vectors, query_mask, query_idf)
        return self.match(queries, vectors, documents, np.arange(len(lengths))[:, None].repeat(2, 1), budget)

    def _full_precision(self) -> torch.autocast:
        """Matching is computed in float32 even where the encoder is not: bfloat16 scores tie, float16 overflows."""
        return torch.autocast(self.device.type, enabled=False)

    def _encode_query_vectors(self, vectors: Tensor, mask: Tensor, salience: Tensor | None) -> Queries:
        filled = mask.any(1)  # a row without a token would make the attention NaN
        context = self.contextualize_query(vectors[filled], mask[filled]) * mask[filled][..., None]
        encoded = context.new_zeros(*mask.shape, context.shape[-1])
        encoded[filled] = context
        return Queries(encoded, mask, salience)

    def _pair_tensors(
        self, queries: Queries, vectors: Tensor, documents: Ragged, pairs: np.ndarray
    ) -> tuple[Queries, Tensor, Tensor]:
        index, mask = documents.flat_index(pairs[:, 1])
        query, place, real = self._to_device(pairs[:, 0], index, mask)
        chosen = queries.take(query)
        if not len(vectors):
            return chosen, queries.vectors.new_zeros(*mask.shape, queries.vectors.shape[-1]), real
        return chosen, vectors[place], real


def _scattered(parts: Iterable[tuple[Tensor, Tensor]], empty: Tensor) -> Tensor:
    """Rows of all parts at their places, each of which is filled once; ``empty`` if there are no parts."""
    if torch.is_grad_enabled():  # writing in place would make the backward pass quadratic
        parts = list(parts)
        if not parts:
            return empty[:0]
        places, outputs = zip(*parts, strict=True)
        return torch.cat(outputs)[torch.argsort(torch.cat(places))]
    joined = None
    for place, output in parts:
        joined = output.new_empty(len(empty), output.shape[1]) if joined is None else joined
        joined[place] = output
    return empty if joined is None else joined


def _prefix(mask: Tensor, name: str) -> Tensor:
    mask = mask.bool()
    if (mask[:, 1:] & ~mask[:, :-1]).any():
        raise ValueError(f"{name} has a gap: real tokens (1) must come first, padding (0) behind them")
    return mask
