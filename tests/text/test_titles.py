"""Titles travel with their documents, and every window begins with them."""

import numpy as np
import pytest

from pyterrier_longdoc.text.sentences import tokenize_sentences
from pyterrier_longdoc.text.split import sliding_windows
from pyterrier_longdoc.text.template import window_tokens
from pyterrier_longdoc.text.titles import Titled, joined, tokenize_titled, with_titles
from pyterrier_longdoc.text.tokens import tokenize
from pyterrier_longdoc.windows import Ragged


def lists(ragged):
    return [ragged[number].tolist() for number in range(len(ragged))]


@pytest.fixture
def titled(tiny):
    texts = with_titles(["w1 w2", "", "w3"], ["w4 w5 w6 w7", "w8", ""])
    return tokenize_titled(lambda texts: tokenize(tiny.words.tokenizer, texts), texts)


def ids(tiny, *texts):
    return lists(tokenize(tiny.words.tokenizer, texts))


def test_titles_and_bodies_are_tokenised_apart(tiny, titled):
    assert lists(titled) == lists(titled.body) == ids(tiny, "w4 w5 w6 w7", "w8", "")
    assert lists(titled.titles) == ids(tiny, "w1 w2", "", "w3")


def test_texts_without_a_title(tiny):
    plain = tokenize_titled(lambda texts: tokenize(tiny.words.tokenizer, texts), ["w1 w2", "w3"])
    assert lists(plain) == ids(tiny, "w1 w2", "w3")
    assert lists(plain.titles) == [[], []]


def test_the_sign_between_them_is_taken_out_of_titles():
    (text,) = with_titles(["a\uffffb"], ["c\uffffd"])
    parts = []
    tokenize_titled(lambda texts: parts.append(texts) or Ragged.from_lists([[0]]), [text])
    assert parts == [["c\uffffd"], ["ab"]]


def test_chosen_and_cut(tiny, titled):
    cut = titled.take(np.array([2, 0])).head(np.array([5, 3]))
    assert isinstance(cut, Titled)
    assert lists(cut) == ids(tiny, "", "w4 w5 w6")
    assert lists(cut.titles) == ids(tiny, "w3", "w1 w2")


def test_every_window_begins_with_the_title(tiny, titled):
    windows = sliding_windows(titled.lengths, 3, 1)
    assert lists(window_tokens(titled, windows)) == ids(tiny, "w1 w2 w4 w5 w6", "w1 w2 w6 w7", "w8", "w3")


def test_sentences_of_titled_documents(tiny):
    def plain(texts):
        return tokenize_sentences(tiny.words.tokenizer, texts)

    titled = tokenize_titled(plain, with_titles(["w1. w1."], ["w2. W3 w4."]))
    assert lists(titled.take(np.array([0])).body.starts()) == lists(plain(["w2. W3 w4."]).starts())


def test_joined():
    first, second = Ragged.from_lists([[1, 2], [], [3]]), Ragged.from_lists([[4], [], [5, 6]])
    assert lists(joined(first, second)) == [[1, 2, 4], [], [3, 5, 6]]
    assert len(joined(Ragged.from_lists([]), Ragged.from_lists([]))) == 0
