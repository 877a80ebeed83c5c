"""TKL as a transformer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch

from pyterrier_longdoc.devices import inference
from pyterrier_longdoc.kernels import KernelReRanker
from pyterrier_longdoc.models.tkl import TKLModel
from pyterrier_longdoc.text.tokens import character_spans, tokenize
from pyterrier_longdoc.text.vectors import inverse_document_frequency


class TKL(KernelReRanker):
    """TKL: local self-attention over long text (Hofstätter et al., SIGIR 2020).

    Reads documents of any length at a cost that grows linearly; ``max_doc_tokens`` bounds it. Required input columns:
    ``qid``, ``query``, ``docno`` and ``text_field``. Arguments as in
    :class:`~pyterrier_longdoc.kernels.KernelReRanker`; settings (``saturation``, ``layers``, ``peaks`` ...) in
    :class:`~pyterrier_longdoc.models.tkl.TKLConfig`.

    Example::

        bm25 = index.bm25(num_results=100)
        tkl = TKL(corpus=dataset.get_corpus_iter())
        pipeline = bm25 >> dataset.text_loader() >> tkl
        pipeline.fit(train_topics, train_qrels, valid_topics, valid_qrels)
    """

    model_class = TKLModel
    window_kind = "region"
    weight_signed = False  # what a region without any match adds is not zero, but some number of the model's
    weight_meaning = "what a region picked as a peak, with its neighbours, adds to the score; they add up to it"

    def fit(self, topics_or_res_tr: pd.DataFrame, *args: Any, **settings: Any) -> TKL:  # noqa: ANN401
        """Trains the ranker; without a ``corpus``, term weights start from the IDF among the training documents."""
        if self.text_field not in topics_or_res_tr or self.model.has_idf or not len(topics_or_res_tr):
            return super().fit(topics_or_res_tr, *args, **settings)
        texts = topics_or_res_tr[self.text_field].dropna().unique()
        before = self.model.salience.detach().cpu().numpy().copy()
        self.model.set_idf(inverse_document_frequency(self.tokenizer, texts, len(before)))
        try:
            return super().fit(topics_or_res_tr, *args, **settings)
        except (TypeError, ValueError):  # refused before the first step
            self.model.set_idf(before)
            raise

    def topography(self, query: str, text: str) -> pd.DataFrame:
        """The relevance topography s^r of a document (eq. 6): the score of each of its overlapping regions.

        Args:
            query: The query's text.
            text: The document's text, read up to ``max_doc_tokens``.

        Returns:
            One row a region: ``region`` (from 0), ``start_token``, ``start_char``, ``score``; none without tokens.

        Raises:
            TypeError: If the query or text is no string.
        """
        for name, value in (("query", query), ("text", text)):
            if not isinstance(value, str):
                raise TypeError(f"{self}: {name} must be a string, got {type(value).__name__}")
        tokens = self._read([text])
        starts = np.arange(0, len(tokens.values), self.model.config.stride)
        scores = np.empty(0)
        if len(starts):
            with inference(self.devices[0], self.dtype):
                encoded = self.model.encode_queries(tokenize(self.tokenizer, [query]))
                vectors = self.model.encode_documents(tokens, self.budget())[None]
            mask = torch.ones(vectors.shape[:2], dtype=torch.bool, device=vectors.device)
            with inference(self.devices[0], None):
                scores = self.model.topography(encoded, vectors, mask)[0][0].double().cpu().numpy()
        characters = character_spans(self.tokenizer, text)[starts, 0]
        regions = {"region": np.arange(len(starts)), "start_token": starts, "start_char": characters, "score": scores}
        return pd.DataFrame(regions)
