"""What Socialformer reads of a document for a query: passages of equal length, and friend circles."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from pyterrier_longdoc.graph import Adjacency, SocialWeights, friend_circles, query_distance, sample_graph, tf_idf
from pyterrier_longdoc.models.social_settings import GroupSettings
from pyterrier_longdoc.recent import Recent
from pyterrier_longdoc.text.split import sliding_windows
from pyterrier_longdoc.windows import Ragged

#: Maps the token ids of a query ``[m]`` and a document ``[n]`` to weights ``[n]``.
Weigher = Callable[[np.ndarray, np.ndarray], np.ndarray]
#: Weights of tokens that are remembered: some 60,000 documents of 2,000 tokens.
_REMEMBERED = 512 * 2**20


class Groups(NamedTuple):
    """The passages and circles of some pairs of queries and documents, pair by pair, passages first.

    Attributes:
        positions: Positions in its document of the tokens of each group; of a circle, the centre comes first.
        is_circle: Which groups are circles, bool ``[g]``.
        offsets: Where the groups of each pair start, and the end, int64 ``[pairs + 1]``.
    """

    positions: Ragged
    is_circle: np.ndarray
    offsets: np.ndarray

    @property
    def counts(self) -> np.ndarray:
        """Groups of each pair, int64 ``[pairs]``."""
        return np.diff(self.offsets)

    @property
    def pair(self) -> np.ndarray:
        """The pair of each group, int64 ``[g]``."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def take(self, pairs: np.ndarray) -> Groups:
        """The groups of some pairs, in that order."""
        picked = Ragged(np.arange(len(self.is_circle)), self.offsets).take(pairs)
        return Groups(self.positions.take(picked.values), self.is_circle[picked.values], picked.offsets)

    def tokens(self, documents: Ragged, document: np.ndarray) -> Ragged:
        """Token ids of each group.

        Args:
            documents: Token ids of each document.
            document: The document of each pair, ``[pairs]``.
        """
        starts = documents.offsets[:-1][document[self.pair]]
        place = np.repeat(starts, self.positions.lengths) + self.positions.values
        return Ragged(documents.values[place], self.positions.offsets)


class SocialGroups(nn.Module):
    """Draws the graphs of documents, and cuts passages and circles.

    A token's weights in its document, and for a query, are computed once and remembered.

    Args:
        settings: See there.
        vocabulary: Terms that have an IDF.
        centrality: Maps the token ids of a query and of a document to the weights of its tokens (eq. 7).
    """

    def __init__(self, settings: GroupSettings, vocabulary: int, centrality: Weigher | None) -> None:
        super().__init__()
        self.settings = settings
        self.register_buffer("idf", torch.ones(vocabulary))
        self.centrality = centrality
        self.recent = Recent(_REMEMBERED)
        self._stamp: tuple[Weigher | None, list[tuple[int, int]]] | None = None

    def set_document_frequency(self, frequency: np.ndarray, count: int) -> None:
        """Sets the IDF of static centrality, ln(1 + N / df), from a collection; it is saved with the model.

        Args:
            frequency: In how many documents each term of the vocabulary occurs, ``[vocabulary]``; 0 counts as 1.
            count: Documents of the collection, N.

        Raises:
            ValueError: If there are not as many frequencies as terms, or one is not in 0..N.
        """
        frequency = np.asarray(frequency)
        if frequency.shape != tuple(self.idf.shape):
            raise ValueError(f"{len(self.idf)} terms need as many frequencies, got the shape {frequency.shape}")
        if ((frequency < 0) | (frequency > count)).any():
            raise ValueError(f"document frequencies must be between 0 and the number of documents, {count}")
        idf = np.log1p(count / np.maximum(frequency, 1)).astype(np.float32)
        self.idf = torch.from_numpy(idf).to(self.idf.device)

    @property
    def has_idf(self) -> bool:
        """Whether document frequencies were ever set; without, all terms have an IDF of 1."""
        return bool((self.idf != 1).any())

    def forward(self, queries: Ragged, documents: Ragged, pairs: np.ndarray) -> Groups:
        """All groups of some pairs.

        Args:
            queries: Token ids of each query.
            documents: Token ids of each document.
            pairs: Query and document number of each pair, ``[p, 2]``.
        """
        passages = sliding_windows(documents.lengths, self.settings.passage_tokens)
        bounds = np.searchsorted(passages.document, np.arange(len(documents) + 1))
        positions, is_circle, counts = [], [], []
        for (_, document), circles in zip(pairs, self._circles(queries, documents, pairs), strict=True):
            cut = passages.positions[bounds[document] : bounds[document + 1]]
            positions += [row[row >= 0] for row in cut] + circles
            is_circle += [False] * len(cut) + [True] * len(circles)
            counts.append(len(cut) + len(circles))
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return Groups(Ragged.from_lists(positions), np.array(is_circle, bool), offsets)

    def _circles(self, queries: Ragged, documents: Ragged, pairs: np.ndarray) -> list[list[np.ndarray]]:
        if not self.settings.n_circles:
            return [[] for _ in pairs]
        texts = [(queries[query], documents[document]) for query, document in pairs]
        self._forget_what_changed()
        weights = [self._weights(*pair) for pair in texts]
        with ThreadPoolExecutor(max(1, torch.get_num_threads())) as threads:  # which the kernels let run side by side
            return list(threads.map(lambda place: self.circles(*texts[place], weights[place]), range(len(texts))))

    def circles(self, query: np.ndarray, document: np.ndarray, weights: SocialWeights) -> list[np.ndarray]:
        """The friend circles of a document for a query, given as token ids, from its weights."""
        settings, graph = self.settings, self.graph(query, document, weights)
        return friend_circles(graph, settings.n_circles, settings.max_nodes, settings.partition, weights)

    def graph(self, query: np.ndarray, document: np.ndarray, weights: SocialWeights) -> Adjacency:
        """The graph of a document for a query, given as token ids, from its weights: always the same one."""
        return sample_graph(weights, 1 - self.settings.sparsity, graph_seed(self.settings.seed, query, document))

    def weights(self, query: np.ndarray, document: np.ndarray) -> SocialWeights:
        """The weights of a document's tokens for a query, both given as token ids, by the patterns that are on.

        Raises:
            ValueError: If a centrality function of the user's own is missing, or returns something else.
        """
        self._forget_what_changed()
        return self._weights(query, document)

    def _weights(self, query: np.ndarray, document: np.ndarray) -> SocialWeights:
        on, given = self.settings.patterns, {}
        if "static_centrality" in on:
            given["static_centrality"] = self._remembered(
                _digest(b"static", document), document, lambda: tf_idf(document, self.idf.cpu().numpy())
            )
        if "dynamic_distance" in on:
            given["dynamic_distance"] = query_distance(document, query)
        if "dynamic_centrality" in on:
            if self.centrality is None:
                raise ValueError(
                    "this model was made with a centrality function of the user's own, which is not saved with it; "
                    "give it again: from_pretrained(..., centrality=function)"
                )
            given["dynamic_centrality"] = self._remembered(
                _digest(b"dynamic", query, document), document, lambda: self.centrality(query, document)
            )
        return SocialWeights(len(document), "static_distance" in on, smoothing=self.settings.smoothing, **given)

    def _remembered(self, key: bytes, document: np.ndarray, compute: Callable[[], np.ndarray]) -> np.ndarray:
        weights = self.recent.get(key)
        if weights is None:
            weights = np.array(compute(), np.float32)
            if weights.shape != document.shape:
                raise ValueError(
                    f"centrality must return one weight for each of {len(document)} tokens, got the shape "
                    f"{weights.shape}"
                )
            self.recent.put(key, weights)
        return weights

    def _forget_what_changed(self) -> None:
        """Drops weights that come from other term weights, another function, or an encoder as it was before."""
        tensors = [self.idf, *(self.centrality.parameters() if isinstance(self.centrality, nn.Module) else ())]
        versions = [(tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version) for tensor in tensors]
        if (self.centrality, versions) != self._stamp:
            self.recent.clear()
            self._stamp = self.centrality, versions


def graph_seed(seed: int, query: np.ndarray, document: np.ndarray) -> int:
    """64 bits from a seed and the token ids of a query and a document."""
    return int.from_bytes(_digest(seed.to_bytes(8, "little", signed=True), query, document, size=8), "little")


def _digest(start: bytes, *texts: np.ndarray, size: int = 16) -> bytes:
    """A hash of some bytes and of texts, given as token ids."""
    digest = blake2b(start, digest_size=size)
    for tokens in texts:
        digest.update(len(tokens).to_bytes(8, "little") + np.ascontiguousarray(tokens, "<i4").tobytes())
    return digest.digest()
