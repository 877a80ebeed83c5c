"""Re-ranking by the vectors of an index, and whose vectors an index holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyterrier as pt
from pyterrier_dr import FlexIndex

if TYPE_CHECKING:
    from pyterrier_longdoc.dual_encoder import DualEncoder


def provenance(encoder: DualEncoder) -> dict[str, Any]:
    """Whose vectors an index holds, as JSON types: what has to be equal for two encoders to be the same."""
    return {
        "encoder": type(encoder).__name__, "weights": encoder.weights_id(), "max_doc_tokens": encoder.max_doc_tokens
    }


def finished(index: FlexIndex) -> bool:
    """Whether an index has been written to its end."""
    return (Path(index.index_path) / "pt_meta.json").exists()


def check_index(encoder: DualEncoder, index: FlexIndex) -> None:
    """Makes sure that an index holds vectors of an encoder, as far as that can be known.

    An index by :func:`~pyterrier_longdoc.indexing.build_index` says whose vectors it holds. Of any other, vectors must
    have the encoder's length and be unit vectors.

    Raises:
        ValueError: If it does not.
    """
    vectors, meta = index.payload(return_docnos=False)
    found, own = meta.get("encoder"), provenance(encoder)
    if found is not None and found != own:
        raise ValueError(f"{index} was encoded by another encoder: {found}; this is {own}. Build it anew")
    if meta["vec_size"] != encoder.model.dims:
        raise ValueError(
            f"{index} holds vectors of {meta['vec_size']} values, {encoder} makes vectors of {encoder.model.dims}: "
            "they are of another encoder"
        )
    lengths = np.linalg.norm(vectors[:100], axis=1)
    if (np.abs(lengths - 1) > 1e-3).any():
        raise ValueError(f"{index} holds vectors of length {lengths.max():.3g}, not 1: they are of another encoder")


class IndexScorer(pt.Transformer):
    """Re-ranks results by the vectors of an index, without any text; see :meth:`DualEncoder.index_scorer`.

    Required input columns: ``qid``, ``query`` and ``docno``. Output: the same rows and columns in the same order, with
    ``score`` (float64) and ``rank``.

    Args:
        encoder: The encoder of the queries.
        index: The vectors of the documents.

    Raises:
        ValueError: If the index is of another encoder.
    """

    def __init__(self, encoder: DualEncoder, index: FlexIndex) -> None:
        super().__init__()
        check_index(encoder, index)
        self.encoder = encoder
        self.index = index

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Scores and ranks the rows of a result frame.

        Raises:
            ValueError: If a query is missing, or a document is not in the index.
        """
        pt.validate.result_frame(inp, extra_columns=["query"], context=self)
        docnos, vectors, _ = self.index.payload()
        number = np.asarray(docnos.inv[inp["docno"].to_numpy(object)]) if len(inp) else np.empty(0, np.int64)
        if (number < 0).any():
            missing = inp["docno"].to_numpy()[number < 0]
            raise ValueError(
                f"{self}: {len(missing)} of {len(inp)} documents are not in the index (first docno {missing[0]!r})"
            )
        found = pd.Series(list(np.asarray(vectors[number])), inp.index, dtype=object)
        ready = inp.drop(columns=["query_vec", self.encoder.text_field], errors="ignore").assign(doc_vec=found)
        scored = self.encoder.transform(ready)
        return pt.model.add_ranks(inp.assign(score=scored["score"].to_numpy()))

    def subtransformers(self) -> dict[str, pt.Transformer]:
        """None: the encoder is a part, not a step."""
        return {}

    @property
    def schematic(self) -> dict[str, str]:
        """Drawn as its encoder."""
        return self.encoder.schematic

    def __repr__(self) -> str:
        return f"{self.encoder!r}.index_scorer({self.index!r})"
