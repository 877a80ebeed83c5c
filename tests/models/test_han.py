"""HAN and SMASH against a plain reading of the papers' formulas, sentence by sentence."""

import numpy as np
import pytest
import torch

from pyterrier_longdoc.models.han import HANConfig, HANModel
from pyterrier_longdoc.models.smash import SMASHModel
from pyterrier_longdoc.pooling import Budget
from pyterrier_longdoc.text.sentences import INSIDE, PARAGRAPH, SENTENCE, Structured
from pyterrier_longdoc.windows import Ragged

#: Documents as paragraphs of sentences of words.
DOCUMENTS = [
    [[[3, 4, 5], [6]], [[7, 8]]],
    [[[1, 2, 3, 4, 5, 6, 7, 8, 9]]],
    [],
    [[[2]], [[2], [3, 3]], [[4, 1, 9, 9, 5]]],
    [[[5]]],
]


def structured(documents):
    tokens, begins = [], []
    for document in documents:
        words, marks = [], []
        for paragraph in document:
            for number, sentence in enumerate(paragraph):
                words += sentence
                marks += [SENTENCE if number else PARAGRAPH] + [INSIDE] * (len(sentence) - 1)
        tokens.append(words)
        begins.append(marks)
    ragged = Ragged.from_lists(tokens)
    return Structured(ragged.values, ragged.offsets, Ragged.from_lists(begins, np.int8).values)


def model(model_class, hidden=3):
    torch.manual_seed(0)
    return model_class(HANConfig(dims=4, vocabulary=10, hidden=hidden)).eval()


def attend(gru, vectors):
    """HAN, eq. 5-7, for one sequence."""
    states = gru.gru(vectors[None])[0][0]
    hidden = [torch.tanh(gru.attention.weight @ state + gru.attention.bias) for state in states]
    scores = torch.stack([gru.context.weight[0] @ each for each in hidden])
    weights = scores.exp() / scores.exp().sum()
    return (weights[:, None] * states).sum(0)


def plainly(own, document):
    """The vector of one document, without batches, packing or masks."""
    document = document or [[[0]]]
    words, parts = own.vectors.weight, []
    for tower in own.towers:
        floors = list(tower.floors)
        if len(floors) == 1:
            flat = [word for paragraph in document for sentence in paragraph for word in sentence]
            parts.append(attend(floors[0], words[flat]))
            continue
        paragraphs = [torch.stack([attend(floors[0], words[sentence]) for sentence in each]) for each in document]
        if len(floors) == 2:
            parts.append(attend(floors[1], torch.cat(paragraphs)))
        else:
            parts.append(attend(floors[2], torch.stack([attend(floors[1], each) for each in paragraphs])))
    whole = torch.cat(parts)
    return whole / whole.norm()


@pytest.mark.parametrize(("model_class", "dims"), [(HANModel, 6), (SMASHModel, 18)])
@pytest.mark.parametrize("budget", [1, 7, 10_000])
def test_vectors_are_those_of_the_formulas(model_class, dims, budget):
    own = model(model_class)
    with torch.no_grad():
        found = own.encode_documents(structured(DOCUMENTS), Budget(budget))
        expected = torch.stack([plainly(own, document) for document in DOCUMENTS])
    assert found.shape == (len(DOCUMENTS), dims) == (len(DOCUMENTS), own.dims)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


def test_borders_matter_where_a_tower_has_them():
    """The same words in other sentences or paragraphs."""
    whole, sentences, paragraphs = [[[1, 2, 3, 4]]], [[[1, 2], [3, 4]]], [[[1, 2]], [[3, 4]]]
    texts = structured([whole, sentences, paragraphs])
    with torch.no_grad():
        han, smash = (model(each).encode_documents(texts, Budget(100)) for each in (HANModel, SMASHModel))
    assert not torch.allclose(han[0], han[1], atol=1e-4)
    torch.testing.assert_close(han[1], han[2])
    assert not torch.allclose(smash[1], smash[2], atol=1e-4)


@pytest.mark.parametrize("model_class", [HANModel, SMASHModel])
def test_parts_sum_up_to_the_vector(model_class):
    own, texts = model(model_class), structured(DOCUMENTS)
    with torch.no_grad():
        towers = []
        for part in own.parts(texts, Budget(5)):
            towers.append(torch.zeros(len(texts), 6).index_add_(0, torch.from_numpy(part.document), part.states))
            lengths = np.diff(part.tokens, axis=1).sum(1)
            covered = np.bincount(part.document, lengths, len(texts))
            assert list(covered) == list(np.maximum(texts.lengths, 1))
        whole = torch.cat(towers, dim=1)
        expected = own.encode_documents(texts, Budget(100))
    torch.testing.assert_close(whole / whole.norm(dim=1, keepdim=True), expected, atol=1e-6, rtol=1e-5)


def test_gradients_reach_every_weight():
    own = model(SMASHModel).train()
    texts = structured(DOCUMENTS)
    own(texts, texts, np.array([[0, 1], [1, 3]]), Budget(9)).sum().backward()
    assert all(each.grad is not None and each.grad.abs().sum() > 0 for each in own.parameters())


def test_documents_have_to_know_their_sentences():
    with pytest.raises(TypeError, match="tokenised by sentences"):
        model(HANModel).encode_documents(Ragged.from_lists([[1, 2]]), Budget(9))


@pytest.mark.parametrize("settings", [{"hidden": 0}, {"dims": -1}, {"vocabulary": 2.0}])
def test_settings_out_of_range(settings):
    with pytest.raises(ValueError, match=f"{next(iter(settings))} must be a whole number"):
        HANConfig(**{"dims": 4, "vocabulary": 5, **settings})
