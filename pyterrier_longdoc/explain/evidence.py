"""Which windows of a document made a dual encoder's cosine: each read alone, or the document read without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pyterrier_longdoc.devices import inference
from pyterrier_longdoc.explain.explanation import WeightedWindow
from pyterrier_longdoc.text.template import window_tokens
from pyterrier_longdoc.windows import Ragged, Windows, contiguous_windows

if TYPE_CHECKING:
    from pyterrier_longdoc.dual_encoder import DualEncoder

#: Tokens of a stretch that is read alone.
STRETCH = 30


def stretch_evidence(
    encoder: DualEncoder, queries: list[str], documents: list[str], pairs: np.ndarray
) -> list[list[WeightedWindow]]:
    """How near each stretch of a document alone is to the query; arguments as in :func:`occlusion_evidence`."""
    tokens = encoder._read(documents)
    stretches = contiguous_windows(tokens.lengths, STRETCH)
    of_query, of_stretch = encoder.encode_queries(queries), _encode_stretches(encoder, tokens, stretches)
    rows = np.split(np.arange(len(stretches)), np.searchsorted(stretches.document, np.arange(1, len(documents))))
    return [
        [
            WeightedWindow(float(of_query[query] @ of_stretch[row]), stretches.positions[row], encoder.window_kind)
            for row in rows[document]
        ]
        for query, document in pairs
    ]


def occlusion_evidence(
    encoder: DualEncoder, queries: list[str], documents: list[str], pairs: np.ndarray
) -> list[list[WeightedWindow]]:
    """What the cosine of each pair would lose without each window of the document.

    Args:
        encoder: A ranker whose model gives the vectors of documents without their windows (``occluded``).
        queries: As in :meth:`ReRanker.score_pairs`, as are ``documents`` and ``pairs``.
        documents: See ``queries``.
        pairs: See ``queries``; the document's windows are computed once for all pairs of it that follow each other.
    """
    query_vectors, document_vectors = encoder.encode_queries(queries), encoder.encode_docs(documents)
    tokens, budget, found = encoder._read(documents), encoder.budget(), []
    held = None
    for query, document in pairs:
        if document != held:
            held = document
            with inference(encoder.devices[0], encoder.dtype):
                windows, without = encoder.model.occluded(tokens.take(np.array([document])), budget)
            lost = document_vectors[document] - without.float().cpu().numpy()
        parts = zip((lost @ query_vectors[query]).tolist(), windows.positions, windows.widths, strict=True)
        found.append([WeightedWindow(weight, places, encoder.window_kind) for weight, places, width in parts if width])
    return found


def _encode_stretches(encoder: DualEncoder, tokens: Ragged, stretches: Windows) -> np.ndarray:
    if not len(stretches):
        return np.zeros((0, encoder.model.dims), np.float32)
    with inference(encoder.devices[0], encoder.dtype):
        return encoder.model.encode_documents(window_tokens(tokens, stretches), encoder.budget()).cpu().numpy()
