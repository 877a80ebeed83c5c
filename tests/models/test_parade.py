"""PARADE's aggregations by hand, and the model against plain loops."""

import numpy as np
import pytest
import torch
from torch import nn

from pyterrier_longdoc.models.parade import (
    AGGREGATIONS,
    Attention,
    ConvolutionTree,
    Maximum,
    Mean,
    PARADEConfig,
    PARADEModel,
    Transformer,
)
from pyterrier_longdoc.pooling import Budget
from tests.models.test_encoder import SETTINGS, TEMPLATE
from tests.models.test_passages import DOCUMENTS, PAIRS, QUERIES


def model_of(aggregation, **settings) -> PARADEModel:
    torch.manual_seed(0)
    options = {"passage_tokens": 8, "overlap": 2, "aggregation": aggregation, **settings}
    model = PARADEModel(PARADEConfig({"model_type": "bert", **SETTINGS["bert"]}, TEMPLATE, **options)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    return model


PASSAGES = torch.tensor([[[1.0, 4.0], [3.0, 0.0], [2.0, 2.0]]])


def test_mean_and_maximum():
    assert Mean()(PASSAGES).tolist() == [[2, 2]]
    assert Maximum()(PASSAGES).tolist() == [[3, 4]]


def test_attention():
    attention = Attention(2)
    with torch.no_grad():
        attention.weight.weight.copy_(torch.tensor([[np.log(2.0), 0.0]]))  # weights as 2:8:4
    expected = (2 * np.array([1, 4]) + 8 * np.array([3, 0]) + 4 * np.array([2, 2])) / 14
    assert attention(PASSAGES)[0].tolist() == pytest.approx(expected.tolist())


def sums(tree, *scales):
    """Makes layer n add its two vectors and multiply the sum by a scale."""
    with torch.no_grad():
        for layer, scale in zip(tree.layers, scales, strict=True):
            layer.weight.copy_(scale * torch.eye(2)[..., None].expand(2, 2, 2))
            layer.bias.zero_()
    return tree


def test_a_tree_of_convolutions():
    """(1+2)·10, (3+0)·10, then (30+30)·100: an odd one is joined with zeros."""
    tree = sums(ConvolutionTree(2, 2), 10, 100)
    values = torch.tensor([[1.0, 2.0, 3.0]])[..., None].expand(1, 3, 2)
    assert tree(values).tolist() == [[6_000, 6_000]]
    assert tree(values[:, :1]).tolist() == [[1, 1]]  # one passage is the root
    assert tree(values[:, :2]).tolist() == [[30, 30]]
    assert tree(values.repeat(1, 2, 1)).tolist() == [[1_200_000, 1_200_000]]  # 12 through 10, 100 and 100 again
    assert sums(tree, -1, 1)(values).tolist() == [[0, 0]]  # negative sums are cut off


def test_the_transformer_reads_a_set():
    torch.manual_seed(0)
    transformer, passages = Transformer(8, 2, 2).eval(), torch.randn(3, 5, 8)
    vectors = transformer(passages)
    assert vectors.shape == (3, 8)
    torch.testing.assert_close(transformer(passages[:, [4, 0, 3, 1, 2]]), vectors)
    for number in range(5):
        changed = passages.clone()
        changed[:, number] += 1
        assert not torch.allclose(transformer(changed), vectors, atol=1e-3)


def test_layers_of_the_transformer_start_apart():
    first, second = Transformer(8, 2, 2).layers
    assert not torch.equal(first.linear1.weight, second.linear1.weight)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_models_against_loops(aggregation):
    """One document at a time, one passage at a time, whatever the number of passages (1 to 5)."""
    model, expected = model_of(aggregation), []
    with torch.inference_mode():
        for query, document in PAIRS:
            tokens, vectors = DOCUMENTS[document], []
            starts = [0, *(start for start in range(6, len(tokens), 6) if start + 2 < len(tokens))]
            for passage in (tokens[start : start + 8] for start in starts):
                ids = torch.tensor([[2, *QUERIES[query].tolist(), 3, *passage.tolist(), 3]])
                types = torch.tensor([[0] * (len(QUERIES[query]) + 2) + [1] * (len(passage) + 1)])
                vectors.append(model.encoder(ids, token_type_ids=types).last_hidden_state[0, 0])
            expected.append(model.head(model.aggregation(torch.stack(vectors)[None]))[0, 0])
        torch.testing.assert_close(
            model(QUERIES, DOCUMENTS, PAIRS, Budget(50)), torch.stack(expected), atol=1e-5, rtol=1e-5
        )
    assert torch.stack(expected).std() > 0.01


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_weights_are_what_the_score_would_lose(aggregation):
    model = model_of(aggregation)
    outputs = torch.randn(1, 4, 16)
    with torch.inference_mode():
        weights = model.passage_weights(outputs)
        for number, weight in enumerate(weights):
            rest = outputs[:, [n for n in range(4) if n != number]]
            assert weight.item() == pytest.approx((model.aggregate(outputs) - model.aggregate(rest)).item(), abs=1e-5)
        assert model.passage_weights(outputs[:, :1]).tolist() == model.aggregate(outputs[:, :1]).tolist()


def test_layers():
    assert len(model_of("cnn").aggregation.layers) == 4
    assert len(model_of("transformer").aggregation.layers) == 2
    assert len(model_of("transformer", layers=3).aggregation.layers) == 3
    assert isinstance(model_of("mean").aggregation, nn.Module)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"aggregation": "sum"}, "aggregation must be one of mean, max"),
        ({"layers": 0}, "layers must be a whole number of at least 1"),
        ({"classifier": True}, "no use for the head of a classifier"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        model_of(**{"aggregation": "mean", **settings})
