"""An encoder's layers one by one, over all sequences of some documents, with a word in between.

Most models run an encoder from its first layer to its last over one batch, then take the next batch. Where sequences
are to hear of each other between two layers, all of them have to be through the one before any goes through the other.
So the hidden states of all tokens are kept in one table without padding, and each layer is a pass over that table in
batches under a token budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask

from pyterrier_longdoc.models.first_token import one_token
from pyterrier_longdoc.pooling import Budget, Pool
from pyterrier_longdoc.text.template import Sequences

#: Sequences share a batch if their lengths round up to the same multiple of this: passes are so large that a few more
#: of them cost less than padding.
_STEP = 8
#: Model types whose layers need hidden states and a mask, and nothing else.
KINDS = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "ernie", "data2vec-text")


def layers_of(encoder: PreTrainedModel) -> nn.ModuleList:
    """The layers of an encoder of BERT's kind: embeddings, and layers that need hidden states and a mask only.

    Raises:
        ValueError: If it is of another kind.
    """
    if encoder.config.model_type not in KINDS:
        raise ValueError(
            f"{type(encoder).__name__} cannot be run layer by layer; choose an encoder of BERT's kind: "
            f"model_type {', '.join(KINDS)}"
        )
    return encoder.encoder.layer


def embed(encoder: PreTrainedModel, ids: Tensor, types: Tensor) -> Tensor:
    """What goes into the first layer, ``[b, tokens, d]``, from token and type ids ``[b, tokens]``."""
    if getattr(encoder.config, "type_vocab_size", 2) < 2:  # RoBERTa's kind knows one type
        types = torch.zeros_like(types)
    hidden = encoder.embeddings(input_ids=ids, token_type_ids=types)
    return encoder.embeddings_project(hidden) if hasattr(encoder, "embeddings_project") else hidden


def encode_in_lockstep(
    encoder: PreTrainedModel,
    sequences: Sequences,
    budget: Budget,
    central: np.ndarray,
    between: Callable[[Tensor], Tensor],
) -> Tensor:
    """Runs sequences through an encoder layer by layer; gradients flow.

    Of the last layer only the central tokens are computed: nobody reads the others.

    Args:
        encoder: An encoder of BERT's kind.
        sequences: The longest first: so batches are stretches of the table, and those without padding views of it.
        budget: Tokens of one pass, padding included.
        central: Place of the token in each sequence that stands for it, ``[n]``.
        between: Called after every layer with the states of the central tokens, ``[n, d]``; returns their new ones.

    Returns:
        The central states after the last layer, ``[n, d]``.
    """
    *layers, last = layers_of(encoder)
    rows = torch.from_numpy(sequences.ids.offsets[:-1] + central).to(encoder.device)
    hidden = torch.cat(list(_embedded(encoder, sequences, budget)))
    for layer in layers:
        hidden = torch.cat(list(_passed(encoder, hidden, sequences, budget, layer)))
        states = hidden[rows]
        changed = between(states)
        if changed is not states:
            hidden.index_copy_(0, rows, changed.to(hidden.dtype))
    return between(torch.cat(list(_passed(encoder, hidden, sequences, budget, last, central))))


def _embedded(encoder: PreTrainedModel, sequences: Sequences, budget: Budget) -> Iterator[Tensor]:
    def compute(batch: np.ndarray) -> Tensor:
        ids, types, mask = (torch.from_numpy(table).to(encoder.device) for table in sequences.table(batch))
        hidden = embed(encoder, ids, types)
        return hidden.flatten(0, 1) if mask.all() else hidden[mask]

    yield from _outputs(sequences, budget, compute)


def _passed(
    encoder: PreTrainedModel,
    hidden: Tensor,
    sequences: Sequences,
    budget: Budget,
    layer: nn.Module,
    central: np.ndarray | None = None,
) -> Iterator[Tensor]:
    """All tokens after a layer, or the central ones alone, batch by batch."""

    def compute(batch: np.ndarray) -> Tensor:
        index, mask = sequences.ids.flat_index(batch)
        real, attended = None, None
        if mask.all():
            first = int(index[0, 0])
            inputs = hidden[first : first + index.size].view(*index.shape, -1)
        else:
            inputs = hidden[torch.from_numpy(index).to(hidden.device)]
            real = torch.from_numpy(mask).to(hidden.device)
            attended = create_bidirectional_mask(config=encoder.config, inputs_embeds=inputs, attention_mask=real)
        if central is not None:
            own = inputs[torch.arange(len(batch)), torch.from_numpy(central[batch]).to(hidden.device)]
            return one_token(layer, inputs, own[:, None], None if attended is None else attended[:, :, :1])[:, 0]
        output = layer(inputs, attended)
        return output.flatten(0, 1) if real is None else output[real]

    yield from _outputs(sequences, budget, compute)


def _outputs(sequences: Sequences, budget: Budget, compute: Callable[[np.ndarray], Tensor]) -> Iterator[Tensor]:
    pool = Pool(sequences.lengths, budget, kinds=-(-sequences.lengths // _STEP))
    yield from (output for _, output in pool.run(compute))
