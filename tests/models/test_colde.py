"""CoLDE against a naive float64 version of the paper's mathematics, and what must hold whatever the weights."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import pyterrier_longdoc as longdoc
from pyterrier_longdoc.models.colde import CoLDEModel, SectionRows
from pyterrier_longdoc.models.colde_settings import CoLDEConfig
from pyterrier_longdoc.pooling import Budget
from pyterrier_longdoc.text.sections import Sectioned, shuffle_sections
from pyterrier_longdoc.windows import Ragged
from tests.conftest import shake

BUDGET = Budget(400)
ROOM = 18


def sectioned(*documents: list[int], seed: int = 0) -> Sectioned:
    """Documents with sections of so many tokens."""
    random = np.random.default_rng(seed)
    tokens = Ragged.from_lists([random.integers(5, 70, sum(sizes)) for sizes in documents])
    section = np.concatenate([np.repeat(np.arange(len(sizes)), sizes) for sizes in documents]).astype(np.int8)
    return Sectioned(tokens.values, tokens.offsets, np.zeros_like(section), section)


DOCUMENTS = sectioned([50, 20], [0], [5], [70, 1, 40], [18, 18], [3, 90])


@pytest.fixture(scope="module")
def make(tiny):
    def build(**settings):
        settings = {"chunk_tokens": ROOM + 2, "hidden": 10, "dims": 12, "chunk_numbers": 3, **settings}
        return shake(longdoc.CoLDE(tiny.encoder, **settings)).model

    return build


# A naive version ------------------------------------------------------------------------------------------------------


def double(model: CoLDEModel) -> CoLDEModel:
    return copy.deepcopy(model).double().eval()


def oracle(model: CoLDEModel, document: Sectioned) -> dict[str, torch.Tensor]:
    """One document by a float64 model, chunk by chunk, head by head, step by step."""
    config, frame = model.config, model.config.template.single
    (cls,), (sep,) = ([token for token, _ in group] for group in frame.specials)
    chunks = {}
    numbers = sorted(set(document.section.tolist())) or [0]
    for section in numbers:
        tokens = document.values[document.section == section].tolist()
        parts = [tokens[first : first + config.room] for first in range(0, len(tokens), config.room)] or [[]]
        chunks[section] = torch.stack([chunk(model, [cls, *part, sep], section, q) for q, part in enumerate(parts)])
    sections, weights = [], {}
    for place, section in enumerate(numbers):
        own, following = chunks[section], chunks[numbers[(place + 1) % len(numbers)]]
        if config.lstm:
            seen, weights[section] = attend(model.attention, own, following)
            states = [lstm(model.lstm, own + seen, ""), lstm(model.lstm, (own + seen).flip(0), "_reverse")]
            summary = torch.cat(states)
        else:
            summary = own.mean(0)
        projected = model.projection.weight @ summary + model.projection.bias
        sections.append(projected / projected.norm())
    mean = torch.stack(sections).mean(0)
    return {"sections": torch.stack(sections), "document": mean / mean.norm(), "weights": weights}


def chunk(model: CoLDEModel, ids: list[int], section: int, number: int) -> torch.Tensor:
    vectors = model.encoder.get_input_embeddings()(torch.tensor([ids]))
    if model.config.augmentation:
        vectors = vectors + model.section_embeddings.weight[section]
        vectors = vectors + model.chunk_embeddings.weight[min(number, model.config.chunk_numbers - 1)]
    output = model.encoder(inputs_embeds=vectors)
    states = output.last_hidden_state[0]
    return {"pooler": lambda: output.pooler_output[0], "cls": lambda: states[0], "mean": lambda: states.mean(0)}[
        model.config.pooling
    ]()


def attend(attention, own, others):
    query, key, value = (
        rows @ weight.T + bias
        for rows, weight, bias in zip(
            (own, others, others), attention.in_proj_weight.chunk(3), attention.in_proj_bias.chunk(3), strict=True
        )
    )
    heads, weights = [], []
    for q, k, v in zip(*(each.chunk(attention.num_heads, 1) for each in (query, key, value)), strict=True):
        weights.append(torch.softmax(q @ k.T / q.shape[1] ** 0.5, dim=1))
        heads.append(weights[-1] @ v)
    joined = torch.cat(heads, 1)
    return joined @ attention.out_proj.weight.T + attention.out_proj.bias, torch.stack(weights).mean(0)


def lstm(module, inputs, suffix):
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    ih, hh, bias_ih, bias_hh = (getattr(module, name + suffix) for name in names)
    hidden = cell = torch.zeros(module.hidden_size, dtype=torch.float64)
    for row in inputs:
        i, f, g, o = (ih @ row + bias_ih + hh @ hidden + bias_hh).chunk(4)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * cell.tanh()
    return hidden


def largest_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return (found.double() - expected).abs().max().item()


@pytest.mark.parametrize(
    "settings",
    [{}, {"pooling": "mean"}, {"pooling": "cls", "heads": 2}, {"lstm": False}, {"augmentation": False}],
    ids=["paper", "mean", "cls", "-LSTM", "no embeddings"],
)
def test_vectors_are_those_of_a_naive_version(make, settings):
    model = make(**settings)
    with torch.inference_mode():
        vectors = model.encode_documents(DOCUMENTS, BUDGET)
        views, document = model.encode_views(DOCUMENTS, BUDGET)
    assert document.tolist() == [0, 0, 1, 2, 3, 3, 3, 4, 4, 5, 5]
    for number in range(len(DOCUMENTS)):
        expected = oracle(double(model), DOCUMENTS.take(np.array([number])))
        assert largest_error(vectors[number], expected["document"]) < 1e-5
        assert largest_error(views[document == number], expected["sections"]) < 1e-5
    assert torch.allclose(vectors.norm(dim=1), torch.ones(len(vectors)), atol=1e-6)


def test_attention_weights_are_those_of_a_naive_version(make):
    model = make()
    with torch.inference_mode():
        levels = model.levels(DOCUMENTS, BUDGET)
        whole = model.encode_documents(DOCUMENTS, BUDGET)
    for number, found in enumerate(levels):
        expected = oracle(double(model), DOCUMENTS.take(np.array([number])))
        assert largest_error(found.document, whole[number].double()) < 1e-6
        assert largest_error(found.sections, expected["sections"]) < 1e-5
        assert torch.allclose(found.attention.sum(1), torch.ones(len(found.attention)), atol=1e-5)
        for section, weights in expected["weights"].items():
            row = found.section_of == found.numbers.tolist().index(section)
            seen = found.attention[torch.from_numpy(row)]
            assert largest_error(seen[seen > 0], weights.flatten()) < 1e-5
            assert (seen > 0).sum() == weights.numel()


def test_gradients_are_those_of_a_naive_version(make):
    model = make().eval()
    target = torch.randn(len(DOCUMENTS), model.dims, generator=torch.Generator().manual_seed(3))
    (model.encode_documents(DOCUMENTS, BUDGET) * target).sum().backward()
    naive = double(model)
    naive.zero_grad()
    for number, wanted in enumerate(target):
        (oracle(naive, DOCUMENTS.take(np.array([number])))["document"] * wanted.double()).sum().backward()
    compared = 0
    for (name, found), expected in zip(model.named_parameters(), naive.parameters(), strict=True):
        if expected.grad is not None and expected.grad.abs().max() > 0:
            compared += 1
            assert largest_error(found.grad, expected.grad) < 1e-4 * max(1, expected.grad.abs().max()), name
        else:
            assert found.grad is None or found.grad.abs().max() < 1e-6, name
    assert compared > 40


# What must hold -------------------------------------------------------------------------------------------------------


def test_a_document_is_encoded_alone(make):
    model = make()
    with torch.inference_mode():
        together = model.encode_documents(DOCUMENTS, Budget(10_000))
        for number in range(len(DOCUMENTS)):
            alone = model.encode_documents(DOCUMENTS.take(np.array([number])), Budget(30))
            assert torch.allclose(alone[0], together[number], atol=1e-5)


def test_no_chunk_is_left_out(make):
    """Also beyond the last number that has an embedding of its own, and in the last section."""
    model = make(chunk_numbers=2)
    tokens = sectioned([200, 100])
    with torch.inference_mode():
        before = model.encode_documents(tokens, BUDGET)
        for place in range(0, 300, ROOM):
            values = tokens.values.copy()
            values[place] = 5 + (values[place] - 4) % 60
            changed = Sectioned(values, tokens.offsets, tokens.begins, tokens.section)
            assert (model.encode_documents(changed, BUDGET) - before).abs().max() > 1e-6, place


def test_shuffled_sections_keep_the_vector(make):
    model = make()
    with torch.inference_mode():
        before = model.encode_documents(DOCUMENTS, BUDGET)
        after = model.encode_documents(shuffle_sections(DOCUMENTS, 5), BUDGET)
    assert torch.allclose(before, after, atol=1e-6)


def test_sections_chunks_and_order_count(make):
    model = make()
    same = np.tile(np.arange(5, 5 + ROOM), 2)
    one = np.zeros(2 * ROOM, np.int8)
    two = np.repeat([0, 1], ROOM).astype(np.int8)
    offsets = np.array([0, 2 * ROOM])
    with torch.inference_mode():
        vectors = [
            model.encode_views(Sectioned(same, offsets, one, section), BUDGET)[0] for section in (one, two)
        ]
    assert len(vectors[0]) == 1 and len(vectors[1]) == 2
    assert (vectors[1][0] - vectors[1][1]).abs().max() > 1e-4  # the same words in another section
    assert (vectors[0][0] - vectors[1][0]).abs().max() > 1e-4


def test_the_embeddings_of_places_start_at_nothing(tiny):
    model = longdoc.CoLDE(tiny.encoder, chunk_tokens=ROOM + 2).model
    without = longdoc.CoLDE(tiny.encoder, chunk_tokens=ROOM + 2, augmentation=False).model
    chunks = model.chunks(DOCUMENTS)
    with torch.inference_mode():
        assert torch.allclose(
            model.encode_chunks(DOCUMENTS, chunks, BUDGET), without.encode_chunks(DOCUMENTS, chunks, BUDGET), atol=1e-6
        )


def test_without_a_chunk(make):
    model = make()
    document = DOCUMENTS.take(np.array([0]))  # chunks of sections 0, 0, 0, 1, 1
    with torch.inference_mode():
        windows, without = model.occluded(document, BUDGET)
        assert len(windows) == len(without) == 5
        shorter = document.select(np.arange(68), np.array([68]))  # without the last chunk, of two tokens
        assert torch.allclose(without[4], model.encode_documents(shorter, BUDGET)[0], atol=1e-5)
        only, empty = model.occluded(DOCUMENTS.take(np.array([2])), BUDGET)
        assert len(only) == 1
        assert torch.allclose(empty, model.encode_documents(DOCUMENTS.take(np.array([1])), BUDGET), atol=1e-6)


def test_sections_by_hand():
    document, section = np.array([0, 0, 0, 1, 1, 1, 1]), np.array([0, 0, 1, 2, 0, 0, 1])
    rows = SectionRows.of(np.arange(7), document, section)
    assert [rows.rows[number].tolist() for number in range(5)] == [[0, 1], [2], [4, 5], [6], [3]]
    assert rows.following.tolist() == [1, 0, 3, 4, 2]
    assert rows.document.tolist() == [0, 0, 1, 1, 1]
    assert rows.section.tolist() == [0, 1, 0, 1, 2]


@pytest.mark.parametrize("training", [False, True])
def test_gradients_by_caching_are_those_of_one_large_batch(make, training):
    """With dropout too: it is the same in both computations of a batch."""
    gradients = []
    for recompute in (False, True):
        model = make().train(training)
        torch.manual_seed(7)
        views, document = model.encode_views(DOCUMENTS, Budget(60), recompute=recompute)
        (views @ views.T).square().sum().backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys() and len(gradients[0]) > 30
    for name, expected in gradients[0].items():
        assert torch.allclose(gradients[1][name], expected, atol=1e-5 * max(1, expected.abs().max())), name
    if training:
        assert model.encoder.config.hidden_dropout_prob > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sections": 6}, "sections must be a whole number from 1 to 5"),
        ({"chunk_tokens": 2}, "chunk_tokens=2 leaves no room"),
        ({"chunk_tokens": 5_000}, "lower chunk_tokens"),
        ({"heads": 5}, "heads=5 does not divide"),
        ({"hidden": 0}, "hidden must be"),
        ({"dims": 2.5}, "dims must be"),
        ({"max_tokens": 0}, "max_tokens must be"),
        ({"chunk_numbers": True}, "chunk_numbers must be"),
        ({"pooling": "max"}, "pooling must be one of 'pooler', 'cls', 'mean'"),
    ],
)
def test_settings_are_checked(tiny, settings, message):
    with pytest.raises(ValueError, match=message):
        longdoc.CoLDE(tiny.encoder, **settings)


def test_settings_travel_as_json(make):
    import json

    config = make(lstm=False, sections=3).config
    assert CoLDEConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
