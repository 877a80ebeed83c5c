"""MatchBERT as a transformer: the baseline of SMITH, and any sentence encoder as a dual encoder of this package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, ClassVar

from pyterrier_longdoc.checkpoint import fingerprint
from pyterrier_longdoc.dual_encoder import DualEncoder
from pyterrier_longdoc.models.encoder import encoder_settings, load_encoder
from pyterrier_longdoc.models.match_bert import MatchBERTConfig, MatchBERTModel
from pyterrier_longdoc.text.template import Template
from pyterrier_longdoc.text.vectors import DEFAULT_ENCODER
from pyterrier_longdoc.windows import Ragged


class MatchBERT(DualEncoder):
    """MatchBERT: the cosine of two texts' vectors by one BERT over their first 512 tokens (Yang et al., CIKM 2020).

    Queries are texts like documents and may be documents: of both, so many tokens are read as ``max_tokens`` says,
    and a warning counts the others.

    Args:
        encoder: Directory or hub name of a Hugging Face encoder; MiniLM, which needs no network, by default.
        **settings: ``pooling`` and ``max_tokens`` of :class:`~pyterrier_longdoc.models.match_bert.MatchBERTConfig`,
            and options of :class:`~pyterrier_longdoc.reranker.ReRanker`.

    Raises:
        ValueError: If there is no such encoder, or a setting is out of range.
        TypeError: If there is no such setting.
    """

    model_class = MatchBERTModel
    model: MatchBERTModel
    #: Rate and batch of the paper; scale and bias, which start far from any checkpoint, learn faster.
    fit_defaults: ClassVar[dict[str, Any]] = {
        "loss": "listwise", "lr": 1e-3, "representation_lr": 5e-5, "batch_size": 32, "epochs": 3, "clip_norm": 1.0,
        "schedule": "linear",
    }

    def __init__(self, encoder: str = DEFAULT_ENCODER, **settings: Any) -> None:  # noqa: ANN401
        names = {field.name for field in fields(MatchBERTConfig)} - {"encoder", "template"}
        chosen = {name: settings.pop(name) for name in sorted(names & settings.keys())}
        kind = "pooled" if chosen.get("pooling", MatchBERTConfig.pooling) == "pooler" else "base"
        module, tokenizer = load_encoder(encoder, kind)
        config = MatchBERTConfig(encoder_settings(module), Template.of(tokenizer), **chosen)
        model = MatchBERTModel(config, module)
        super().__init__(model, tokenizer, model_name=f"{encoder}#{fingerprint(model)}", **settings)

    def tokenize(self, texts: Sequence[str]) -> Ragged:
        """Token ids of the heads of texts, as many as the model reads; a warning counts what is left out."""
        return self._cut(super().tokenize(texts), self.model.max_text_tokens, "the limit of the encoder", "texts")
