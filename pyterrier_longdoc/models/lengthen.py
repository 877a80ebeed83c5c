"""A Longformer or BigBird out of a BERT, as their authors made theirs.

The weights stay; the position embeddings are repeated until they reach far enough, and Longformer's projections of
global tokens start as copies of the others (Beltagy et al., arXiv 2004.05150, Section 5). On a text that fits into one
attention window the result computes what the BERT computed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pyterrier_longdoc.models.encoder import build_encoder, encoder_settings, max_positions

#: Encoders whose parameters have the same names as those of Longformer and BigBird.
LENGTHENED = ("bert", "roberta", "xlm-roberta", "camembert")
#: Settings that mean the same in all of them.
_SHARED = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act",
    "hidden_dropout_prob", "attention_probs_dropout_prob", "type_vocab_size", "layer_norm_eps", "initializer_range",
    "pad_token_id", "bos_token_id", "eos_token_id",
)
_POSITIONS = "embeddings.position_embeddings.weight"


def lengthened(encoder: PreTrainedModel, architecture: str, positions: int, **settings: Any) -> PreTrainedModel:  # noqa: ANN401
    """An encoder of another architecture with the weights of a BERT.

    Args:
        encoder: A BERT or RoBERTa without a head.
        architecture: ``"longformer"`` or ``"big_bird"``.
        positions: Tokens that the new encoder can read, special tokens included.
        **settings: Further settings of the new encoder, such as ``attention_window``.

    Raises:
        ValueError: If the encoder is of another kind.
    """
    if encoder.config.model_type not in LENGTHENED:
        kinds = ", ".join((architecture, *LENGTHENED))
        raise ValueError(f"the encoder is a {encoder.config.model_type}; a {architecture} can be made of {kinds}")
    known = encoder_settings(encoder)
    # Positions are numbered from behind the padding's in Longformer, as in RoBERTa, and from 0 in BigBird
    unused = 1 + known["pad_token_id"] if architecture == "longformer" else 0
    shared = {name: known[name] for name in _SHARED if name in known}
    with torch.random.fork_rng(devices=[]):  # of random weights, all of which are replaced
        target = build_encoder(
            {**shared, **settings, "model_type": architecture, "max_position_embeddings": positions + unused}
        )
    target.load_state_dict(_weights(encoder, target.state_dict(), unused), strict=True)
    return target.eval()


def _weights(encoder: PreTrainedModel, wanted: dict[str, Tensor], unused: int) -> dict[str, Tensor]:
    source = encoder.state_dict()
    usable = max_positions(encoder)
    table = source[_POSITIONS]
    rows = table[len(table) - usable :]
    repeated = rows[torch.arange(len(wanted[_POSITIONS]) - unused) % usable]
    source[_POSITIONS] = torch.cat([repeated.new_zeros(unused, repeated.shape[1]), repeated])
    # Buffers, such as the numbers of positions, stay as they are in the new encoder
    return {name: source.get(name.replace("_global.", "."), tensor) for name, tensor in wanted.items()}
