"""The parts of a dual encoder as transformers: what encodes queries, what encodes documents, and what scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyterrier as pt
from pyterrier_dr.biencoder import BiDocEncoder, BiQueryEncoder, BiScorer

from pyterrier_longdoc.frames import strings

if TYPE_CHECKING:
    from pyterrier_longdoc.dual_encoder import DualEncoder


class _Part:
    """What the transformers made from an encoder share: they are equal where encoder, weights and options are."""

    bi_encoder_model: DualEncoder

    def _key(self) -> tuple:
        encoder = self.bi_encoder_model
        options = (encoder.max_doc_tokens, encoder.text_field, self.batch_size, self.verbose)
        return (type(self), type(encoder), encoder.weights_id(), *options)

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, _Part) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def _with_options(self) -> DualEncoder:
        return self.bi_encoder_model.apply_attributes(batch_size=self.batch_size, verbose=self.verbose)


class QueryEncoder(_Part, BiQueryEncoder):
    """Adds ``query_vec`` to a frame with ``query``; made by :meth:`DualEncoder.query_encoder`."""

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Encodes the queries of a frame, each different one once."""
        pt.validate.columns(inp, includes=["query"], context=self)
        encoder = self._with_options()
        return inp.assign(query_vec=_column(encoder.encode_queries(strings(inp, "query", encoder))))


class DocumentEncoder(_Part, BiDocEncoder):
    """Adds ``doc_vec`` to a frame with texts; made by :meth:`DualEncoder.doc_encoder`."""

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Encodes the documents of a frame, each different one once."""
        pt.validate.columns(inp, includes=[self.text_field], context=self)
        encoder = self._with_options()
        return inp.assign(doc_vec=_column(encoder.encode_docs(strings(inp, self.text_field, encoder))))


class Scorer(_Part, BiScorer):
    """Re-ranks results; made by :meth:`DualEncoder.text_scorer`."""

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Scores and ranks the rows of a result frame; see :class:`DualEncoder`."""
        encoder = self._with_options()
        with pt.validate.any(inp, context=self) as frame:
            for query in ("query", "query_vec"):
                for document in (encoder.text_field, "doc_vec"):
                    frame.result_frame([query, document])
        return encoder.transform(inp)


def _column(vectors: np.ndarray) -> pd.Series | list[np.ndarray]:
    return list(vectors) if len(vectors) else pd.Series(dtype=object)
