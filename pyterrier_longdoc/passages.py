"""FirstP, MaxP, SumP, AvgP, k-max average and PARADE as transformers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import pyterrier as pt
import torch

from pyterrier_longdoc.checkpoint import fingerprint
from pyterrier_longdoc.devices import inference
from pyterrier_longdoc.explain import WeightedWindow
from pyterrier_longdoc.frames import strings
from pyterrier_longdoc.models.cross_encoder import CrossEncoderModel
from pyterrier_longdoc.models.encoder import encoder_settings, is_classifier, load_encoder
from pyterrier_longdoc.models.parade import PARADEModel
from pyterrier_longdoc.models.passages import PassageModel
from pyterrier_longdoc.reranker import ReRanker
from pyterrier_longdoc.text.sentences import tokenize_sentences
from pyterrier_longdoc.text.template import Template
from pyterrier_longdoc.text.titles import tokenize_titled, with_titles
from pyterrier_longdoc.text.vectors import DEFAULT_ENCODER
from pyterrier_longdoc.windows import Ragged

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class PassageReRanker(ReRanker):
    """Base of the passage rankers: a cross-encoder over the passages of each document.

    With ``max_passages`` only so many passages of a document are read, those that a cheap score prefers, and the output
    has one more column: ``passages_read``, the share of the document's passages that were read.

    Args:
        encoder: Directory or hub name of a Hugging Face encoder; MiniLM, which needs no network, by default.
        title_field: Column with titles; each passage is read with its document's title before it. Missing ones are
            empty.
        seed: Seed of the new parameters.
        **settings: Fields of the model's config, and options of :class:`~pyterrier_longdoc.reranker.ReRanker`.

    Raises:
        ValueError: If there is no such encoder, or a setting is out of range.
        TypeError: If there is no such setting.
    """

    model_class: ClassVar[type[PassageModel]] = CrossEncoderModel
    #: Settings of the model that make the ranker what it is.
    fixed: ClassVar[dict[str, Any]] = {}
    saved_options = (*ReRanker.saved_options, "title_field")
    title_field: str | None = None
    #: The pairwise hinge loss of PARADE, the encoder's rate and the batches of BERT-MaxP; a new head learns faster.
    fit_defaults: ClassVar[dict[str, Any]] = {
        "loss": "hinge", "lr": 1e-3, "representation_lr": 1e-5, "weight_decay": 0.01, "schedule": "linear",
        "clip_norm": 1.0, "batch_size": 16, "epochs": 3,
    }
    window_kind: ClassVar[str] = "passage"
    weight_meaning: ClassVar[str] = "the score of a passage"
    weight_signed: ClassVar[bool] = False  # a score means something beside others only

    def __init__(
        self,
        encoder: str = DEFAULT_ENCODER,
        *,
        title_field: str | None = None,
        seed: int = 0,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        classifier = issubclass(self.model_class, CrossEncoderModel) and is_classifier(encoder)
        module, tokenizer = self.load_encoder(encoder, "classifier" if classifier else "base")
        given = {"encoder": encoder_settings(module), "template": Template.of(tokenizer), "classifier": classifier}
        given.update(self.fixed)
        names = {field.name for field in fields(self.model_class.config_class)} - given.keys()
        given.update((name, settings.pop(name)) for name in sorted(names & settings.keys()))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = self.model_class(self.model_class.config_class(**given), module)
        self.title_field = title_field
        super().__init__(model, tokenizer, model_name=f"{encoder}#{fingerprint(model)}", **settings)

    def load_encoder(self, encoder: str, kind: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Loads the encoder and its tokenizer; see :func:`~pyterrier_longdoc.models.encoder.load_encoder`."""
        return load_encoder(encoder, kind)

    @classmethod
    def from_model(
        cls, model: PassageModel, tokenizer: Any, *, title_field: str | None = None, **options: Any  # noqa: ANN401
    ) -> PassageReRanker:
        """Wraps a model that exists already; arguments as in :class:`PassageReRanker`."""
        ranker = super().from_model(model, tokenizer, **options)
        ranker.title_field = title_field
        return ranker

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Scores and ranks; see the class and :meth:`ReRanker.transform`."""
        out = super().transform(inp)
        if self.model.config.max_passages is None:
            return out
        share = self._share_read(inp) if len(inp) else np.empty(0)
        return out.drop(columns="rank").assign(passages_read=share, rank=out["rank"])

    def _share_read(self, inp: pd.DataFrame) -> np.ndarray:
        row, documents = pd.factorize(inp[self.text_field].astype(object).where(inp[self.text_field].notna(), ""))
        tokens = self.tokenize(list(documents))
        tokens = tokens if self.max_doc_tokens is None else tokens.head(np.full(len(tokens), self.max_doc_tokens))
        passages = np.bincount(self.model.document_windows(tokens).document, minlength=len(tokens))
        return (np.minimum(passages, self.model.config.max_passages) / passages)[row]

    @property
    def text_columns(self) -> list[str]:
        """See :attr:`ReRanker.text_columns`."""
        return [self.text_field] if self.title_field is None else [self.text_field, self.title_field]

    def attributes(self) -> list[pt.inspect.TransformerAttribute]:
        """See :meth:`ReRanker.attributes`."""
        return [*super().attributes(), pt.inspect.TransformerAttribute("title_field", self.title_field)]

    def _documents(self, inp: pd.DataFrame) -> pd.Series:
        texts = super()._documents(inp)
        if self.title_field is None:
            return texts
        titles = inp[self.title_field].astype(object).where(inp[self.title_field].notna(), "")
        return pd.Series(with_titles(strings(inp.assign(**{self.title_field: titles}), self.title_field, self), texts))

    def tokenize(self, texts: Sequence[str]) -> Ragged:
        """See :meth:`ReRanker.tokenize`; with the borders of sentences, and with titles, where they are asked for."""
        plain = super().tokenize
        if self.model.config.unit == "sentence":
            plain = lambda texts: tokenize_sentences(self.tokenizer, texts)  # noqa: E731
        return plain(texts) if self.title_field is None else tokenize_titled(plain, texts)

    def evidence(self, queries: list[str], documents: list[str], pairs: np.ndarray) -> list[list[WeightedWindow]]:
        """The passages that were read for each pair; arguments as in :meth:`ReRanker.score_pairs`."""
        tokens = self.tokenize(queries), self._read(documents)
        with inference(self.devices[0], self.dtype):
            found = self.model.explain(*tokens, pairs, self.budget())
            bar = pt.tqdm(found, total=len(pairs), desc=f"{type(self).__name__} explains", disable=not self.verbose)
            return [
                [WeightedWindow(float(weight), row, self.window_kind) for row, weight in zip(*each, strict=True)]
                for each in bar
            ]


class FirstP(PassageReRanker):
    """FirstP: the head of a document, as one passage (Dai and Callan, SIGIR 2019).

    Reads ``max_doc_tokens`` of a document, 448 unless you say otherwise: that leaves room for a query of 60 tokens in
    the 512 positions of most encoders. Arguments as in :class:`PassageReRanker`.
    """

    default_max_doc_tokens = 448
    fixed: ClassVar[dict[str, Any]] = {
        "aggregation": "first", "k": 1, "passage_tokens": None, "overlap": 0, "unit": "token", "max_passages": None,
        "selector": "first", "train_passages": None,
    }


class MaxP(PassageReRanker):
    """MaxP: a document is as good as its best passage (Dai and Callan, SIGIR 2019).

    Reads documents of any length. The encoder is a sequence classifier, used as it is (one label: its logit; two: the
    second logit less the first), or any encoder, which gets a new head to be trained with ``fit``. Required input
    columns: ``qid``, ``query``, ``docno`` and ``text_field``. Arguments as in :class:`PassageReRanker`; settings
    (``passage_tokens``, ``overlap``, ``unit`` ...) in :class:`~pyterrier_longdoc.models.passages.PassageConfig`.

    Example::

        maxp = MaxP("cross-encoder/ms-marco-MiniLM-L6-v2", passage_tokens=200, overlap=50)
        pipeline = bm25 % 100 >> dataset.text_loader() >> maxp
    """

    fixed: ClassVar[dict[str, Any]] = {"aggregation": "max", "k": 1}


class SumP(PassageReRanker):
    """SumP: the sum of the scores of all passages (Dai and Callan, SIGIR 2019). Otherwise as :class:`MaxP`."""

    fixed: ClassVar[dict[str, Any]] = {"aggregation": "sum", "k": 1}


class AvgP(PassageReRanker):
    """AvgP: the mean score of all passages. Otherwise as :class:`MaxP`."""

    fixed: ClassVar[dict[str, Any]] = {"aggregation": "mean", "k": 1}


class KMaxP(PassageReRanker):
    """K-max average: the mean score of the ``k`` best passages, 3 by default. Otherwise as :class:`MaxP`.

    ``pt.text.kmaxavg_passage`` computes the same from passages as rows.
    """

    fixed: ClassVar[dict[str, Any]] = {"aggregation": "kmax"}


class PARADE(PassageReRanker):
    """PARADE: the vectors of a document's passages, aggregated into one and scored (Li et al., 2020).

    Reads documents of any length. ``aggregation`` is ``"transformer"`` (default), ``"cnn"``, ``"attention"``, ``"max"``
    or ``"mean"``. Its head is new: it has to be trained with ``fit``. Arguments as in :class:`PassageReRanker`;
    settings in :class:`~pyterrier_longdoc.models.parade.PARADEConfig`.
    """

    model_class = PARADEModel
    weight_meaning: ClassVar[str] = "what the score would lose without a passage; of a single passage, the score"
    weight_signed: ClassVar[bool] = True
