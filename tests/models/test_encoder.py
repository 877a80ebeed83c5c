"""Encoders: built without a network, loaded with clear errors, and the same numbers in whatever batches they run."""

import copy
import json
import pickle

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM

from pyterrier_longdoc.models.encoder import (
    KINDS,
    build_encoder,
    check_room,
    encode_sequences,
    encoder_settings,
    first_token,
    is_classifier,
    load_encoder,
    max_positions,
)
from pyterrier_longdoc.pooling import Budget
from pyterrier_longdoc.text.split import sliding_windows
from pyterrier_longdoc.text.template import Template
from pyterrier_longdoc.windows import Ragged

VOCABULARY = 60
SMALL = {
    "vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 20, "num_labels": 1, "pad_token_id": 0, "initializer_range": 0.3,
}
MODERN = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 1)
SETTINGS = {
    "bert": {**SMALL, "max_position_embeddings": 40},
    "roberta": {**SMALL, "max_position_embeddings": 42, "pad_token_id": 1},
    "electra": {**SMALL, "embedding_size": 8, "max_position_embeddings": 40},
    "deberta-v2": {**SMALL, "max_position_embeddings": 40, "relative_attention": True, "type_vocab_size": 0},
    "distilbert": {
        "vocab_size": VOCABULARY, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 20, "num_labels": 1,
        "initializer_range": 0.3,
    },
    "modernbert": {**SMALL, **MODERN, "max_position_embeddings": 40},
}
TEMPLATE = Template.from_dict({
    "single": {"specials": [[[2, 0]], [[3, 0]]], "types": [0]},
    "pair": {"specials": [[[2, 0]], [[3, 0]], [[3, 1]]], "types": [0, 1]},
    "pad": 0,
})


def sequences_of(lengths, template=TEMPLATE, seed=0):
    generator = np.random.default_rng(seed)
    return template.texts(Ragged.from_lists([generator.integers(4, VOCABULARY, length) for length in lengths]))


def built(model_type, kind="base"):
    torch.manual_seed(0)
    return build_encoder({"model_type": model_type, **SETTINGS[model_type]}, kind).eval()


def logits(output, items):
    return output.logits[:, 0]


@pytest.mark.parametrize("model_type", SETTINGS)
@pytest.mark.parametrize("kind", ["base", "classifier"])
def test_any_batch_gives_what_each_sequence_gives_alone(model_type, kind):
    encoder, pick = built(model_type, kind), first_token if kind == "base" else logits
    sequences = sequences_of([5, 30, 1, 0, 12, 30, 7])
    with torch.inference_mode():
        alone = torch.cat([
            pick(encoder(torch.from_numpy(sequences.ids[n][None].astype(np.int64))), None)
            for n in range(len(sequences))
        ])
        for tokens in (1, 33, 64, 10_000):
            torch.testing.assert_close(
                encode_sequences(encoder, sequences, Budget(tokens), pick), alone, atol=2e-5, rtol=1e-5
            )


@pytest.mark.parametrize("model_type", SETTINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_settings_and_weights_are_the_whole_encoder(model_type, kind):
    """Through JSON, with the same numbers bit for bit."""
    encoder = built(model_type, kind)
    settings = json.loads(json.dumps(encoder_settings(encoder)))
    again = build_encoder(settings, kind).eval()
    assert encoder_settings(again) == settings
    again.load_state_dict(encoder.state_dict())
    pick = logits if kind == "classifier" else first_token
    with torch.inference_mode():
        results = [encode_sequences(each, sequences_of([9, 4]), Budget(99), pick) for each in (encoder, again)]
    assert torch.equal(*results)


def spied(encoder):
    """Remembers what the encoder was called with."""
    calls = []
    encoder.register_forward_pre_hook(lambda module, args, kwargs: calls.append(kwargs), with_kwargs=True)
    return calls


def test_no_mask_where_all_sequences_are_equally_long():
    encoder = built("bert")
    calls = spied(encoder)
    with torch.inference_mode():
        encode_sequences(encoder, sequences_of([9] * 6), Budget(33))
        assert [call["input_ids"].shape for call in calls] == [(3, 11), (3, 11)]
        assert all("attention_mask" not in call and "token_type_ids" not in call for call in calls)
        calls.clear()
        encode_sequences(encoder, sequences_of([9, 8]), Budget(33))
    assert calls[0]["attention_mask"].sum(1).tolist() == [11, 10]


@pytest.mark.parametrize(("model_type", "typed"), [("bert", True), ("distilbert", False), ("deberta-v2", False)])
def test_type_ids_go_to_encoders_that_have_them(model_type, typed):
    encoder = built(model_type)
    calls = spied(encoder)
    texts = Ragged.from_lists([[5, 6], [7, 8]])
    pairs = TEMPLATE.pairs(texts, texts, sliding_windows(texts.lengths, 2), np.array([0, 0]))
    with torch.inference_mode():
        vectors = encode_sequences(encoder, pairs, Budget(99))
        assert ("token_type_ids" in calls[0]) == typed
        if typed:
            assert calls[0]["token_type_ids"].tolist() == [[0] * 4 + [1] * 3] * 2
            plain = encoder(calls[0]["input_ids"]).last_hidden_state[:, 0]
            assert not torch.allclose(vectors, plain, atol=1e-3)


def test_gradients_flow_and_dropout_follows_the_mode():
    encoder, sequences = built("bert"), sequences_of([3, 8, 20])
    encode_sequences(encoder, sequences, Budget(12)).square().sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())
    first, second = (encode_sequences(encoder, sequences, Budget(99)) for _ in range(2))
    assert torch.equal(first, second)
    encoder.train()
    first, second = (encode_sequences(encoder, sequences, Budget(99)) for _ in range(2))
    assert not torch.allclose(first, second)


def test_options_and_items_reach_the_pick():
    encoder, sequences = built("bert"), sequences_of([3, 8, 20])

    def pick(output, items):
        assert len(output.hidden_states) == 3
        return torch.from_numpy(items)

    out = encode_sequences(encoder, sequences, Budget(25), pick, output_hidden_states=True)
    assert out.tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_heads_of_classifiers_compute_in_full_precision(dtype):
    """Their logits are float32 and tell apart what bfloat16 would not."""
    encoder, sequences = built("bert", "classifier"), sequences_of([12] * 40)
    with torch.inference_mode(), torch.autocast("cpu", dtype=dtype):
        scores = encode_sequences(encoder, sequences, Budget(999), logits)
        assert encode_sequences(built("bert"), sequences, Budget(999)).dtype == torch.float32
    assert scores.dtype == torch.float32
    assert len(scores.unique()) > len(scores.to(dtype).unique())


@pytest.mark.parametrize("odd", [{"return_dict": False}, {"output_attentions": True}, {"output_hidden_states": True}])
def test_callers_decide_what_encoders_return(odd):
    settings = {"model_type": "bert", **SETTINGS["bert"]}
    found = []
    for each in (settings, {**settings, **odd}):
        torch.manual_seed(0)
        encoder = build_encoder(each, "classifier").eval()
        output = encoder(torch.tensor([[2, 5, 6, 3]]))
        assert list(output.keys()) == ["logits"]
        found.append((output.logits, encoder_settings(encoder)))
    assert torch.equal(found[0][0], found[1][0]) and found[0][1] == found[1][1]


def test_classifiers_are_copied_and_pickled():
    encoder, sequences = built("roberta", "classifier"), sequences_of([9, 4])
    with torch.inference_mode():
        expected = encode_sequences(encoder, sequences, Budget(99), logits)
        others = copy.deepcopy(encoder), pickle.loads(pickle.dumps(encoder))
        for parameter in encoder.parameters():
            parameter.zero_()
        assert all(torch.equal(encode_sequences(other, sequences, Budget(99), logits), expected) for other in others)


def test_poolers_are_kept_for_those_who_read_them():
    assert built("bert").pooler is None
    assert built("bert", "pooled").pooler is not None


# Limits ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model_type", "limit"), [("bert", 40), ("roberta", 40), ("modernbert", 40), ("distilbert", 512)]
)
def test_positions_are_a_limit(model_type, limit):
    """RoBERTa loses the first positions of its table to padding."""
    encoder = built(model_type)
    assert max_positions(encoder) == limit
    with torch.inference_mode():
        assert encode_sequences(encoder, sequences_of([limit - 2]), Budget(9)).shape == (1, 16)
    with pytest.raises(ValueError, match=f"a sequence of {limit + 1} tokens .* {limit} positions"):
        encode_sequences(encoder, sequences_of([3, limit - 1]), Budget(9))


def test_what_does_not_fit_names_what_to_lower():
    encoder = built("bert")
    check_room(encoder, TEMPLATE.pair, 7, 30, "passage_tokens")
    with pytest.raises(ValueError, match=r"query of 8 .* window of 30 and 3 .* lower passage_tokens: .* room for 29"):
        check_room(encoder, TEMPLATE.pair, 8, 30, "passage_tokens")
    with pytest.raises(ValueError, match="queries are never cut; use an encoder with more positions"):
        check_room(encoder, TEMPLATE.pair, 40, 1, "passage_tokens")


@pytest.mark.parametrize("settings", [{}, {"model_type": "none"}, {"vocab_size": 3}])
def test_unknown_settings(settings):
    with pytest.raises(ValueError, match="model_type"):
        build_encoder(settings)


def test_classifiers_that_read_their_last_token():
    """With padding behind it, another one in each batch."""
    settings = {"model_type": "xlnet", "vocab_size": 9, "d_model": 8, "n_layer": 1, "n_head": 2, "d_inner": 8}
    assert max_positions(build_encoder(settings)) is None
    with pytest.raises(ValueError, match="xlnet classifies by its last token"):
        build_encoder(settings, "classifier")


def test_unknown_kinds():
    with pytest.raises(ValueError, match="kind must be one of 'base', 'pooled', 'classifier'"):
        build_encoder({"model_type": "bert", **SETTINGS["bert"]}, "logits")


# Loading --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tiny, tmp_path):
    """Saves a model with the tokenizer of the tiny BERT."""

    def save(model_class, **changes):
        config = AutoConfig.from_pretrained(tiny.encoder, **changes)
        torch.manual_seed(3)
        model_class.from_config(config).save_pretrained(tmp_path / "model")
        load_encoder(tiny.encoder)[1].save_pretrained(tmp_path / "model")
        return str(tmp_path / "model")

    return save


def test_loaded_encoders_are_those_that_were_saved(tiny):
    encoder, tokenizer = load_encoder(tiny.encoder)
    assert not encoder.training
    assert tokenizer.is_fast
    original = AutoModel.from_pretrained(tiny.encoder).eval()
    sequences = Template.of(tokenizer).texts(Ragged.from_lists([[20, 21], [30, 31, 32]]))
    with torch.inference_mode():
        expected = original(torch.from_numpy(sequences.ids[1][None].astype(np.int64))).last_hidden_state[:, 0]
        found = encode_sequences(encoder, sequences, Budget(99))
    torch.testing.assert_close(found[1:], expected)


def test_the_default_needs_no_network(monkeypatch):
    def no_network(*args, **kwargs):
        raise OSError("the test has no network")

    monkeypatch.setattr("socket.socket.connect", no_network)
    encoder, tokenizer = load_encoder()
    assert (encoder.config.hidden_size, len(tokenizer)) == (384, 30_522)
    assert not is_classifier("sentence-transformers/all-MiniLM-L6-v2")


def test_loading_leaves_the_global_random_state_alone(saved):
    path = saved(AutoModelForMaskedLM)  # has no pooler: transformers draws one
    torch.manual_seed(0)
    before = torch.rand(1)
    torch.manual_seed(0)
    load_encoder(path)
    assert torch.rand(1) == before


def test_a_head_that_is_not_there(tiny, saved):
    assert not is_classifier(tiny.encoder)
    with pytest.raises(ValueError, match="no complete head of a sequence classifier.*classifier.weight"):
        load_encoder(tiny.encoder, "classifier")
    with pytest.raises(ValueError, match=r"no complete encoder.*pooler\.dense"):
        load_encoder(saved(AutoModelForMaskedLM), "pooled")


@pytest.mark.parametrize("name", ["/nowhere/at/all", "nobody/nothing"])
def test_no_such_encoder(name):
    for load in (load_encoder, is_classifier):
        with pytest.raises(ValueError, match=f"'{name}' is no encoder"):
            load(name)


def test_a_tokenizer_of_another_encoder(saved):
    with pytest.raises(ValueError, match="not a pair"):
        load_encoder(saved(AutoModel, vocab_size=30))
