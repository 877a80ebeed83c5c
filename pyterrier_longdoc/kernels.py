"""The kernel family as transformers: KNRM, Conv-KNRM and TK; TKL has a module of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import pyterrier as pt
import torch

from pyterrier_longdoc.checkpoint import fingerprint
from pyterrier_longdoc.devices import inference
from pyterrier_longdoc.document_cache import DocumentCache
from pyterrier_longdoc.explain import WeightedWindow
from pyterrier_longdoc.models.conv_knrm import ConvKNRMModel
from pyterrier_longdoc.models.kernel_data import Evidence
from pyterrier_longdoc.models.kernel_model import KernelModel
from pyterrier_longdoc.models.knrm import KNRMModel
from pyterrier_longdoc.models.tk import TKModel
from pyterrier_longdoc.pooling import Budget
from pyterrier_longdoc.reranker import ReRanker
from pyterrier_longdoc.text.tokens import tokenize
from pyterrier_longdoc.text.vectors import DEFAULT_ENCODER, Vectors, batched, inverse_document_frequency, texts_of
from pyterrier_longdoc.windows import Ragged

if TYPE_CHECKING:
    from torch import Tensor


class KernelReRanker(ReRanker):
    """Base of KNRM, Conv-KNRM, TK and TKL: a fresh model over given token vectors.

    Args:
        vectors: Where the token vectors come from: the name of an encoder, or :class:`Vectors`.
        corpus: Texts (or mappings with ``text_field``) from which term weights start, for the models that have them.
        seed: Seed of the other parameters.
        **settings: Fields of the model's config, and options of :class:`ReRanker`.

    Raises:
        TypeError: If a setting is neither, or the model has no term weights and gets a corpus.
    """

    model_class: ClassVar[type[KernelModel]]
    #: Encoded documents that are kept between calls; see :meth:`encode_documents`.
    document_cache: DocumentCache | None = None
    #: What explanations call the windows, and what they say of the weights.
    window_kind: ClassVar[str] = "stretch"
    weight_meaning: ClassVar[str] = "what the score would lose without the matches of a stretch of 30 tokens"
    #: Whether a weight under zero speaks against a document.
    weight_signed: ClassVar[bool] = True

    def __init__(
        self,
        vectors: str | Vectors = DEFAULT_ENCODER,
        *,
        corpus: Iterable[str | Mapping[str, str]] | None = None,
        seed: int = 0,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        source = vectors if isinstance(vectors, Vectors) else Vectors.from_encoder(vectors)
        names = {field.name for field in fields(self.model_class.config_class)} - {"dims", "vocabulary"}
        config = {name: settings.pop(name) for name in sorted(names & settings.keys())}
        rows, dims = source.table.shape
        if "heads" in names and "heads" not in config:
            config["heads"] = 10 if dims == 300 else 12
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = self.model_class(self.model_class.config_class(dims=dims, vocabulary=rows, **config))
        with torch.no_grad():
            model.vectors.weight.copy_(torch.from_numpy(source.table))
        if corpus is not None:
            if self.model_class.set_idf is KernelModel.set_idf:
                raise TypeError(f"{type(self).__name__} has no term weights that start from a corpus: leave it out")
            texts = texts_of(corpus, settings.get("text_field", "text"))
            model.set_idf(inverse_document_frequency(source.tokenizer, texts, rows))
        super().__init__(model, source.tokenizer, model_name=f"{source.name}#{fingerprint(model)}", **settings)

    def encode_documents(
        self, documents: pd.DataFrame | Iterable[Mapping[str, str]], path: str | None = None
    ) -> KernelReRanker:
        """Contextualises documents now and keeps the result, so that later queries pay for matching only.

        From then on every document that this ranker meets is kept; in memory, those longest unused go beyond 4 GiB.
        What training changes is never read from it.

        Args:
            documents: A frame or corpus iterator with ``text_field``.
            path: File to keep them in, for later sessions too; memory if ``None``.

        Returns:
            The ranker itself.
        """
        if self.document_cache is None or path is not None:
            self.document_cache = DocumentCache(path)
        field = self.text_field
        rows = documents[field] if isinstance(documents, pd.DataFrame) else (document[field] for document in documents)
        for part in batched("" if pd.isna(text) else text for text in rows):
            self.score_pairs([""], part, np.stack([np.zeros(len(part), np.int64), np.arange(len(part))], axis=1))
        return self

    def _score_group(
        self, model: KernelModel, queries: Ragged, documents: Ragged, pairs: np.ndarray, budget: Budget
    ) -> Tensor:
        if self.document_cache is None:
            return model(queries, documents, pairs, budget)
        kind = model.device.type
        precision = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float32
        settings = f"{self.representation_id()}/{precision}/{'alone' if model.training else 'together'}"
        vectors = self.document_cache.vectors(settings, documents, partial(_encode, model, budget))
        return model.match(model.encode_queries(queries), vectors.to(model.device), documents, pairs, budget)

    def representation_id(self) -> str:
        """A hash of the settings and of the weights that encode documents: training the others leaves it alone."""
        parameters = self.model.representation_parameters()
        stamp = [(parameter.data_ptr(), parameter._version) for parameter in parameters]
        known = self._identity.get("representation")  # fused optimizers leave no trace in a tensor's version
        if known is None or known[0] != stamp:
            known = (stamp, f"{self.model.config!r}/{fingerprint(parameters)}")
            self._identity["representation"] = known
        return known[1]

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: value for name, value in self._identity.items() if name != "representation"}
        return {**super().__getstate__(), "_identity": kept}

    def evidence(self, queries: list[str], documents: list[str], pairs: np.ndarray) -> list[list[WeightedWindow]]:
        """The windows that made the score of each pair; arguments as in :meth:`ReRanker.score_pairs`."""
        tokens = tokenize(self.tokenizer, queries), self._read(documents)
        with inference(self.devices[0], self.dtype):
            found = self.model.explain(*tokens, pairs, self.budget())
            bar = pt.tqdm(found, total=len(pairs), desc=f"{type(self).__name__} explains", disable=not self.verbose)
            return [self._weighted(regions) for regions in bar]

    def _weighted(self, regions: Evidence) -> list[WeightedWindow]:
        rows = zip(*(part.tolist() for part in regions), strict=True)
        return [
            WeightedWindow(weight, np.arange(start, end), self.window_kind) for start, end, weight in rows if start >= 0
        ]


class KNRM(KernelReRanker):
    """KNRM: kernel pooling over the cosines of static term vectors (Xiong et al., SIGIR 2017).

    Reads documents of any length. Arguments as in :class:`KernelReRanker`; settings in
    :class:`~pyterrier_longdoc.models.knrm.KNRMConfig`.
    """

    model_class = KNRMModel


class ConvKNRM(KernelReRanker):
    """Conv-KNRM: the same over n-grams (Dai et al., WSDM 2018).

    Reads documents of any length. Arguments as in :class:`KernelReRanker`; settings in
    :class:`~pyterrier_longdoc.models.conv_knrm.ConvKNRMConfig`.
    """

    model_class = ConvKNRMModel


class TK(KernelReRanker):
    """TK: a small Transformer over the head of a document, and kernel pooling (Hofstätter et al., ECAI 2020).

    Attention is over everything that is read, so the cost grows with the square of ``max_doc_tokens``: 200 unless you
    say otherwise, as in the papers. Arguments as in :class:`KernelReRanker`; settings in
    :class:`~pyterrier_longdoc.models.tk.TKConfig`.
    """

    model_class = TKModel
    default_max_doc_tokens = 200


def _encode(model: KernelModel, budget: Budget, documents: Ragged) -> Tensor:
    if not model.training:
        return model.encode_documents(documents, budget)
    # Each on its own, so that a resumed training, which meets them in other company, gets the very same bits
    with torch.no_grad():
        alone = [model.encode_documents(documents.take(np.array([i])), budget) for i in range(len(documents))]
    return torch.cat(alone)
