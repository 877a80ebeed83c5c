"""A Longformer and a BigBird made out of a BERT compute what it computed, and read further."""

import numpy as np
import pytest
import torch

from pyterrier_longdoc.models.lengthen import lengthened


def bert(kind="bert", **settings):
    from transformers import BertConfig, BertModel, RobertaConfig, RobertaModel

    torch.manual_seed(0)
    config_class, model_class = {"bert": (BertConfig, BertModel), "roberta": (RobertaConfig, RobertaModel)}[kind]
    config = config_class(
        vocab_size=50, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32,
        max_position_embeddings=34 if kind == "roberta" else 32, pad_token_id=1, bos_token_id=0, eos_token_id=2,
        initializer_range=0.3, **settings,
    )
    return model_class(config, add_pooling_layer=False).eval()


@pytest.mark.parametrize("kind", ["bert", "roberta"])
@pytest.mark.parametrize(
    ("architecture", "settings"),
    [("longformer", {"attention_window": 32}), ("big_bird", {"block_size": 4, "num_random_blocks": 2})],
)
def test_short_texts_are_read_as_before(kind, architecture, settings):
    encoder = bert(kind)
    longer = lengthened(encoder, architecture, 100, **settings)
    ids = torch.from_numpy(np.random.default_rng(0).integers(3, 50, (3, 16)))
    with torch.no_grad():
        expected, found = encoder(ids).last_hidden_state, longer(ids, attention_mask=torch.ones_like(ids))
    assert (found.last_hidden_state - expected).abs().max() < 2e-5
    assert longer.config.model_type == architecture
    long = torch.from_numpy(np.random.default_rng(1).integers(3, 50, (1, 100)))
    with torch.no_grad():
        assert torch.isfinite(longer(long, attention_mask=torch.ones_like(long)).last_hidden_state).all()


def test_positions_are_repeated():
    encoder = bert()
    table = encoder.embeddings.position_embeddings.weight
    longformer = lengthened(encoder, "longformer", 70, attention_window=8).embeddings.position_embeddings.weight
    assert len(longformer) == 72  # numbered from behind the padding's
    assert torch.equal(longformer[2:34], table) and torch.equal(longformer[34:66], table)
    big_bird = lengthened(encoder, "big_bird", 70, block_size=4).embeddings.position_embeddings.weight
    assert len(big_bird) == 70
    assert torch.equal(big_bird[64:], table[:6])


def test_global_projections_start_as_the_others():
    longformer = lengthened(bert(), "longformer", 40, attention_window=8)
    own = longformer.encoder.layer[1].attention.self
    for name in ("query", "key", "value"):
        assert torch.equal(getattr(own, name).weight, getattr(own, f"{name}_global").weight)


def test_what_cannot_be_lengthened():
    from transformers import DistilBertConfig, DistilBertModel

    encoder = DistilBertModel(DistilBertConfig(vocab_size=20, dim=12, n_layers=1, n_heads=2, hidden_dim=16))
    with pytest.raises(ValueError, match="the encoder is a distilbert; a longformer can be made of longformer, bert"):
        lengthened(encoder, "longformer", 40)
