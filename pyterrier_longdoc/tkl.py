"""TKL as a transformer."""

from __future__ import annotations

from typing import Any

import pandas as pd

from pyterrier_longdoc.kernels import KernelReRanker
from pyterrier_longdoc.models.tkl import TKLModel
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

    def fit(self, topics_or_res_tr: pd.DataFrame, *args: Any, **settings: Any) -> TKL:  # noqa: ANN401
        """Trains the ranker; without a ``corpus``, term weights start from the IDF among the training documents."""
        if self.text_field in topics_or_res_tr and not self.model.has_idf and len(topics_or_res_tr):
            texts = topics_or_res_tr[self.text_field].dropna().unique()
            self.model.set_idf(inverse_document_frequency(self.tokenizer, texts, len(self.model.salience)))
        return super().fit(topics_or_res_tr, *args, **settings)
