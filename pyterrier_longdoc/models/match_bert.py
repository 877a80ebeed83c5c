"""MatchBERT: one vector of the first tokens of a text by a BERT (Yang et al., CIKM 2020, section 3.2.1).

The baseline of SMITH, and with ``pooling="mean"`` any sentence encoder as it is. The texts of a call form one pool,
sorted by length, so that short queries are not padded to the documents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from pyterrier_longdoc.checks import check_whole
from pyterrier_longdoc.models.dual_encoder import DualEncoderModel, mean_state, unit
from pyterrier_longdoc.models.encoder import build_encoder, encode_sequences, first_token, max_positions
from pyterrier_longdoc.models.encoder_config import EncoderConfig
from pyterrier_longdoc.pooling import Budget
from pyterrier_longdoc.text.template import Sequences
from pyterrier_longdoc.windows import Ragged

#: What of the encoder's output is the vector of a text.
POOLINGS = ("pooler", "cls", "mean")


@dataclass(frozen=True)
class MatchBERTConfig(EncoderConfig):
    """Settings of :class:`MatchBERTModel`.

    Attributes:
        encoder: Settings of a Hugging Face encoder.
        template: How its tokenizer frames a text.
        pooling: ``"pooler"``: the encoder's own pooler over the first token (the paper); ``"cls"``: the first token's
            last state; ``"mean"``: the mean over all tokens, as most sentence encoders were trained.
        max_tokens: Tokens of a text that are read, special ones included; ``None``: as many as the encoder can.

    Raises:
        ValueError: If one is out of range.
    """

    pooling: str = "pooler"
    max_tokens: int | None = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pooling not in POOLINGS:
            raise ValueError(f"pooling must be one of {', '.join(map(repr, POOLINGS))}, got {self.pooling!r}")
        extra = self.template.single.extra
        if self.max_tokens is not None:
            check_whole("max_tokens", self.max_tokens, extra + 1, f" ({extra} are special ones), or None")

    @property
    def kind(self) -> str:
        """The kind of encoder; see :func:`~pyterrier_longdoc.models.encoder.build_encoder`."""
        return "pooled" if self.pooling == "pooler" else "base"


class MatchBERTModel(DualEncoderModel):
    """MatchBERT over token ids.

    Args:
        config: See :class:`MatchBERTConfig`.
        encoder: The encoder, if it exists already; otherwise one with random weights is built.
    """

    config_class = MatchBERTConfig

    def __init__(self, config: MatchBERTConfig, encoder: PreTrainedModel | None = None) -> None:
        super().__init__()
        self.config = config
        self.encoder = build_encoder(config.encoder, config.kind) if encoder is None else encoder

    @property
    def dims(self) -> int:
        """Length of a vector."""
        return self.encoder.config.hidden_size

    @property
    def max_text_tokens(self) -> int | None:
        """Tokens of a text that can be read, special ones not counted."""
        limits = [limit for limit in (self.config.max_tokens, max_positions(self.encoder)) if limit is not None]
        return min(limits) - self.config.template.single.extra if limits else None

    def representation_parameters(self) -> list[torch.nn.Parameter]:
        """The encoder's."""
        return list(self.encoder.parameters())

    def encode_documents(self, documents: Ragged, budget: Budget) -> Tensor:
        """Unit vectors of texts, float32 ``[n, dims]``; see :class:`DualEncoderModel`.

        Raises:
            ValueError: If a text is longer than the encoder's positions reach.
        """
        sequences = self.config.template.texts(documents)
        return unit(encode_sequences(self.encoder, sequences, budget, picker(self.config.pooling, sequences)))


def picker(pooling: str, sequences: Sequences) -> Callable[[Any, np.ndarray], Tensor]:
    """What takes the vectors of some sequences out of an encoder's output.

    Args:
        pooling: One of :data:`POOLINGS`.
        sequences: All sequences.
    """
    return {"pooler": _pooler, "cls": first_token, "mean": partial(_mean, lengths=sequences.lengths)}[pooling]


def _pooler(output: Any, items: np.ndarray) -> Tensor:  # noqa: ANN401 (an output of transformers)
    if getattr(output, "pooler_output", None) is None:
        raise ValueError("the encoder has no pooler; use pooling='cls' or pooling='mean'")
    return output.pooler_output


def _mean(output: Any, items: np.ndarray, lengths: np.ndarray) -> Tensor:  # noqa: ANN401
    return mean_state(output.last_hidden_state, lengths[items])
