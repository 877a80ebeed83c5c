import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_longdoc.text.sentences import (
    PARAGRAPH,
    SENTENCE,
    Structured,
    sentence_starts,
    split_sentences,
    splitter_of,
    tokenize_sentences,
)
from pyterrier_longdoc.text.tokens import character_spans, tokenize
from pyterrier_longdoc.text.vectors import Vectors


@pytest.fixture(scope="module")
def tokenizer():
    return Vectors.from_encoder().tokenizer


def sentences_of(tokenizer, text, **options):
    """The texts from each first token of a sentence to the next one."""
    starts = sentence_starts(tokenizer, [text], **options)[0]
    first = [*character_spans(tokenizer, text)[starts, 0], len(text)]
    return [text[one:other].strip() for one, other in zip(first[:-1], first[1:], strict=True)]


def test_sentences_of_prose(tokenizer):
    text = 'Dr. Smith left in Jan. 2020. "Why?" nobody asked. It cost $3.5 million, e.g. too much!\n\nÜber 😀 all. End'
    assert sentences_of(tokenizer, text) == [
        "Dr. Smith left in Jan. 2020.", '"Why?" nobody asked.', "It cost $3.5 million, e.g. too much!", "Über 😀 all.",
        "End",
    ]


def test_tokens_are_those_of_the_whole_text(tokenizer):
    texts = ["One. Two!  Three?", "", "  \n\n ", "no end", "Yes.\n\nNo.\n \nGood. Bad."]
    found, whole = tokenize_sentences(tokenizer, texts), tokenize(tokenizer, texts)
    assert found.values.tolist() == whole.values.tolist()
    assert found.offsets.tolist() == whole.offsets.tolist()
    starts, paragraphs = found.starts(), found.starts(PARAGRAPH)
    assert [starts[n].tolist() for n in range(5)] == [[0, 2, 4], [], [], [0], [0, 2, 4, 6]]
    assert [paragraphs[n].tolist() for n in range(5)] == [[0], [], [], [0], [0, 2, 4]]


def test_paragraphs_of_html(tokenizer):
    text = "<P>One two. Three.</P><p class='x'>Four.</p><pre>Five</pre>"
    paragraphs = tokenize_sentences(tokenizer, [text]).starts(PARAGRAPH)[0]
    assert character_spans(tokenizer, text)[paragraphs, 0].tolist() == [0, text.index("<p")]


def test_no_texts_at_all(tokenizer):
    found = tokenize_sentences(tokenizer, [])
    assert (len(found), len(found.starts())) == (0, 0)
    assert found.begins.dtype == np.int8


@given(st.lists(st.text(alphabet="aB .!?\n\r\t\"'é😀", max_size=60), max_size=4))
def test_any_text(tokenizer, texts):
    found = tokenize_sentences(tokenizer, texts)
    assert found.values.tolist() == tokenize(tokenizer, texts).values.tolist()
    starts = found.starts()
    for number in range(len(texts)):
        assert starts[number].tolist()[:1] == [0] * (len(found[number]) > 0)
        assert (np.diff(starts[number]) > 0).all()
    joined = ["".join(split_sentences(text)) for text in texts]
    assert joined == texts


def test_taking_and_cutting_keep_the_marks(tokenizer):
    texts = ["One. Two. Three.", "Four.\n\nFive.", "", "Six seven eight."]
    whole = tokenize_sentences(tokenizer, texts)
    assert isinstance(whole.take(np.array([1])), Structured)
    some = whole.take(np.array([3, 1, 1]))
    assert some.begins.tolist() == [2, 0, 0, 0, 2, 0, 2, 0, 2, 0, 2, 0]
    head = whole.head(np.array([3, 9, 2, 0]))
    assert head.lengths.tolist() == [3, 4, 0, 0]
    assert head.begins.tolist() == [2, 0, 1, 2, 0, 2, 0]
    assert head.starts()[0].tolist() == [0, 2]


def test_a_splitter_of_the_users_own(tokenizer):
    text = "one; two;\n three\n\nfour"
    assert sentences_of(tokenizer, text, splitter=lambda whole: whole.split(";")) == [
        "one;", "two;", "three", "four",  # a paragraph begins a sentence, too
    ]


def test_a_border_within_a_token_belongs_to_the_token(tokenizer):
    starts = sentence_starts(tokenizer, ["aaaa hello"], lambda text: [text[:7], text[7:]])
    assert len(tokenize(tokenizer, ["hello"]).values) == 1
    assert starts[0].tolist() == [0, starts[0][-1]]
    assert starts[0][-1] == len(tokenize(tokenizer, ["aaaa"]).values)


def test_sentences_that_are_not_in_the_text_raise(tokenizer):
    with pytest.raises(ValueError, match="gave 'ONE', which does not stand in the text"):
        sentence_starts(tokenizer, ["one two"], lambda text: text.upper().split())
    with pytest.raises(ValueError, match="behind character 3"):
        sentence_starts(tokenizer, ["one two"], lambda text: ["one", "one"])


def test_other_languages(tokenizer):
    assert split_sentences("Das sind z.B. drei. Und nun?", "de") == ["Das sind z.B. drei. ", "Und nun?"]
    name, split = splitter_of("de")
    assert (name, split("Eins. Zwei.")) == ("de", ["Eins. ", "Zwei."])


def test_names_of_splitters():
    name, split = splitter_of(split_sentences)
    assert (name, split) == ("pyterrier_longdoc.text.sentences.split_sentences", split_sentences)
    for wrong in ("english please", "os.system", "", 5, None):
        with pytest.raises(ValueError, match="sentences must be a language such as 'en'"):
            splitter_of(wrong)


def test_levels_are_ordered():
    assert 0 < SENTENCE < PARAGRAPH  # a paragraph begins a sentence
