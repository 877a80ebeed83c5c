"""ModernBERT without padding: the sequences of a batch behind each other, as one, on devices that can attend so.

Batches hold sequences of similar lengths, but a batch of many short ones is still padded to its longest, and local
attention under a mask computes what it masks. PyTorch's attention over sequences of any lengths does neither; it exists
for GPUs in half precision. Elsewhere, and in full precision, the encoder computes as it always did.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.modernbert.modeling_modernbert import ModernBertModel

_NAME = "longdoc_unpadded"


class _UnpaddedModernBert(ModernBertModel):
    """Parameters and their names are those of ModernBERT; :func:`unpad` makes a ModernBERT one."""

    def forward(
        self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, *rest: Any, **options: Any  # noqa: ANN401
    ) -> BaseModelOutput:
        """Hidden states ``[b, n, d]`` of sequences ``[b, n]``; zeros for padding where none was computed."""
        plain = input_ids is not None and not rest and all(value is None for value in options.values())
        dropout = self.training and self.config.attention_dropout > 0
        if not plain or dropout or not attends_unpadded(input_ids.device):
            return super().forward(input_ids, attention_mask, *rest, **options)
        real = torch.ones_like(input_ids, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
        places = real.flatten().nonzero().squeeze(1)
        offsets = torch.nn.functional.pad(real.sum(1).cumsum(0), (1, 0)).int()
        packed = super().forward(
            input_ids.flatten()[places][None],
            {"full_attention": None, "sliding_attention": None},
            position_ids=(places % input_ids.shape[1])[None],
            offsets=offsets,
            longest=input_ids.shape[1],
        ).last_hidden_state[0]
        hidden = packed.new_zeros(input_ids.numel(), packed.shape[1]).index_copy(0, places, packed)
        return BaseModelOutput(last_hidden_state=hidden.view(*input_ids.shape, -1))


def unpad(encoder: PreTrainedModel) -> None:
    """Lets a ModernBERT, or a classifier made of one, compute without padding where the device can.

    Encoders of other kinds, or whose attention is not PyTorch's, stay as they are.

    Args:
        encoder: It is changed; what it computes for real tokens is the same. Sequences must be padded at their end.
    """
    base = encoder.base_model
    if type(base) is ModernBertModel and base.config._attn_implementation == "sdpa":
        encoder.set_attn_implementation(_NAME)
        base.__class__ = _UnpaddedModernBert


def attends_unpadded(device: torch.device) -> bool:
    """Whether a device has attention over sequences of any lengths in the precision that is just used."""
    kind = device.type
    return kind == "cuda" and torch.is_autocast_enabled(kind) and _works(device, torch.get_autocast_dtype(kind))


def attend(
    query: Tensor, key: Tensor, value: Tensor, offsets: Tensor, longest: int, scale: float, reach: int
) -> Tensor:
    """PyTorch's attention over sequences of any lengths.

    Args:
        query: Those of all sequences, ``[tokens, heads, d]``.
        key: As ``query``.
        value: As ``query``.
        offsets: Where each sequence starts, and the end, int32 ``[sequences + 1]``.
        longest: Tokens of the longest sequence, or more.
        scale: Of the scores.
        reach: Tokens that each token sees on both sides; all if -1.
    """
    from torch.nn.attention.varlen import varlen_attn

    return varlen_attn(
        query, key, value, offsets, offsets, longest, longest, scale=scale, window_size=(reach, reach)
    )


@lru_cache
def _works(device: torch.device, dtype: torch.dtype) -> bool:
    """Tried once, on sequences of three tokens and of one, which see one neighbour on each side."""
    tokens = torch.arange(4 * 64, device=device).view(4, 1, 64).sin().to(dtype)
    offsets = torch.tensor([0, 3, 4], dtype=torch.int32, device=device)
    seen = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]], dtype=torch.bool, device=device)
    try:
        with torch.inference_mode():
            found = attend(tokens, tokens, tokens, offsets, 3, 0.125, 1)
            alike = tokens.float().transpose(0, 1)
            expected = scaled_dot_product_attention(alike, alike, alike, seen, scale=0.125).transpose(0, 1)
            return bool(torch.allclose(found.float(), expected, atol=0.02))
    except (ImportError, RuntimeError, TypeError, ValueError):  # an older PyTorch, or a GPU without it
        return False


def _attention(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None,
    *, scaling: float, sliding_window: int | None = None, offsets: Tensor | None = None, longest: int = 0,
    **options: Any,  # noqa: ANN401
) -> tuple[Tensor, None]:
    """What ModernBERT's layers call; ``[b, heads, n, d]`` to ``[b, n, heads, d]``."""
    if offsets is None:
        return sdpa_attention_forward(
            module, query, key, value, mask, scaling=scaling, sliding_window=sliding_window, **options
        )
    each = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    reach = -1 if sliding_window is None else sliding_window - 1
    return attend(*each, offsets, longest, scaling, reach)[None], None


AttentionInterface.register(_NAME, _attention)
AttentionMaskInterface.register(_NAME, sdpa_mask)
