"""HAN and SMASH as transformers: the recurrent baselines of SMITH, which read documents of any length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from pyterrier_longdoc.checkpoint import fingerprint
from pyterrier_longdoc.devices import inference
from pyterrier_longdoc.dual_encoder import DualEncoder
from pyterrier_longdoc.explain import WeightedWindow
from pyterrier_longdoc.models.han import HANConfig, HANModel
from pyterrier_longdoc.models.smash import SMASHModel
from pyterrier_longdoc.text.sentences import Structured, tokenize_sentences
from pyterrier_longdoc.text.vectors import DEFAULT_ENCODER, Vectors

#: What the parts of a tower are, by its depth.
_KINDS = {1: "word", 2: "sentence", 3: "paragraph"}


class HAN(DualEncoder):
    """HAN: attention over words makes sentence vectors, attention over these a document (Yang et al., NAACL 2016).

    A document's vector is a sum over its sentences, so the score is one too: that is its explanation.

    Args:
        vectors: Where the token vectors come from: the name of an encoder, or :class:`Vectors`.
        hidden: States of a GRU in each direction.
        seed: Seed of the other parameters.
        **options: Options of :class:`~pyterrier_longdoc.reranker.ReRanker`.
    """

    model_class: ClassVar[type[HANModel]] = HANModel
    model: HANModel
    fit_defaults: ClassVar[dict[str, Any]] = {
        "loss": "listwise", "lr": 1e-3, "representation_lr": 1e-4, "clip_norm": 5.0,
    }
    window_kind: ClassVar[str] = "sentence"
    weight_meaning: ClassVar[str] = "what a sentence adds to the cosine"

    def __init__(
        self, vectors: str | Vectors = DEFAULT_ENCODER, *, hidden: int = 50, seed: int = 0, **options: Any  # noqa: ANN401
    ) -> None:
        source = vectors if isinstance(vectors, Vectors) else Vectors.from_encoder(vectors)
        rows, dims = source.table.shape
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = self.model_class(HANConfig(dims, rows, hidden))
        with torch.no_grad():
            model.vectors.weight.copy_(torch.from_numpy(source.table))
        super().__init__(model, source.tokenizer, model_name=f"{source.name}#{fingerprint(model)}", **options)

    def tokenize(self, texts: Sequence[str]) -> Structured:
        """Token ids of whole texts, with their sentences and paragraphs."""
        return tokenize_sentences(self.tokenizer, texts)

    def evidence(self, queries: list[str], documents: list[str], pairs: np.ndarray) -> list[list[WeightedWindow]]:
        """What each part of a document adds to its score; arguments as in :meth:`ReRanker.score_pairs`.

        The weights of a document's windows sum up to its score, the cosine.
        """
        vectors = self.encode_queries(queries)
        tokens = self._read(documents)
        with inference(self.devices[0], self.dtype):
            towers = [
                (_KINDS[depth], part.states.float().cpu().numpy(), part.document, part.tokens)
                for depth, part in zip(self.model.depths, self.model.parts(tokens, self.budget()), strict=True)
            ]
        return [
            _windows(vectors[query], towers, document) if len(tokens[document]) else [] for query, document in pairs
        ]


class SMASH(HAN):
    """SMASH: HAN's towers over words, sentences and paragraphs, side by side (Jiang et al., WWW 2019).

    Arguments as in :class:`HAN`. An explanation has sentences, with what their words add too, and paragraphs.
    """

    model_class = SMASHModel
    weight_meaning = "what a sentence or paragraph adds to the cosine"


def _windows(query: np.ndarray, towers: list[tuple], document: int) -> list[WeightedWindow]:
    """The parts of a document, weighed by their share in the cosine."""
    chosen = [(kind, states[of == document], tokens[of == document]) for kind, states, of, tokens in towers]
    length = float(np.linalg.norm(np.concatenate([states.sum(0) for _, states, _ in chosen])))
    shares = np.split(query / length, len(chosen))
    weights = {kind: states @ share for (kind, states, _), share in zip(chosen, shares, strict=True)}
    spans = {kind: tokens for kind, _, tokens in chosen}
    if "word" in weights:  # a window for every word would be no explanation
        words = np.append(0, np.cumsum(weights.pop("word")))
        weights["sentence"] = weights["sentence"] + words[spans["sentence"]] @ np.array([-1, 1])
    return [
        WeightedWindow(float(weight), np.arange(*span), kind)
        for kind in weights
        for weight, span in zip(weights[kind], spans[kind], strict=True)
    ]
