"""SMITH's published TensorFlow weights in this package's model.

The published code differs from the paper in ways that its weights need: two [SEP] end a block, a ReLU follows each
dense, GELU is its tanh approximation, and source and candidate documents have a last dense of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pyterrier_longdoc.models.smith import SMITHModel
from pyterrier_longdoc.models.smith_settings import SMITHConfig
from pyterrier_longdoc.text.template import Frame, Template

_DOCUMENT = "doc_bert/doc_encoder"
#: Ids of [PAD], [CLS] and [SEP] in BERT's English vocabularies.
_PAD, _CLS, _SEP = 0, 101, 102
_BERT_LAYER = {
    "attention/self/query": "attention.self.query",
    "attention/self/key": "attention.self.key",
    "attention/self/value": "attention.self.value",
    "attention/output/dense": "attention.output.dense",
    "attention/output/LayerNorm": "attention.output.LayerNorm",
    "intermediate/dense": "intermediate.dense",
    "output/dense": "output.dense",
    "output/LayerNorm": "output.LayerNorm",
}
_DOCUMENT_LAYER = {
    "attention/output/dense": "self_attn.out_proj",
    "attention/output/LayerNorm": "norm1",
    "intermediate/dense": "linear1",
    "output/dense": "linear2",
    "output/LayerNorm": "norm2",
}
_MODULES = {
    "bert/embeddings/LayerNorm": "encoder.embeddings.LayerNorm",
    "bert/pooler/dense": "sentence_pooler",
    "seq_rep_from_bert_sent_dense/dense": "sentence_dense",
    "doc_bert/doc_embeddings/LayerNorm": "document_level.norm",
    "doc_bert/doc_pooler/dense": "document_level.pooler",
    "seq_rep_from_bert_doc_dense/dense": "document_level.denses.0",
    "seq_rep_from_bert_doc_dense/dense_1": "document_level.denses.1",
}
_TABLES = {
    "bert/embeddings/word_embeddings": "encoder.embeddings.word_embeddings.weight",
    "bert/embeddings/token_type_embeddings": "encoder.embeddings.token_type_embeddings.weight",
    "bert/embeddings/position_embeddings": "encoder.embeddings.position_embeddings.weight",
    "doc_bert/doc_embeddings/position_embeddings": "document_level.positions.weight",
}
_ATTENTION = "combine_reps_attention"
_HEADS = {
    "cls/word_predictions/transform/dense": "masked_heads.words.dense",
    "cls/word_predictions/transform/LayerNorm": "masked_heads.words.norm",
    "cls/sent_predictions/transform/dense": "masked_heads.blocks.dense",
    "cls/sent_predictions/transform/LayerNorm": "masked_heads.blocks.norm",
}
_HEAD_VECTORS = {
    "cls/word_predictions/output_bias": "masked_heads.word_bias",
    "mask_sent_in_doc/sentence_mask_embedding": "masked_heads.block_mask",
}


def from_tf_variables(mapping: Mapping[str, np.ndarray], heads: int, settings: dict[str, Any]) -> SMITHModel:
    """See :meth:`SMITHModel.from_tf_variables`; variables that the model does not need are left out.

    Raises:
        ValueError: If one that it needs is missing or does not fit.
    """
    variables = _Variables(mapping)
    config = _config(variables, heads, settings)
    model = SMITHModel(config).eval()
    state = {name: torch.from_numpy(np.array(value, np.float32)) for name, value in _state(variables, config)}
    state |= {"scale": torch.tensor(config.scale), "bias": torch.tensor(config.bias)}
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise ValueError(f"these variables are not those of one SMITH model: {error}") from error
    return model


def read_tf_variables(path: str | Path) -> dict[str, np.ndarray]:
    """The variables of a TensorFlow checkpoint, without those of its optimizer.

    Args:
        path: Prefix of its files, or a directory with a checkpoint.

    Raises:
        ImportError: If there is no TensorFlow.
        ValueError: If there is no checkpoint.
    """
    try:
        import tensorflow
    except ImportError as error:
        raise ImportError(f"TensorFlow checkpoints are read by tensorflow: pip install tensorflow ({error})") from error
    prefix = tensorflow.train.latest_checkpoint(str(path)) or str(path)
    try:
        reader = tensorflow.train.load_checkpoint(prefix)
    except (ValueError, OSError, RuntimeError, tensorflow.errors.OpError) as error:
        raise ValueError(f"{path} holds no TensorFlow checkpoint: {error}") from error
    names = (name for name in reader.get_variable_to_shape_map() if not name.endswith(("/adam_m", "/adam_v")))
    return {name: reader.get_tensor(name) for name in names}


class _Variables(dict):
    """The variables by name, without the ``:0`` of TensorFlow's tensors."""

    def __init__(self, mapping: Mapping[str, np.ndarray]) -> None:
        super().__init__({name.removesuffix(":0"): value for name, value in mapping.items()})

    def __missing__(self, name: str) -> np.ndarray:
        raise ValueError(f"no variable {name!r} among the {len(self)} given: not a checkpoint of SMITH")

    def layers(self, scope: str) -> int:
        """Number of layers under a scope."""
        return len({name.split("/")[scope.count("/") + 1] for name in self if name.startswith(f"{scope}/layer_")})


def _config(variables: _Variables, heads: int, settings: dict[str, Any]) -> SMITHConfig:
    rows, width = variables["bert/embeddings/word_embeddings"].shape
    positions = len(variables["bert/embeddings/position_embeddings"])
    encoder = {
        "model_type": "bert", "vocab_size": rows, "hidden_size": width, "num_attention_heads": heads,
        "num_hidden_layers": variables.layers("bert/encoder"), "max_position_embeddings": positions,
        "intermediate_size": variables["bert/encoder/layer_0/intermediate/dense/kernel"].shape[1],
        "type_vocab_size": len(variables["bert/embeddings/token_type_embeddings"]),
        "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-12,
    }
    published = {
        "template": published_template(_CLS, _SEP, _PAD),
        "block_length": min(32, positions),
        "max_blocks": len(variables["doc_bert/doc_embeddings/position_embeddings"]),
        "overlong": "truncate",
        "layers": variables.layers(_DOCUMENT),
        "heads": heads,
        "feedforward": variables[f"{_DOCUMENT}/layer_0/intermediate/dense/kernel"].shape[1],
        "activation": "gelu_pytorch_tanh",
        "rectified": True,
        "two_towers": True,
        "bias": 0.0,
        "masked_heads": all(name in variables for name in _HEAD_VECTORS),
    }
    if f"{_ATTENTION}/context_vector" in variables:
        published["attention_width"] = len(variables[f"{_ATTENTION}/context_vector"])
    return replace(SMITHConfig(encoder, **published), **settings)


def published_template(cls: int, sep: int, pad: int) -> Template:
    """``[CLS] block [SEP] [SEP]``, as the published code frames blocks."""
    first, last = ((cls, 0),), ((sep, 0), (sep, 0))
    return Template(Frame((first, last), (0,)), Frame((first, last[:1], last[:1]), (0, 0)), pad)


def _state(variables: _Variables, config: SMITHConfig) -> Iterator[tuple[str, Any]]:
    """Parameters of the model by name."""
    for name, ours in _TABLES.items():
        yield ours, variables[name]
    modules = dict(_MODULES)
    for layer in range(config.encoder["num_hidden_layers"]):
        theirs, ours = f"bert/encoder/layer_{layer}", f"encoder.encoder.layer.{layer}"
        modules |= {f"{theirs}/{n}": f"{ours}.{o}" for n, o in _BERT_LAYER.items()}
    for layer in range(config.layers):
        theirs, ours = f"{_DOCUMENT}/layer_{layer}", f"document_level.encoder.layers.{layer}"
        modules |= {f"{theirs}/{n}": f"{ours}.{o}" for n, o in _DOCUMENT_LAYER.items()}
        for kind, name in (("kernel", "in_proj_weight"), ("bias", "in_proj_bias")):
            parts = [variables[f"{theirs}/attention/self/{part}/{kind}"].T for part in ("query", "key", "value")]
            yield f"{ours}.self_attn.{name}", np.concatenate(parts)
    if config.combine == "attention":
        modules[f"{_ATTENTION}/dense"] = "document_level.attention.dense"
        yield "document_level.attention.context.weight", variables[f"{_ATTENTION}/context_vector"].reshape(1, -1)
    if config.masked_heads:
        modules |= _HEADS
        yield from ((ours, variables[name]) for name, ours in _HEAD_VECTORS.items())
    for name, ours in modules.items():
        if name.endswith("LayerNorm"):
            yield f"{ours}.weight", variables[f"{name}/gamma"]
            yield f"{ours}.bias", variables[f"{name}/beta"]
        else:
            yield f"{ours}.weight", variables[f"{name}/kernel"].T
            yield f"{ours}.bias", variables[f"{name}/bias"]
