"""What Socialformer reads of a document for a query: passages of equal length, and friend circles."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pyterrier_longdoc.checkpoint import fingerprint
from pyterrier_longdoc.document_cache import DocumentCache
from pyterrier_longdoc.graph import Adjacency, SocialWeights, friend_circles, query_distance, sample_graph, tf_idf
from pyterrier_longdoc.graph.circles import PARTITIONS
from pyterrier_longdoc.graph.weights import SMOOTHINGS
from pyterrier_longdoc.text.split import sliding_windows
from pyterrier_longdoc.windows import Ragged

PATTERNS = ("static_distance", "static_centrality", "dynamic_distance", "dynamic_centrality")
#: Maps the token ids of a query ``[m]`` and a document ``[n]`` to weights ``[n]``.
Weigher = Callable[[np.ndarray, np.ndarray], np.ndarray]
#: Weights of tokens that are remembered: some 60,000 documents of 2,000 tokens.
_CACHE_BYTES = 512 * 2**20


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


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """Settings of graphs and groups.

    Attributes:
        passage_tokens: Tokens of a passage.
        patterns: Names among :data:`PATTERNS`; without any, all pairs of tokens are equally likely.
        sparsity: Share of the pairs of tokens that are not connected.
        smoothing: See :class:`~pyterrier_longdoc.graph.SocialWeights`.
        partition: See :func:`~pyterrier_longdoc.graph.friend_circles`.
        n_circles: At most so many circles; 0 leaves the passages alone.
        max_nodes: Tokens of a circle.
        seed: Seed of the graphs.
    """

    passage_tokens: int = 128
    patterns: tuple[str, ...] = PATTERNS
    sparsity: float = 0.93
    smoothing: str = "identity"
    partition: str = "node"
    n_circles: int = 16
    max_nodes: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.patterns, str) or not set(self.patterns) <= set(PATTERNS):
            raise ValueError(f"patterns must be a list of names among {', '.join(PATTERNS)}, got {self.patterns!r}")
        object.__setattr__(self, "patterns", tuple(name for name in PATTERNS if name in self.patterns))
        if not 0 <= self.sparsity < 1:
            raise ValueError(f"sparsity must be in [0, 1), got {self.sparsity!r}")
        for name, allowed in (("smoothing", tuple(SMOOTHINGS)), ("partition", PARTITIONS)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {getattr(self, name)!r}")
        for name, least in (("passage_tokens", 1), ("n_circles", 0), ("max_nodes", 2)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")


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
        self.cache = DocumentCache(max_bytes=_CACHE_BYTES)
        self._stamp: tuple[list[tuple[int, int]], str] | None = None

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
        weights = [self.weights(*pair) for pair in texts]
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
        on, given = self.settings.patterns, {}
        if "static_centrality" in on:
            idf = self.idf.cpu().numpy()
            given["static_centrality"] = self._remembered("static", document, lambda: tf_idf(document, idf))
        if "dynamic_distance" in on:
            given["dynamic_distance"] = query_distance(document, query)
        if "dynamic_centrality" in on:
            if self.centrality is None:
                raise ValueError(
                    "this model was made with a centrality function of the user's own, which is not saved with it; "
                    "give it again: from_pretrained(..., centrality=function)"
                )
            name = f"dynamic/{query.tobytes().hex()}"
            given["dynamic_centrality"] = self._remembered(name, document, lambda: self.centrality(query, document))
        return SocialWeights(len(document), "static_distance" in on, smoothing=self.settings.smoothing, **given)

    def _remembered(self, name: str, document: np.ndarray, compute: Callable[[], np.ndarray]) -> np.ndarray:
        def encode(_: Ragged) -> Tensor:
            weights = np.array(compute(), np.float32)
            if weights.shape != document.shape:
                raise ValueError(
                    f"centrality must return one weight for each of {len(document)} tokens, got the shape "
                    f"{weights.shape}"
                )
            return torch.from_numpy(weights)[:, None]

        return self.cache.vectors(f"{self._depends_on()}/{name}", Ragged.from_lists([document]), encode)[:, 0].numpy()

    def _depends_on(self) -> str:
        """A hash of the tensors that weights are computed from."""
        tensors = [self.idf, *(self.centrality.parameters() if isinstance(self.centrality, nn.Module) else ())]
        stamp = [(tensor.data_ptr(), tensor._version) for tensor in tensors]
        if self._stamp is None or self._stamp[0] != stamp:
            self._stamp = (stamp, fingerprint(tensors))
        return self._stamp[1]


def graph_seed(seed: int, query: np.ndarray, document: np.ndarray) -> int:
    """64 bits from a seed and the token ids of a query and a document."""
    digest = blake2b(seed.to_bytes(8, "little", signed=True), digest_size=8)
    for tokens in (query, document):
        digest.update(len(tokens).to_bytes(8, "little") + np.ascontiguousarray(tokens, "<i4").tobytes())
    return int.from_bytes(digest.digest(), "little")
