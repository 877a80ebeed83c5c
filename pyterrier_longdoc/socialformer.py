"""Socialformer as a transformer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from hashlib import blake2b
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import pyterrier as pt
import torch

from pyterrier_longdoc.checkpoint import fingerprint
from pyterrier_longdoc.devices import inference
from pyterrier_longdoc.explain import WeightedWindow
from pyterrier_longdoc.graph import PATTERNS, Adjacency, SocialWeights
from pyterrier_longdoc.models.encoder import encoder_settings, load_encoder
from pyterrier_longdoc.models.socialformer import SocialformerModel
from pyterrier_longdoc.recent import Recent
from pyterrier_longdoc.reranker import ReRanker
from pyterrier_longdoc.text.template import Template
from pyterrier_longdoc.text.vectors import DEFAULT_ENCODER, document_frequency, texts_of
from pyterrier_longdoc.windows import Ragged

#: Bytes of token ids that are remembered: some 8,000 documents of 2,000 tokens.
_REMEMBERED = 64 * 2**20


class SocialGraph(NamedTuple):
    """The social graph of a document for a query.

    Attributes:
        weights: How likely its tokens know each other.
        adjacency: Which ones do.
        circles: The friend circles: positions of tokens, the centre first.
    """

    weights: SocialWeights
    adjacency: Adjacency
    circles: list[np.ndarray]


class Socialformer(ReRanker):
    """Socialformer: passages and friend circles of a social graph over tokens (Zhou et al., WWW 2022).

    Reads 2,048 tokens of a document unless ``max_doc_tokens`` says otherwise. Required input columns: ``qid``,
    ``query``, ``docno`` and ``text_field``. The graph of a document depends on (seed, query, document) alone.

    The ablations of the paper are one argument each: ``patterns=`` without one of the four, ``patterns=[]`` for random
    edges, ``n_circles=0`` for plain passages, ``exchange=False`` for groups that do not hear of each other.

    Args:
        encoder: Directory or hub name of a Hugging Face encoder of BERT's kind; MiniLM, which needs no network, by
            default.
        partition: ``"node"``: the tokens of a circle leave the graph; ``"edge"``: only the connections among them do.
        sparsity: Share of the pairs of tokens that are not connected.
        n_circles: At most so many circles.
        patterns: Among ``"static_distance"``, ``"static_centrality"``, ``"dynamic_distance"`` and
            ``"dynamic_centrality"``.
        centrality: Dynamic centrality: by ``"attention"`` of a frozen copy of the encoder, which costs one pass of 512
            tokens a pair, by ``"cosine"`` alone, or by a function from token ids of a query and a document to weights.
        corpus: Texts (or mappings with ``text_field``) whose document frequencies weigh terms; without, ``fit`` takes
            them from the training documents, and until then all terms weigh the same.
        seed: Seed of the graphs and of new parameters.
        **settings: Fields of :class:`~pyterrier_longdoc.models.social_settings.SocialformerConfig` (``aggregation``,
            ``max_nodes``, ``exchange`` ...), and options of :class:`ReRanker`.

    Raises:
        ValueError: If there is no such encoder, it is of another kind, or a setting is out of range.
        TypeError: If there is no such setting, or the corpus holds no texts.

    Example::

        bm25 = index.bm25(num_results=100)
        socialformer = Socialformer(partition="edge", corpus=dataset.get_corpus_iter())
        pipeline = bm25 >> dataset.text_loader() >> socialformer
        pipeline.fit(train_topics, train_qrels, valid_topics, valid_qrels)
    """

    model_class = SocialformerModel
    default_max_doc_tokens = 2_048
    #: Section 4.3 of the paper; seven negatives are the listwise loss's default.
    fit_defaults: ClassVar[dict[str, Any]] = {
        "loss": "listwise", "lr": 1e-5, "representation_lr": 1e-5, "weight_decay": 0.01, "batch_size": 8, "epochs": 1,
    }

    def __init__(
        self,
        encoder: str = DEFAULT_ENCODER,
        *,
        partition: str = "node",
        sparsity: float = 0.93,
        n_circles: int = 16,
        patterns: Sequence[str] = PATTERNS,
        centrality: str | Callable[[np.ndarray, np.ndarray], np.ndarray] = "attention",
        corpus: Iterable[str | Mapping[str, str]] | None = None,
        seed: int = 0,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        module, tokenizer = _load(encoder)
        given = {"encoder": encoder_settings(module), "template": Template.of(tokenizer)}
        given |= {"partition": partition, "sparsity": sparsity, "n_circles": n_circles, "patterns": patterns}
        given |= {"seed": seed, "centrality": "custom" if callable(centrality) else centrality}
        names = {field.name for field in fields(self.model_class.config_class)} - given.keys()
        given.update((name, settings.pop(name)) for name in sorted(names & settings.keys()))
        config, function = self.model_class.config_class(**given), centrality if callable(centrality) else None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            model = self.model_class(config, module, function)
        if corpus is not None:
            texts = texts_of(corpus, settings.get("text_field", "text"))
            model.social.set_document_frequency(*document_frequency(tokenizer, texts, config.vocabulary))
        super().__init__(model, tokenizer, model_name=f"{encoder}#{fingerprint(model)}", **settings)

    @classmethod
    def from_model(
        cls,
        model: SocialformerModel,
        tokenizer: Any,  # noqa: ANN401
        *,
        centrality: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> Socialformer:
        """Wraps a model that exists already.

        Args:
            model: The model.
            tokenizer: Its encoder's tokenizer.
            centrality: The function of a model that was made with one of the user's own.
            **options: As in :class:`ReRanker`.

        Raises:
            ValueError: If there is a function, but the model has a centrality of its own.
        """
        if centrality is not None:
            if model.config.centrality != "custom":
                raise ValueError(f"the model has centrality={model.config.centrality!r}, not a function of the user's")
            model.social.centrality = centrality
        return super().from_model(model, tokenizer, **options)

    def fit(self, topics_or_res_tr: pd.DataFrame, *args: Any, **settings: Any) -> Socialformer:  # noqa: ANN401
        """Trains the ranker; without a ``corpus``, document frequencies are those of the training documents."""
        social, wanted = self.model.social, "static_centrality" in self.model.config.patterns
        if self.text_field not in topics_or_res_tr or not wanted or social.has_idf or not len(topics_or_res_tr):
            return super().fit(topics_or_res_tr, *args, **settings)
        texts, before = topics_or_res_tr[self.text_field].dropna().unique(), social.idf
        social.set_document_frequency(*document_frequency(self.tokenizer, texts, len(before)))
        try:
            return super().fit(topics_or_res_tr, *args, **settings)
        except (TypeError, ValueError):  # refused before the first step
            social.idf = before
            raise

    def tokenize(self, texts: Sequence[str]) -> Ragged:
        """See :meth:`ReRanker.tokenize`; texts that were read lately are not tokenised again."""
        return self._tokens.of(texts, super().tokenize)

    @property
    def _tokens(self) -> _Tokens:
        return self._identity.setdefault("tokens", _Tokens())

    @property
    def weight_meaning(self) -> str:
        """What the weights of explanations mean."""
        if self.model.config.aggregation == "max":
            return "what a passage or circle adds to the score, in the features where it won the maximum"
        return "what a passage or circle adds to the score: its state times the gradient"

    def social_graph(self, query: str, text: str) -> SocialGraph:
        """The graph that is drawn for a document and a query, and its circles.

        Args:
            query: The query's text.
            text: The document's text, read up to ``max_doc_tokens``.

        Raises:
            TypeError: If the query or text is no string.
        """
        for name, value in (("query", query), ("text", text)):
            if not isinstance(value, str):
                raise TypeError(f"{self}: {name} must be a string, got {type(value).__name__}")
        ids, tokens, social = self.tokenize([query])[0], self._read([text])[0], self.model.social
        with inference(self.devices[0], None):
            weights = social.weights(ids, tokens)
        return SocialGraph(weights, social.graph(ids, tokens, weights), social.circles(ids, tokens, weights))

    def evidence(self, queries: list[str], documents: list[str], pairs: np.ndarray) -> list[list[WeightedWindow]]:
        """The passages and circles of each pair; arguments as in :meth:`ReRanker.score_pairs`."""
        tokens = self.tokenize(queries), self._read(documents)
        with inference(self.devices[0], self.dtype):
            found = self.model.explain(*tokens, pairs, self.budget())
            bar = pt.tqdm(found, total=len(pairs), desc=f"{type(self).__name__} explains", disable=not self.verbose)
            return [
                [
                    WeightedWindow(float(weight), groups.positions[i], "circle" if groups.is_circle[i] else "passage")
                    for i, weight in enumerate(weights)
                ]
                for groups, weights in bar
            ]


class _Tokens:
    """Token ids of texts, tokenised once as long as they are remembered."""

    def __init__(self) -> None:
        self._recent = Recent(_REMEMBERED)

    def of(self, texts: Sequence[str], tokenize: Callable[[Sequence[str]], Ragged]) -> Ragged:
        keys = [blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest() for text in texts]
        known = {key: self._recent.get(key) for key in keys}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if known[key] is None}
        if missing:
            fresh = tokenize(list(missing.values()))
            for place, key in enumerate(missing):
                known[key] = fresh[place].copy()
                self._recent.put(key, known[key])
        return Ragged.from_lists([known[key] for key in keys])


def _load(encoder: str) -> tuple[Any, Any]:
    """An encoder with its pooler, if its files have one."""
    try:
        return load_encoder(encoder, "pooled")
    except ValueError as error:
        if isinstance(error.__cause__, OSError):  # there is no such encoder
            raise
        return load_encoder(encoder)
