"""Templates: sequences put together from token ids are those that the tokenizer itself makes of the texts."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from pyterrier_longdoc.text.split import sliding_windows
from pyterrier_longdoc.text.template import Frame, Sequences, Template, window_tokens
from pyterrier_longdoc.text.tokens import load_tokenizer, tokenize
from pyterrier_longdoc.windows import Ragged, Windows

WORDS = ["<pad>", "<unk>", "<s>", "</s>", "<cls>", "<sep>", *"abcdefgh"]
TYPED = ["input_ids", "token_type_ids", "attention_mask"]


def tokenizer_of(processor=None, **options) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    if processor is not None:
        backend.post_processor = processor
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", pad_token="<pad>", **options)


def template_processor(single: str, pair: str) -> processors.TemplateProcessing:
    specials = [(word, WORDS.index(word)) for word in ("<s>", "</s>", "<cls>", "<sep>")]
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=specials)


TOKENIZERS = {
    "bert": lambda: tokenizer_of(
        template_processor("<cls> $A <sep>", "<cls> $A <sep> $B:1 <sep>:1"), model_input_names=TYPED
    ),
    "roberta": lambda: tokenizer_of(processors.RobertaProcessing(("</s>", 3), ("<s>", 2))),
    "xlnet": lambda: tokenizer_of(
        template_processor("$A <sep> <cls>:2", "$A <sep> $B:1 <sep>:1 <cls>:2"), model_input_names=TYPED
    ),
    "modernbert": lambda: tokenizer_of(template_processor("<cls> $A <sep>", "<cls> $A <sep> $B <sep>")),
}


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request):
    return TOKENIZERS[request.param]()


@pytest.mark.parametrize(("query", "window"), [("a b c", "d e"), ("a", "h g f e d"), ("f unheard", "a")])
def test_pairs_are_the_tokenizers_own(tokenizer, query, window):
    template = Template.of(tokenizer)
    queries, documents = tokenize(tokenizer, ["h", query]), tokenize(tokenizer, [window])
    made = template.pairs(queries, documents, sliding_windows(documents.lengths, 9), np.array([1]))
    expected = tokenizer(query, window, return_token_type_ids=True)
    assert made.ids[0].tolist() == expected["input_ids"]
    typed = "token_type_ids" in tokenizer.model_input_names
    assert made.types.tolist() == (expected["token_type_ids"] if typed else [0] * len(made.types))
    ids = made.ids[0]
    first, second = made.starts[0]
    assert ids[first : first + len(query.split())].tolist() == queries[1].tolist()
    assert ids[second : second + len(window.split())].tolist() == documents[0].tolist()


def test_single_texts_are_the_tokenizers_own(tokenizer):
    texts = ["a b c", "d"]
    made = Template.of(tokenizer).texts(tokenize(tokenizer, texts))
    assert [made.ids[n].tolist() for n in range(2)] == [tokenizer(text)["input_ids"] for text in texts]


def test_the_bundled_encoder():
    """MiniLM's tokenizer comes with truncation and padding switched on: neither may show."""
    from pyterrier_longdoc.text.vectors import DEFAULT_ENCODER, encoder_path

    template = Template.of(load_tokenizer(encoder_path(DEFAULT_ENCODER)))
    assert template.pair == Frame((((101, 0),), ((102, 0),), ((102, 1),)), (0, 1))
    assert template.single == Frame((((101, 0),), ((102, 0),)), (0,))
    assert (template.pad, template.pair.extra) == (0, 3)


def test_a_tokenizer_with_truncation_and_padding(tokenizer):
    before = Template.of(tokenizer)
    tokenizer.backend_tokenizer.enable_truncation(2)
    tokenizer.backend_tokenizer.enable_padding(length=20)
    assert Template.of(tokenizer) == before
    assert tokenizer.backend_tokenizer.truncation["max_length"] == 2  # its own settings are left alone


@pytest.mark.parametrize("names", [("cls_token", "sep_token"), ("bos_token", "eos_token")])
def test_without_a_post_processor(names):
    plain = tokenizer_of(**dict(zip(names, ("<cls>", "<sep>"), strict=True)), model_input_names=TYPED)
    template = Template.of(plain)
    assert template.single.specials == (((4, 0),), ((5, 0),))
    assert template.pair == Frame((((4, 0),), ((5, 0),), ((5, 1),)), (0, 1))


def test_without_any_special_token():
    with pytest.raises(ValueError, match="no special tokens.*cls_token"):
        Template.of(tokenizer_of())


def test_templates_go_through_json(tokenizer):
    template = Template.of(tokenizer)
    assert Template.from_dict(json.loads(json.dumps(template.to_dict()))) == template


texts = st.lists(st.lists(st.integers(10, 99), max_size=6), min_size=1, max_size=5)


@given(texts, texts, st.data())
def test_pairs_of_any_windows(queries, documents, data):
    """Windows of any positions, in any order, against plain concatenation."""
    template = Template.from_dict({
        "single": {"specials": [[[1, 0]], [[2, 0]]], "types": [0]},
        "pair": {"specials": [[[1, 0]], [[2, 0], [3, 0]], [[2, 1]]], "types": [0, 1]},
        "pad": 7,
    })
    items = data.draw(st.lists(st.tuples(
        st.integers(0, len(queries) - 1), st.integers(0, len(documents) - 1)), min_size=1, max_size=6))
    rows = [data.draw(st.permutations(range(len(documents[document])))) for _, document in items]
    rows = [row[: data.draw(st.integers(0, len(row)))] for row in rows]
    width = max(1, *map(len, rows))
    positions = np.array([list(row) + [-1] * (width - len(row)) for row in rows], np.int32).reshape(len(rows), width)
    document = np.array([each for _, each in items])
    windows = Windows(positions, document, np.zeros((len(rows), 2), np.int32))
    ragged = [Ragged.from_lists(each) for each in (queries, documents)]
    made = template.pairs(*ragged, windows, np.array([each for each, _ in items]))
    expected = [
        [1, *queries[query], 2, 3, *(documents[doc][place] for place in row), 2]
        for (query, doc), row in zip(items, rows, strict=True)
    ]
    assert [made.ids[n].tolist() for n in range(len(items))] == expected
    firsts = [3 + len(queries[query]) for query, _ in items]
    types = [[0] * first + [1] * (len(row) + 1) for first, row in zip(firsts, rows, strict=True)]
    assert made.types.tolist() == [kind for each in types for kind in each]
    assert made.starts.tolist() == [[1, first] for first in firsts]
    assert made.lengths.tolist() == [len(each) for each in expected]
    ids, kinds, mask = made.table(np.arange(len(items)))
    longest = max(map(len, expected))
    assert ids.tolist() == [each + [7] * (longest - len(each)) for each in expected]
    assert kinds[mask].tolist() == made.types.tolist()
    assert (kinds[~mask] == 0).all()
    assert window_tokens(ragged[1], windows).lengths.tolist() == [len(row) for row in rows]


def test_no_sequences():
    template = Template.of(TOKENIZERS["bert"]())
    assert len(template.texts(Ragged.from_lists([]))) == 0
    assert isinstance(template.texts(Ragged.from_lists([])), Sequences)
