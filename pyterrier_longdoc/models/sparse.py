"""Cross-encoders that read a document as one sequence: Longformer, QDS-Transformer, BigBird, and any long encoder.

The whole document is the one passage of :mod:`~pyterrier_longdoc.models.passages`. What differs is who attends to
whom. In Longformer every token sees a window around it, and some tokens see, and are seen by, all: the query's tokens,
or in QDS-Transformer also the first token of each sentence. In BigBird blocks of tokens see their neighbours, the ends
and some random blocks. The budget of a batch counts what is computed: padding to whole windows or blocks included, and
tokens that attend to more others than BERT's do by as much more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from pyterrier_longdoc.models.block_attention import BlockAttention, full_attention_limit
from pyterrier_longdoc.models.cross_encoder import CrossEncoderConfig, CrossEncoderModel
from pyterrier_longdoc.models.passages import Passages
from pyterrier_longdoc.models.unpadded import unpad
from pyterrier_longdoc.models.window_attention import WindowAttention
from pyterrier_longdoc.text.template import Sequences
from pyterrier_longdoc.windows import Ragged

#: Keys of a token in BERT, whose tokens the default budgets were measured with.
_USUAL_KEYS = 512
#: Which tokens of a Longformer see all others.
GLOBAL_TOKENS = ("first", "query", "sentences")


@dataclass(frozen=True)
class LongConfig(CrossEncoderConfig):
    """Settings of a cross-encoder that reads each document as one sequence."""

    passage_tokens: int | None = None
    overlap: int = 0
    train_passages: int | None = None
    aggregation: str = "first"


class LongModel(CrossEncoderModel):
    """Any encoder with enough positions; one of the ModernBERT family without padding where the device can.

    Args:
        config: The settings.
        encoder: As in :class:`~pyterrier_longdoc.models.passages.PassageModel`.

    Raises:
        ValueError: If the encoder is of another architecture.
    """

    config_class = LongConfig
    #: The ``model_type`` that the encoder must have, if any.
    architecture: str | None = None

    def __init__(self, config: LongConfig, encoder: PreTrainedModel | None = None) -> None:
        found = config.encoder.get("model_type")
        if self.architecture not in (None, found):
            raise ValueError(f"the encoder must be a {self.architecture}, but it is a {found}; LongCE takes any")
        super().__init__(config, encoder)
        unpad(self.encoder)


@dataclass(frozen=True)
class LongformerConfig(LongConfig):
    """Settings of Longformer and QDS-Transformer.

    Attributes:
        global_tokens: Which tokens see all others: the ``"first"`` only; all up to the document, so the ``"query"``;
            or those and the first one of each of the document's ``"sentences"``.
    """

    global_tokens: str = "query"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.global_tokens not in GLOBAL_TOKENS:
            raise ValueError(f"global_tokens must be one of {', '.join(GLOBAL_TOKENS)}, got {self.global_tokens!r}")
        if self.global_tokens == "sentences" and self.unit != "sentence":
            raise ValueError("global_tokens='sentences' needs to know where sentences begin: use QDSTransformer")


class LongformerModel(LongModel):
    """Longformer (Beltagy et al., arXiv 2004.05150); QDS-Transformer (Jiang et al., Findings of EMNLP 2020).

    Args:
        config: The settings.
        encoder: A Longformer of transformers; its attention is replaced by that of
            :mod:`~pyterrier_longdoc.models.window_attention`.
    """

    config_class = LongformerConfig
    architecture = "longformer"

    def __init__(self, config: LongformerConfig, encoder: PreTrainedModel | None = None) -> None:
        super().__init__(config, encoder)
        for layer in self.encoder.base_model.encoder.layer:
            layer.attention.self = WindowAttention(layer.attention.self)

    def options(self, sequences: Sequences, documents: Ragged, passages: Passages) -> dict[str, Any]:
        """Which tokens are global, and what each sequence takes of the budget."""
        seen = self._global(sequences, documents, passages)

        def more(batch: np.ndarray, mask: np.ndarray) -> dict[str, np.ndarray]:
            index, real = sequences.ids.flat_index(batch)
            # Without any mask transformers takes padding up to whole windows for tokens
            masks = {"global_attention_mask": seen[index] & real, "attention_mask": mask}
            return {name: each.astype(np.int64) for name, each in masks.items()}

        window = max(np.atleast_1d(self.encoder.config.attention_window))
        computed = -(-sequences.lengths // window) * window
        block = max(layer.attention.self.block for layer in self.encoder.base_model.encoder.layer)
        keys = window + block + np.add.reduceat(seen, sequences.ids.offsets[:-1], dtype=np.int64)
        return {"more": more, "lengths": np.ceil(computed * np.maximum(1, keys / _USUAL_KEYS))}

    def _global(self, sequences: Sequences, documents: Ragged, passages: Passages) -> np.ndarray:
        """Which of all tokens are global, bool, parallel to ``sequences.ids.values``."""
        offsets, document = sequences.ids.offsets, sequences.starts[:, 1]
        ends = np.ones_like(document) if self.config.global_tokens == "first" else document
        seen = np.arange(offsets[-1]) - np.repeat(offsets[:-1], sequences.lengths) < np.repeat(ends, sequences.lengths)
        if self.config.global_tokens == "sentences":
            sentences = getattr(documents, "body", documents).starts().take(passages.windows.document)
            behind = len(self.config.template.pair.specials[-1])
            begin = sequences.ids.offsets[1:] - behind - passages.windows.widths  # behind the title, if there is one
            seen[sentences.values + np.repeat(begin, sentences.lengths)] = True
        return seen


@dataclass(frozen=True)
class BigBirdConfig(LongConfig):
    """Settings of BigBird.

    Attributes:
        block_seed: Seed of the random blocks.
    """

    block_seed: int = 0


class BigBirdModel(LongModel):
    """BigBird (Zaheer et al., NeurIPS 2020), with the attention of :mod:`~pyterrier_longdoc.models.block_attention`.

    Args:
        config: The settings.
        encoder: A BigBird of transformers; its attention is replaced.
    """

    config_class = BigBirdConfig
    architecture = "big_bird"

    def __init__(self, config: BigBirdConfig, encoder: PreTrainedModel | None = None) -> None:
        super().__init__(config, encoder)
        base, settings = self.encoder.base_model, self.encoder.config
        base.set_attention_type("original_full")  # which leaves masks, padding and everything else alone
        for number, layer in enumerate(base.encoder.layer):
            layer.attention.self = BlockAttention(
                layer.attention.self, block=settings.block_size, random=settings.num_random_blocks,
                dropout=settings.attention_probs_dropout_prob, seed=config.block_seed, layer=number,
            )

    def options(self, sequences: Sequences, documents: Ragged, passages: Passages) -> dict[str, Any]:
        """Sequences of as many blocks share a batch, and those that are read with full attention."""
        settings = self.encoder.config
        blocks = -(-sequences.lengths // settings.block_size)
        full = sequences.lengths <= full_attention_limit(settings.block_size, settings.num_random_blocks)
        return {
            "kinds": np.where(full, 0, blocks),
            "lengths": np.where(full, sequences.lengths, blocks * settings.block_size),
        }
