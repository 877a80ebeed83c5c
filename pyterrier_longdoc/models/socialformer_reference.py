"""Parameters and inputs of the published Socialformer (smallporridge/Socialformer, ``model/model.py``)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from pyterrier_longdoc.text.template import Sequences
from pyterrier_longdoc.windows import Ragged

#: First parts of names there -> here; the encoder's come first.
_NAMES = {
    "embeddings.": "encoder.embeddings.", "layer.": "encoder.encoder.layer.", "pooler.dense.": "pooler.",
    "passage_transformer.": "exchange.layer.", "mlp.": "exchange.mix.", "score.": "head.1.",
}


def renamed(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Its parameters by the names they have here."""
    state = {}
    for name, value in state_dict.items():
        start = next((each for each in _NAMES if name.startswith(each)), "")
        state[_NAMES.get(start, "") + name.removeprefix(start)] = torch.as_tensor(value)
    state.pop("encoder.embeddings.position_ids", None)  # a constant of older versions
    return state


def real_groups(
    input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None, group_mask: Tensor | None
) -> tuple[Sequences, np.ndarray, np.ndarray]:
    """The real groups of padded inputs.

    Args:
        input_ids: ``[docs, groups, len]``.
        attention_mask: Real tokens, ``[docs, groups, len]``.
        token_type_ids: ``[docs, groups, len]``; zeros if ``None``.
        group_mask: Real groups, ``[docs, groups]``; all if ``None``.

    Returns:
        The groups, the longest first; the number of each among the real groups; how many each document has.

    Raises:
        ValueError: If a real group has no tokens, or padding in between.
    """
    types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
    real = torch.ones(input_ids.shape[:2]) if group_mask is None else group_mask
    ids, mask, types, real = (
        tensor.cpu().numpy() for tensor in (input_ids, attention_mask.bool(), types, real.bool())
    )
    ids, mask, types = ids[real], mask[real], types[real]
    if (mask[:, 1:] & ~mask[:, :-1]).any() or not mask.any(axis=1).all():
        raise ValueError("each real group needs tokens, those that are real first, padding behind them")
    order = np.argsort(-mask.sum(axis=1), kind="stable")
    ids, mask, types = ids[order], mask[order], types[order]
    flat = Ragged.from_lists([row[kept] for row, kept in zip(ids, mask, strict=True)])
    starts = np.zeros((len(order), 2), np.int64)  # nobody says where query and text begin
    return Sequences(flat, types[mask].astype(np.int32), starts, pad=0), order, real.sum(axis=1)
