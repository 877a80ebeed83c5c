"""Tokenising whole texts: nothing cut, nothing added, and every token leads back to its characters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyterrier_longdoc.text.tokens as tokens_module
from pyterrier_longdoc.text.tokens import character_spans, load_tokenizer, tokenize
from pyterrier_longdoc.text.vectors import Vectors

TEXTS = ["w1 w2", "", "w3 " * 700, "Ünseen w5", "w1 w2"]


@pytest.fixture(scope="module")
def word_pieces(tiny):
    return load_tokenizer(tiny.encoder)


@pytest.fixture(scope="module", params=["words", "pieces"])
def tokenizer(request, tiny, word_pieces):
    return tiny.words.tokenizer if request.param == "words" else word_pieces


def test_whole_texts_without_special_tokens(tiny):
    ids = tokenize(tiny.words.tokenizer, TEXTS)
    vocabulary = tiny.words.tokenizer.get_vocab()
    assert len(ids) == 5
    assert ids[0].tolist() == ids[4].tolist() == [vocabulary["w1"], vocabulary["w2"]]
    assert ids.lengths.tolist() == [2, 0, 700, 2, 2]
    assert ids[3].tolist() == [0, vocabulary["w5"]]  # row 0 is what unknown words share
    assert ids.values.dtype == np.int32


def test_word_pieces(word_pieces):
    ids = tokenize(word_pieces, ["w17 w3 w123"])
    assert word_pieces.convert_ids_to_tokens(ids[0].tolist()) == ["w17", "w3", "w12", "##3"]


def test_no_texts(tokenizer):
    assert len(tokenize(tokenizer, [])) == 0
    assert tokenize(tokenizer, [""]).lengths.tolist() == [0]


def test_many_texts_are_read_in_parts(tokenizer, monkeypatch):
    whole = tokenize(tokenizer, TEXTS)
    for characters in (1, 6, 2_200):
        monkeypatch.setattr(tokens_module, "_CHARACTERS_AT_ONCE", characters)
        parts = tokenize(tokenizer, TEXTS)
        assert [each.tolist() for each in parts] == [each.tolist() for each in whole]


def test_a_saved_tokenizers_truncation_and_padding_are_not_inherited(tiny, tmp_path):
    """Encoders on the hub ship a tokenizer.json that cuts at 128 tokens and pads."""
    from transformers import AutoTokenizer

    cutting = AutoTokenizer.from_pretrained(tiny.encoder)
    cutting.backend_tokenizer.enable_truncation(128)
    cutting.backend_tokenizer.enable_padding(length=256)
    cutting.model_max_length = 128
    cutting.save_pretrained(tmp_path)
    text = "w3 " * 500
    assert len(AutoTokenizer.from_pretrained(tmp_path).backend_tokenizer.encode(text).ids) == 256
    assert tokenize(load_tokenizer(str(tmp_path)), [text]).lengths.tolist() == [500]


def test_a_users_tokenizer_is_not_changed(tiny):
    from transformers import AutoTokenizer

    cutting = AutoTokenizer.from_pretrained(tiny.encoder)
    cutting.backend_tokenizer.enable_truncation(5)
    assert tokenize(cutting, ["w3 " * 500, "w1"]).lengths.tolist() == [500, 1]
    assert len(character_spans(cutting, "w3 " * 500)) == 500
    assert cutting.backend_tokenizer.truncation["max_length"] == 5


def test_a_tokenizer_must_be_a_fast_one(monkeypatch):
    import transformers

    class Slow:
        is_fast = False

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda name: Slow())
    with pytest.raises(ValueError, match="somewhere has no fast tokenizer"):
        load_tokenizer("somewhere")


def test_spans_are_characters_not_bytes(tokenizer):
    text = "Ä 漢字 😀 w5 — w17, naïve"
    spans = character_spans(tokenizer, text)
    found = [text[start:end] for start, end in spans]
    assert len(spans) == tokenize(tokenizer, [text]).lengths[0]
    assert {"Ä", "😀", "w5", "—", "w17", ",", "naïve"} <= set(found)
    assert spans.dtype == np.int64


def test_no_spans_of_no_text(tokenizer):
    assert character_spans(tokenizer, "").shape == (0, 2)


@given(st.text(max_size=60))
def test_any_text_has_spans_in_order_within_it(tiny, text):
    spans = character_spans(tiny.words.tokenizer, text)
    assert len(spans) == tokenize(tiny.words.tokenizer, [text]).lengths[0]
    assert (spans[:, 0] <= spans[:, 1]).all()
    assert (spans >= 0).all()
    assert (spans <= len(text)).all()
    assert (np.diff(spans[:, 0]) >= 0).all()


def test_broken_unicode_is_read(tokenizer):
    """Half a surrogate pair, as cut JSON strings leave it, counts as an unknown sign: the rest is read in place."""
    text = "w1 \ud83d w5"
    ids, spans = tokenize(tokenizer, [text, "w1 ? w5"]), character_spans(tokenizer, text)
    assert ids[0].tolist() == ids[1].tolist()
    assert [text[start:end] for start, end in spans[[0, -1]]] == ["w1", "w5"]


def test_signs_of_zero_are_part_of_a_text(tokenizer):
    ids = tokenize(tokenizer, ["w1 \0 w5", "w1 \0 w7"])
    assert ids[0].tolist() != ids[1].tolist()


def test_word_splitting(tmp_path):
    """At white space and punctuation, in lower case."""
    file = tmp_path / "v.txt"
    file.write_text("don 1 1\nt 2 2\n' 3 3\nnaïve 4 4\n", encoding="utf-8")
    assert tokenize(Vectors.from_text_file(file).tokenizer, ["DON'T  naïve\nother"])[0].tolist() == [1, 3, 2, 4, 0]
