"""Passage models against plain loops: one sequence at a time, aggregated by hand."""

import numpy as np
import pytest
import torch

from pyterrier_longdoc.models.cross_encoder import CrossEncoderConfig, CrossEncoderModel
from pyterrier_longdoc.models.passages import PassageConfig
from pyterrier_longdoc.models.pruning import SELECTORS
from pyterrier_longdoc.pooling import Budget
from pyterrier_longdoc.windows import Ragged
from tests.models.test_encoder import SETTINGS, TEMPLATE, VOCABULARY


def model_of(**settings) -> CrossEncoderModel:
    torch.manual_seed(0)
    encoder = {"model_type": "bert", **SETTINGS["bert"], "num_labels": settings.pop("num_labels", 1)}
    options = {"passage_tokens": 8, "overlap": 2, **settings}
    model = CrossEncoderModel(CrossEncoderConfig(encoder, TEMPLATE, **options)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    return model


def texts(*lengths, seed=0) -> Ragged:
    generator = np.random.default_rng(seed)
    return Ragged.from_lists([generator.integers(4, VOCABULARY, length) for length in lengths])


QUERIES, DOCUMENTS = texts(3, 1, seed=1), texts(0, 5, 8, 9, 30, 14)
PAIRS = np.array([[query, document] for document in range(6) for query in range(2)])


def passage_score(model, query, passage) -> float:
    """Of one (query, passage) through the plain modules of transformers."""
    ids = torch.tensor([[2, *query.tolist(), 3, *passage.tolist(), 3]])
    types = torch.tensor([[0] * (len(query) + 2) + [1] * (len(passage) + 1)])
    output = model.encoder(ids, token_type_ids=types)
    if not model.config.classifier:
        return model.head(output.last_hidden_state[:, 0]).item()
    return output.logits[0, 0].item() if output.logits.shape[1] == 1 else output.logits[0].diff().item()


def naive_scores(model, size=8, stride=6) -> list[list[float]]:
    found = []
    for query, document in PAIRS:
        tokens = DOCUMENTS[document]
        starts = [0, *(start for start in range(stride, len(tokens), stride) if start + size - stride < len(tokens))]
        passages = [tokens[start : start + size] for start in starts]
        found.append([passage_score(model, QUERIES[query], each) for each in passages])
    return found


BY_HAND = {
    "first": lambda scores: scores[0],
    "max": max,
    "sum": sum,
    "mean": lambda scores: sum(scores) / len(scores),
    "kmax": lambda scores: sum(sorted(scores)[-2:]) / len(scores[:2]),
}


@pytest.mark.parametrize("aggregation", BY_HAND)
def test_aggregations(aggregation):
    model = model_of(aggregation=aggregation, k=2)
    with torch.inference_mode():
        expected = torch.tensor([BY_HAND[aggregation](scores) for scores in naive_scores(model)])
        torch.testing.assert_close(model(QUERIES, DOCUMENTS, PAIRS, Budget(50)), expected, atol=1e-5, rtol=1e-5)
        assert model(QUERIES, DOCUMENTS, PAIRS[:0]).shape == (0,)
    assert expected.std() > 0.05


@pytest.mark.parametrize("labels", [1, 2])
def test_classifiers_score_by_their_logits(labels):
    """Of two labels, the second less the first."""
    model = model_of(classifier=True, num_labels=labels)
    with torch.inference_mode():
        expected = torch.tensor([max(scores) for scores in naive_scores(model)])
        torch.testing.assert_close(model(QUERIES, DOCUMENTS, PAIRS), expected, atol=1e-5, rtol=1e-5)


def test_classifiers_of_more_labels():
    with pytest.raises(ValueError, match="classifier of 3 labels has no relevance score"):
        model_of(classifier=True, num_labels=3)


def test_one_passage_a_document():
    model = model_of(passage_tokens=None, aggregation="first")
    with torch.inference_mode():
        expected = [passage_score(model, QUERIES[query], DOCUMENTS[document]) for query, document in PAIRS]
        torch.testing.assert_close(model(QUERIES, DOCUMENTS, PAIRS), torch.tensor(expected), atol=1e-5, rtol=1e-5)


def test_scores_of_passages_explain():
    model = model_of()
    with torch.inference_mode():
        found = list(model.explain(QUERIES, DOCUMENTS, PAIRS, Budget(50)))
        for (positions, weights), scores in zip(found, naive_scores(model), strict=True):
            assert weights == pytest.approx(scores, abs=1e-5)
            assert len(positions) == len(weights)
    assert found[-1][0].tolist() == [[*range(8)], [*range(6, 14)]]


# Reading less ---------------------------------------------------------------------------------------------------------


def test_a_budget_of_passages(monkeypatch):
    """Those that the selector scores highest are read, in the order of the text; shorter documents are read whole."""
    read = []

    def selector(query, document, positions):
        read.append((query.tolist(), document.tolist()))
        return np.array([1.0, 5, 3, 9, 0])

    monkeypatch.setitem(SELECTORS, "mine", selector)
    model = model_of(max_passages=2, selector="mine", aggregation="sum")
    with torch.inference_mode():
        every = naive_scores(model)
        expected = torch.tensor([scores[1] + scores[3] if len(scores) == 5 else sum(scores) for scores in every])
        torch.testing.assert_close(model(QUERIES, DOCUMENTS, PAIRS), expected, atol=1e-5, rtol=1e-5)
    assert read == [(QUERIES[query].tolist(), DOCUMENTS[4].tolist()) for query in range(2)]


def test_a_budget_finds_the_terms_of_the_query():
    document = np.full(40, 5, np.int32)
    document[[21, 33]] = 9, 7
    model = model_of(max_passages=1, overlap=0)
    query, documents = Ragged.from_lists([[9]]), Ragged.from_lists([document])
    passages = model.passages(query, documents, np.array([[0, 0]]), Budget(50))
    assert passages.windows.positions.tolist() == [list(range(16, 24))]


def test_training_reads_a_sample():
    """Drawn anew in each pass from PyTorch's generator; first and last passage always, and ranking reads all."""
    model = model_of(train_passages=3, aggregation="mean").train()
    pair, seen = (QUERIES, DOCUMENTS, np.array([[0, 4]]), Budget(50)), set()
    for seed in range(20):
        torch.manual_seed(seed)
        passages = model.passages(QUERIES, DOCUMENTS, np.array([[0, 4], [1, 2]]), Budget(50))
        assert np.diff(passages.offsets).tolist() == [3, 1]
        assert passages.query.tolist() == [0, 0, 0, 1]
        starts = passages.windows.positions[:3, 0].tolist()
        assert (starts[0], starts[-1]) == (0, 24)
        seen.add(starts[1])
        torch.manual_seed(seed)
        assert model.passages(*pair).windows.positions[:, 0].tolist() == starts
    assert seen == {6, 12, 18}
    assert np.diff(model.eval().passages(*pair).offsets).tolist() == [5]


def test_the_maximum_is_inside_the_loss():
    """Only the best passage of a document gets a gradient."""
    model = model_of(train_passages=None)
    outputs = torch.randn(1, 4, 16, requires_grad=True)
    model.aggregate(outputs).sum().backward()
    assert (outputs.grad.abs().sum(2) > 0).sum() == 1
    model.train()(QUERIES, DOCUMENTS, PAIRS, Budget(50)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert len(model.representation_parameters()) == len(list(model.parameters())) - 2


# Limits and settings --------------------------------------------------------------------------------------------------


def test_queries_are_never_cut():
    """The encoder has 40 positions."""
    model, document = model_of(passage_tokens=30, overlap=0), texts(60)
    with torch.inference_mode():
        scores = [model(texts(length), document, np.array([[0, 0]])).item() for length in (6, 7)]
        assert scores[0] != scores[1]
        with pytest.raises(ValueError, match=r"query of 8 tokens.*window of 30.*lower passage_tokens.*room for 29"):
            model(texts(8), document, np.array([[0, 0]]))
        with pytest.raises(ValueError, match="lower max_doc_tokens"):
            model_of(passage_tokens=None)(texts(8), document, np.array([[0, 0]]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"passage_tokens": 0}, "tokens of a passage must be"),
        ({"passage_tokens": 5, "overlap": 5}, "0 to 4"),
        ({"unit": "paragraph"}, "unit must be 'token' or 'sentence'"),
        ({"max_passages": 0}, "max_passages must be a whole number of at least 1"),
        ({"train_passages": -1}, "train_passages must be a whole number of at least 1"),
        ({"selector": "best"}, "selector must be one of"),
        ({"aggregation": "min"}, "aggregation must be one of first, max"),
        ({"k": 0}, "k must be a whole number of at least 1"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        model_of(**settings)


def test_settings_go_through_dicts():
    config = model_of(unit="sentence", max_passages=3).config
    assert CrossEncoderConfig.from_dict(config.to_dict()) == config
    assert config.vocabulary == VOCABULARY
    assert PassageConfig({"vocab_size": 3}, TEMPLATE).vocabulary == 3
