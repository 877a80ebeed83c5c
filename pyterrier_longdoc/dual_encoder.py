"""The base of rankers that make one vector of a text: at once a re-ranker of this package and a BiEncoder.

As a :class:`~pyterrier_longdoc.reranker.ReRanker` it scores, trains, saves and explains; as a
:class:`pyterrier_dr.BiEncoder` it encodes queries and documents for an index: ``smith >> FlexIndex("...")``,
``smith >> index.np_retriever()``. Both give the same scores, the cosine of the two texts' vectors.

Vectors of another model do not say whose they are, and with the same length they would give wrong scores without any
error. So what a frame holds as text is always encoded here; ``query_vec`` and ``doc_vec`` count only where there is no
text, and must then have this model's length and be unit vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_longdoc.checks import check_whole
from pyterrier_longdoc.devices import share_out
from pyterrier_longdoc.explain import WeightedWindow
from pyterrier_longdoc.explain.evidence import STRETCH, stretch_evidence
from pyterrier_longdoc.frames import strings
from pyterrier_longdoc.pooling import Pool
from pyterrier_longdoc.reranker import _GROUP_FACTOR, ReRanker

try:
    from pyterrier_dr import BiEncoder, FlexIndex, SimFn
    from pyterrier_dr.flex.np_retr import NumpyVectorLoader
except ImportError as error:
    raise ImportError(
        "dual encoders (SMITH, CoLDE, MatchBERT, HAN, SMASH) are encoders of pyterrier_dr, which cannot be imported: "
        f"pip install pyterrier-dr ({error})"
    ) from error

from pyterrier_longdoc.encoders import DocumentEncoder, QueryEncoder, Scorer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from pyterrier_longdoc.explain import Explanation
    from pyterrier_longdoc.explain.levels import Comparison
    from pyterrier_longdoc.explain.parts import Parts
    from pyterrier_longdoc.index_scorer import IndexScorer
    from pyterrier_longdoc.models.dual_encoder import DualEncoderModel

#: Pairs whose vectors are multiplied at once.
_PAIRS_AT_ONCE = 65_536


class DualEncoder(ReRanker, BiEncoder):
    """Scores documents by the cosine of their vector and the query's; the base class of all dual encoders.

    What it does follows from the columns of its input: ``qid, query`` are encoded into ``query_vec``; ``docno`` and
    ``text_field`` into ``doc_vec``; results (``qid, docno``) are re-ranked from their texts, or where there is no
    text from ``query_vec`` and ``doc_vec``. Arguments as in :class:`~pyterrier_longdoc.reranker.ReRanker`.
    """

    model: DualEncoderModel
    window_kind: ClassVar[str] = "stretch"
    weight_meaning: ClassVar[str] = f"cosine of the query and a stretch of {STRETCH} tokens alone"

    # Frames -----------------------------------------------------------------------------------------------------------

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Encodes queries or documents, or scores and ranks results; see the class.

        Raises:
            ValueError: If a query is missing, or vectors are not this model's.
            TypeError: If a query or text is neither a string nor missing.
            FloatingPointError: If a score is not finite.
        """
        with pt.validate.any(inp, context=self) as frame:
            frame.result_frame(["query", self.text_field], mode="texts")
            frame.result_frame(["query", "doc_vec"], mode="vectors")
            frame.result_frame(["query_vec", self.text_field], mode="vectors")
            frame.result_frame(["query_vec", "doc_vec"], mode="vectors")
            frame.columns(includes=["qid", "query"], excludes=["docno", self.text_field], mode="queries")
            frame.columns(includes=["docno", self.text_field], excludes=["qid", "query"], mode="documents")
        if frame.mode == "queries":
            return self.query_encoder()(inp)
        if frame.mode == "documents":
            return self.doc_encoder()(inp)
        return super().transform(inp) if frame.mode == "texts" else self._rank_vectors(inp)

    def query_encoder(self, verbose: bool | None = None, batch_size: int | None = None) -> QueryEncoder:
        """A transformer that adds ``query_vec`` to ``query``."""
        return QueryEncoder(self, verbose=verbose, batch_size=batch_size)

    def doc_encoder(self, verbose: bool | None = None, batch_size: int | None = None) -> DocumentEncoder:
        """A transformer that adds ``doc_vec`` to the text."""
        return DocumentEncoder(self, verbose=verbose, batch_size=batch_size)

    def text_scorer(
        self, verbose: bool | None = None, batch_size: int | None = None, sim_fn: SimFn | None = None
    ) -> Scorer:
        """This encoder as a transformer that only re-ranks results.

        Raises:
            ValueError: If another similarity than the dot product is asked for; that of unit vectors is their cosine.
        """
        if sim_fn not in (None, SimFn.dot):
            raise ValueError(f"{self} compares unit vectors by their dot product, not by {sim_fn}")
        return Scorer(self, verbose=verbose, batch_size=batch_size, sim_fn=sim_fn)

    def __rshift__(self, right: pt.Transformer) -> pt.Transformer:
        """``encoder >> FlexIndex(path)`` indexes as :meth:`build_index` does; all else are pipelines as ever.

        The index of a retriever that follows this encoder itself is checked, once and now; for one that another state
        of this encoder has made, write ``encoder.query_encoder() >> retriever``.

        Raises:
            ValueError: If that index is of another encoder; see
                :func:`pyterrier_longdoc.index_scorer.check_index`.
        """
        if isinstance(right, FlexIndex):
            from pyterrier_longdoc.indexing import IndexingPipeline

            return IndexingPipeline(self, right)
        index = getattr(right, "flex_index", None)
        if isinstance(index, FlexIndex) and not isinstance(right, NumpyVectorLoader):
            from pyterrier_longdoc.index_scorer import check_index, finished

            if finished(index):
                check_index(self, index)
        return super().__rshift__(right)

    def build_index(
        self, corpus: Iterable[Mapping[str, Any]] | pd.DataFrame, path: str | Path, **options: Any  # noqa: ANN401
    ) -> FlexIndex:
        """Encodes a collection into a new index; the work survives kills and is shared by processes.

        The same as ``(encoder >> FlexIndex(path)).index(corpus)``, with more options. Arguments and result as in
        :func:`pyterrier_longdoc.indexing.build_index`.
        """
        from pyterrier_longdoc.indexing import build_index

        return build_index(self, corpus, path, **options)

    def index_scorer(self, index: FlexIndex) -> IndexScorer:
        """A transformer that re-ranks results (``qid, query, docno``) by the vectors of an index, without any text.

        Raises:
            ValueError: If the index is of another encoder; see :func:`pyterrier_longdoc.index_scorer.check_index`.
        """
        from pyterrier_longdoc.index_scorer import IndexScorer

        return IndexScorer(self, index)

    @property
    def sim_fn(self) -> SimFn:
        """The dot product; of unit vectors it is the cosine."""
        return SimFn.dot

    @property
    def max_length(self) -> int | None:
        """``max_doc_tokens``, under the name by which encoders of pyterrier_dr are told apart."""
        return self.max_doc_tokens

    def _rank_vectors(self, inp: pd.DataFrame) -> pd.DataFrame:
        queries = self._vectors(inp, "query", "query_vec", self.encode_queries)
        documents = self._vectors(inp, self.text_field, "doc_vec", self.encode_docs)
        rows = np.arange(len(inp))
        scores = _cosines(queries, documents, np.stack([rows, rows], axis=1))
        return pt.model.add_ranks(inp.assign(score=scores))

    def _vectors(self, inp: pd.DataFrame, text: str, column: str, encode: Any) -> np.ndarray:  # noqa: ANN401
        """A vector for each row: of its text where the frame has texts, else the one that it holds."""
        if text in inp:
            row, unique = pd.factorize(strings(inp, text, self))
            return encode(unique)[row]
        vectors = inp[column].tolist()
        wrong = [np.shape(vector) != (self.model.dims,) for vector in vectors]
        table = np.empty((0, self.model.dims), np.float32)
        if vectors and not any(wrong):
            table = np.stack(vectors).astype(np.float32)
            wrong = ~(np.abs(np.linalg.norm(table, axis=1) - 1) < 1e-3)
        if np.any(wrong):
            row = inp.iloc[int(np.argmax(wrong))]
            raise ValueError(
                f"{self}: {int(np.sum(wrong))} of {len(inp)} rows hold a {column} that is not of this model, whose "
                f"vectors have length 1 and {self.model.dims} values (first at qid {row['qid']!r}, docno "
                f"{row['docno']!r}). Drop the column and give the text, or encode it by this model"
            )
        return table

    # Pairs of documents -----------------------------------------------------------------------------------------------

    def fit_pairs(
        self, pairs: pd.DataFrame, validation: pd.DataFrame | None = None, **settings: Any  # noqa: ANN401
    ) -> DualEncoder:
        """Trains the encoder on pairs of documents; see :func:`pyterrier_longdoc.pairs.fit_pairs`."""
        from pyterrier_longdoc.pairs import fit_pairs

        return fit_pairs(self, pairs, validation, **settings)

    def evaluate_pairs(
        self, pairs: pd.DataFrame, validation: pd.DataFrame | None = None, **options: Any  # noqa: ANN401
    ) -> dict[str, float]:
        """Scores pairs of documents and measures them; see :func:`pyterrier_longdoc.pairs.evaluate_pairs`."""
        from pyterrier_longdoc.pairs import evaluate_pairs, score_pairs

        scored = None if validation is None else score_pairs(self, validation)
        return evaluate_pairs(score_pairs(self, pairs), scored, **options)

    # Texts ------------------------------------------------------------------------------------------------------------

    def encode_queries(self, texts: Iterable[str], batch_size: int | None = None) -> np.ndarray:
        """Unit vectors of query texts, float32 ``[n, dims]``; each different text is encoded once.

        Raises:
            TypeError: If a query is missing or no string, or ``texts`` is a single one.
            FloatingPointError: If a vector is not finite.
        """
        return self._finite(self._encode(_listed(texts), "queries", batch_size), "queries")

    def encode_docs(self, texts: Iterable[str], batch_size: int | None = None) -> np.ndarray:
        """Unit vectors of document texts, float32 ``[n, dims]``; missing ones count as empty.

        Raises:
            TypeError: If a text is neither a string nor missing, or ``texts`` is a single one.
            FloatingPointError: If a vector is not finite.
        """
        read = ["" if pd.api.types.is_scalar(text) and pd.isna(text) else text for text in _listed(texts)]
        return self._finite(self._encode(read, "documents", batch_size), "documents")

    def encode_queries_torch(self, texts: Iterable[str], batch_size: int | None = None) -> Tensor:
        """The same as :meth:`encode_queries` as a tensor with gradients."""
        return self.model.encode_queries(self.tokenize(_listed(texts)), self.budget())

    def encode_docs_torch(self, texts: Iterable[str], batch_size: int | None = None) -> Tensor:
        """The same as :meth:`encode_docs` as a tensor with gradients."""
        return self.model.encode_documents(self._read(_listed(texts)), self.budget())

    def evidence(self, queries: list[str], documents: list[str], pairs: np.ndarray) -> list[list[WeightedWindow]]:
        """How near each stretch of a document alone is to the query; arguments as in :meth:`score_pairs`."""
        return stretch_evidence(self, queries, documents, pairs)

    def explain(
        self, res: pd.DataFrame | str, *others: str, names: Sequence[str] | None = None
    ) -> Explanation | Comparison:
        """Which parts of documents made the scores, or what is alike in two documents or more.

        Args:
            res: Results, scored or not; or a text, to be compared with the ``others``.
            *others: Further texts.
            names: What to call the texts; A, B, C ... by default.

        Returns:
            For results an :class:`~pyterrier_longdoc.explain.Explanation`, with a comparison of each row in
            ``comparisons``; for texts a :class:`~pyterrier_longdoc.explain.levels.Comparison`.
        """
        from pyterrier_longdoc.explain.levels import compare

        if isinstance(res, str):
            return compare(self, [res, *others], names)
        if others or names is not None:
            raise TypeError("explain takes either one frame of results, or two texts or more and their names")
        return super().explain(res)

    def parts(self, texts: Sequence[str], side: str = "documents") -> list[Parts]:
        """The vectors of texts and of their parts at three levels, each part read alone.

        Args:
            texts: The texts.
            side: ``"queries"``, or ``"documents"``, of which no more than ``max_doc_tokens`` are read.
        """
        from pyterrier_longdoc.explain.parts import parts_alone

        return parts_alone(self, texts, side)

    def score_pairs(self, queries: Sequence[str], documents: Sequence[str], pairs: np.ndarray) -> np.ndarray:
        """Scores pairs of texts without a frame; see :meth:`ReRanker.score_pairs`. Each text is encoded once."""
        if not len(pairs):
            return np.zeros(0)
        return _cosines(self._encode(queries, "queries"), self._encode(documents, "documents"), pairs)

    def _encode(self, texts: Sequence[str], side: str, batch_size: int | None = None) -> np.ndarray:
        for number, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"{self}: number {number} of the {side} is {type(text).__name__} {text!r}, not text")
        at_once = self.batch_size if batch_size is None else batch_size
        check_whole("batch_size", at_once)
        row, unique = pd.factorize(np.array(texts, dtype=object))
        vectors = np.zeros((len(unique), self.model.dims), np.float32)
        if not len(unique):
            return vectors
        tokens = self.tokenize(unique) if side == "queries" else self._read(unique)

        def compute(model: nn.Module, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return group, _encoder(model, side)(tokens.take(group), budget).float().cpu().numpy()

        budget = self.budget()
        pool = Pool(tokens.lengths, budget.times(_GROUP_FACTOR), max_items=at_once)
        name = f"{type(self).__name__} {side}"
        with pt.tqdm(total=len(unique), desc=name, unit=side[0], disable=not self.verbose) as bar:
            share_out(pool, compute, self.model, self.devices, self.dtype, vectors, bar)
        return vectors[row]

    def _finite(self, vectors: np.ndarray, side: str) -> np.ndarray:
        broken = ~np.isfinite(vectors).all(axis=1)
        if broken.any():
            hint = "" if self.dtype is None else f"; try dtype='float32' in place of {self.dtype}"
            first = int(broken.argmax())
            raise FloatingPointError(
                f"{self}: vectors of {int(broken.sum())} of {len(vectors)} {side} are not finite "
                f"(first: number {first}, from 0){hint}"
            )
        return vectors


def _encoder(model: DualEncoderModel, side: str) -> Any:  # noqa: ANN401
    return model.encode_queries if side == "queries" else model.encode_documents


def _cosines(queries: np.ndarray, documents: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Dot products of pairs of unit vectors, float64 ``[p]``; the same whatever other pairs there are."""
    scores = np.empty(len(pairs))
    for first in range(0, len(pairs), _PAIRS_AT_ONCE):
        part = pairs[first : first + _PAIRS_AT_ONCE]
        scores[first : first + len(part)] = np.einsum("pd,pd->p", queries[part[:, 0]], documents[part[:, 1]])
    return scores


def _listed(texts: Iterable[str]) -> list[str]:
    if isinstance(texts, str):
        raise TypeError(f"texts must be a list of texts, got one text: write [{texts[:20]!r}]")
    return list(texts)
