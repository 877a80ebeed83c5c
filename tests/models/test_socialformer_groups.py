"""What Socialformer reads of a document: circles that depend on nothing else, and weights computed once."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from pyterrier_longdoc.graph.weights import scaled
from pyterrier_longdoc.models.centrality import Centrality
from pyterrier_longdoc.models.social_groups import SocialGroups
from pyterrier_longdoc.models.social_settings import GroupSettings
from pyterrier_longdoc.text.template import Frame
from pyterrier_longdoc.windows import Ragged
from tests.models.test_socialformer import DOCUMENTS, PAIRS, QUERIES, some_tokens, tiny

GOLDEN = np.load(Path(__file__).parent / "golden" / "socialformer_centrality.npz")
FRAME = Frame((((2, 0),), ((3, 0),), ((3, 1),)), (0, 1))


def as_lists(groups) -> list[list[list[int]]]:
    positions = [groups.positions[i].tolist() for i in range(len(groups.is_circle))]
    return [positions[first:end] for first, end in zip(groups.offsets[:-1], groups.offsets[1:], strict=True)]


# Dynamic centrality ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def published_bert():
    config = BertConfig(
        vocab_size=400, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=128,
    )
    bert = BertModel(config, add_pooling_layer=False)
    state = {name[6:]: torch.from_numpy(GOLDEN[name]) for name in GOLDEN.files if name.startswith("state/")}
    missing, _ = bert.load_state_dict(state, strict=False)
    assert not missing
    return bert.train()  # as after a training: the frozen copy must not care


@pytest.mark.parametrize("item", ["item1", "item3"])
def test_cosines_are_the_published_ones(published_bert, item):
    centrality = Centrality(published_bert, FRAME, attention=False)
    query, document = GOLDEN[f"{item}/qry"], GOLDEN[f"{item}/psg"]
    weights = centrality(query, document)
    np.testing.assert_allclose(weights, scaled(GOLDEN[f"{item}/cos_weight"].astype(float)), atol=0.6 / 4095)
    assert np.abs(weights * 4095 - np.round(weights * 4095)).max() < 1e-3


@pytest.mark.parametrize("item", ["item1", "item3"])
def test_attention_is_the_published_one(published_bert, item):
    """The published code reads the best tokens in the order of their likeness: here they come as a document."""
    query, ids = GOLDEN[f"{item}/qry"], GOLDEN[f"{item}/input_ids"]
    document = ids[len(query) + 2 : -1]
    expected = GOLDEN[f"{item}/cls_attention"][: len(document)].astype(float)
    weights = Centrality(published_bert, FRAME).train()(query, document)
    np.testing.assert_allclose(weights, scaled(expected), atol=0.6 / 4095)


def test_only_the_most_alike_are_weighed_anew(published_bert):
    """128 positions: 6 of the query, 3 special tokens, so 119 of 300 tokens are read by the encoder."""
    query, document = GOLDEN["item3/qry"], GOLDEN["item3/psg"]
    module = Centrality(published_bert, FRAME)
    likeness = GOLDEN["item3/cos_weight"].astype(float)
    chosen = np.sort(np.argsort(-likeness, kind="stable")[:119])
    ids = torch.tensor([[2, *query, 3, *document[chosen], 3]])
    types = torch.tensor([[0] * 8 + [1] * 120])
    eager = BertModel._from_config(published_bert.config, attn_implementation="eager", add_pooling_layer=False).eval()
    eager.load_state_dict(published_bert.state_dict())
    with torch.no_grad():
        output = eager(ids, token_type_ids=types, output_attentions=True)
    attention = output.attentions[-1][0, :, 0, 8:-1].sum(0).double().numpy()
    expected = likeness.copy()
    expected[chosen] = attention * likeness[chosen].sum() / attention.sum()
    np.testing.assert_allclose(module(query, document), scaled(expected), atol=0.6 / 4095)


def test_centrality_of_nothing(published_bert):
    module = Centrality(published_bert, FRAME)
    assert module(np.array([], np.int32), np.array([7, 8])).tolist() == [0, 0]
    assert module(np.array([7]), np.array([], np.int32)).shape == (0,)
    assert module(np.array([7]), np.array([9])).tolist() == [1]  # a constant vector
    long_query = np.arange(10, 140)  # leaves no room in 128 positions: likeness alone
    likeness = Centrality(published_bert, FRAME, attention=False)(long_query, np.array([7, 12, 300]))
    assert module(long_query, np.array([7, 12, 300])).tolist() == likeness.tolist()


def test_a_broken_frozen_encoder_is_told_of(published_bert):
    module = Centrality(published_bert, FRAME)
    with torch.no_grad():
        module.encoder.embeddings.word_embeddings.weight[8] = torch.nan
    with pytest.warns(RuntimeWarning, match="frozen encoder of dynamic centrality gives weights that are not finite"):
        assert np.isfinite(module(np.array([7, 9]), np.array([8, 9, 10]))).all()


# Groups ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partition", ["node", "edge"])
def test_groups_depend_on_the_pair_alone(partition):
    model = tiny(partition=partition)
    together = as_lists(model.social(QUERIES, DOCUMENTS, PAIRS))
    for place in (0, 5, 13, 20):
        assert as_lists(tiny(partition=partition).social(QUERIES, DOCUMENTS, PAIRS[place][None])) == [together[place]]
    assert as_lists(model.social(QUERIES, DOCUMENTS, PAIRS[::-1].copy()))[::-1] == together


def test_groups_cover_each_token_with_passages_and_add_circles():
    groups = tiny().social(QUERIES, DOCUMENTS, PAIRS)
    for (_, document), of_pair, first in zip(PAIRS, as_lists(groups), groups.offsets, strict=False):
        circle = groups.is_circle[first : first + len(of_pair)]
        n = int(DOCUMENTS.lengths[document])
        passages = [part for part, is_circle in zip(of_pair, circle, strict=True) if not is_circle]
        assert passages == ([list(range(start, min(start + 20, n))) for start in range(0, n, 20)] or [[]])
        for members in of_pair[len(passages) :]:
            assert 2 <= len(members) <= 12
            assert members[1:] == sorted(set(members) - {members[0]})
    assert groups.is_circle.sum() >= 3 * 12


def test_query_document_and_seed_make_other_graphs():
    def circles(seed, query, document):
        model = tiny(seed=seed, patterns=["static_distance"])
        return as_lists(model.social(query, document, PAIRS[:1]))[0][5:]

    query, document = QUERIES.take(np.array([0])), DOCUMENTS.take(np.array([0]))
    one = circles(0, query, document)
    assert circles(0, query, document) == one
    other = Ragged(document.values.copy(), document.offsets)
    other.values[50] += 1
    assert len({str(each) for each in (one, circles(1, query, document), circles(0, QUERIES, document),
                                       circles(0, QUERIES.take(np.array([2])), document),
                                       circles(0, query, other))}) == 4  # QUERIES begins with the same query


@pytest.mark.parametrize("document", [[], [7], [7, 8], [7] * 60, list(range(10, 70))])
@pytest.mark.parametrize("query", [[], [7], [99, 98]])
def test_odd_documents_and_queries(document, query):
    """Of 0, 1 and 2 tokens, of one repeated token, without any match."""
    texts = Ragged.from_lists([query]), Ragged.from_lists([document])
    model = tiny(sparsity=0.5)
    groups = model.social(*texts, np.array([[0, 0]]))
    assert torch.isfinite(model(*texts, np.array([[0, 0]]))).all()
    assert len(groups.is_circle) >= 1
    if len(document) >= 60:
        assert groups.is_circle.sum() == 3


@pytest.mark.parametrize("patterns", [["dynamic_distance"], ["static_centrality"], ["dynamic_centrality"], []])
def test_single_patterns(patterns):
    texts = Ragged.from_lists([[99]]), some_tokens(60)
    texts[1].values[texts[1].values == 99] = 98
    groups = tiny(patterns=patterns).social(*texts, np.array([[0, 0]]))
    assert groups.is_circle.any() == (patterns != ["dynamic_distance"])  # without a match it connects nothing


def test_weights_are_computed_once(monkeypatch):
    model, calls = tiny(), []
    compute = model.social.centrality.forward
    monkeypatch.setattr(model.social.centrality, "forward", lambda *ids: calls.append(1) or compute(*ids))
    first = as_lists(model.social(QUERIES, DOCUMENTS, PAIRS))
    assert len(calls) == len(PAIRS)
    assert as_lists(model.social(QUERIES, DOCUMENTS, PAIRS)) == first
    assert len(calls) == len(PAIRS)
    with torch.no_grad():
        model.social.centrality.encoder.embeddings.word_embeddings.weight.mul_(1.5)
    model.social(QUERIES, DOCUMENTS, PAIRS[:2])
    assert len(calls) == len(PAIRS) + 2


def test_document_frequencies_are_used_and_checked():
    model = tiny(patterns=["static_centrality"])
    before = as_lists(model.social(QUERIES, DOCUMENTS, PAIRS[:1]))
    frequency = np.arange(120)
    model.social.set_document_frequency(frequency, 200)
    assert model.social.has_idf
    assert model.social.idf[[0, 1, 50]].tolist() == pytest.approx([np.log(201), np.log(201), np.log(5)])
    assert as_lists(model.social(QUERIES, DOCUMENTS, PAIRS[:1])) != before
    with pytest.raises(ValueError, match=r"120 terms need as many frequencies, got the shape \(7,\)"):
        model.social.set_document_frequency(np.ones(7), 10)
    with pytest.raises(ValueError, match="between 0 and the number of documents, 100"):
        model.social.set_document_frequency(frequency, 100)


def test_a_function_of_the_users_own():
    def last_third(query, document):
        return np.arange(len(document)) >= 2 * len(document) // 3

    social = SocialGroups(GroupSettings(patterns=["dynamic_centrality"], sparsity=0.95), 120, last_third)
    groups = social(QUERIES, DOCUMENTS, PAIRS[:1])
    circles = [groups.positions[i] for i in np.flatnonzero(groups.is_circle)]
    assert len(circles) > 2 and min(circle.min() for circle in circles) >= 60
    other = lambda query, document: np.arange(len(document)) < len(document) // 3  # noqa: E731
    social.centrality = other  # what the first one said is forgotten
    assert as_lists(social(QUERIES, DOCUMENTS, PAIRS[:1])) == as_lists(
        SocialGroups(social.settings, 120, other)(QUERIES, DOCUMENTS, PAIRS[:1])
    ) != as_lists(groups)
    for wrong, message in ((lambda query, document: np.ones(3), r"got the shape \(3,\)"),
                           (lambda query, document: np.full(len(document), np.nan), "dynamic_centrality holds nan")):
        with pytest.raises(ValueError, match=message):
            SocialGroups(GroupSettings(), 120, wrong)(QUERIES, DOCUMENTS, PAIRS[:1])
    with pytest.raises(ValueError, match="not saved with it"):
        SocialGroups(GroupSettings(), 120, None)(QUERIES, DOCUMENTS, PAIRS[:1])
