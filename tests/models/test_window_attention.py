"""Longformer's attention in blocks: equal to transformers' own, whatever the window, the padding and the globals."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import LongformerConfig, LongformerModel

from pyterrier_longdoc.models.window_attention import WindowAttention


def longformer(window: int, positions: int = 1_100) -> LongformerModel:
    torch.manual_seed(0)
    config = LongformerConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        attention_window=window, max_position_embeddings=positions, pad_token_id=0,
    )
    model = LongformerModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    return model


def replaced(model: LongformerModel) -> LongformerModel:
    model = copy.deepcopy(model)
    for layer in model.encoder.layer:
        layer.attention.self = WindowAttention(layer.attention.self)
    return model


def inputs(lengths: tuple[int, ...], global_tokens: tuple[tuple[int, ...], ...]) -> dict[str, torch.Tensor]:
    ids = torch.randint(1, 50, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(1))
    mask, seen = torch.zeros_like(ids), torch.zeros_like(ids)
    for row, (length, places) in enumerate(zip(lengths, global_tokens, strict=True)):
        mask[row, :length] = 1
        seen[row, list(places)] = 1
    return {"input_ids": ids, "attention_mask": mask, "global_attention_mask": seen}


@pytest.mark.parametrize(
    ("window", "lengths", "global_tokens"),
    [
        (8, (24, 24), ((0,), (0,))),
        (8, (30, 5, 17), ((0, 3, 11), (0,), (0, 16))),
        (6, (1, 13), ((0,), (0, 1, 2, 3, 4, 5, 6, 7, 8))),
        (4, (9, 4), ((0, 8), (2,))),
        (8, (20, 11), ((), ())),
        (8, (20, 11), ((4,), ())),
        (512, (1_030, 600), ((0, 1, 2), (0, 599))),
    ],
)
def test_equal_to_the_attention_that_it_replaces(window, lengths, global_tokens):
    model, batch = longformer(window), inputs(lengths, global_tokens)
    real = batch["attention_mask"].bool()
    expected, found = (each(**batch).last_hidden_state[real] for each in (model, replaced(model)))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_equal_gradients():
    model, batch = longformer(8), inputs((22, 13), ((0, 5), (0,)))
    gradients = []
    for each in (model, replaced(model)):
        each(**batch).last_hidden_state[batch["attention_mask"].bool()].square().sum().backward()
        gradients.append({name: parameter.grad for name, parameter in each.named_parameters()})
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        if gradient is not None:
            torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-4, atol=1e-3, msg=name)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_padding_stays_finite_in_half_precision(dtype):
    model = replaced(longformer(8))
    with torch.autocast("cpu", dtype=dtype), torch.inference_mode():
        assert model(**inputs((33, 2), ((0,), (0, 1)))).last_hidden_state.isfinite().all()


def test_dropout_in_training_only():
    attention = replaced(longformer(8)).encoder.layer[0].attention.self
    states, mask = torch.randn(2, 16, 16, generator=torch.Generator().manual_seed(2)), torch.zeros(2, 16)
    mask[0, 0], mask[1, 9:] = 1.0, -1.0
    with torch.inference_mode():
        expected = attention(states, mask)[0]
        assert torch.equal(attention(states, mask)[0], expected)
        drawn = torch.stack([attention.train()(states, mask)[0] for _ in range(400)])
    assert not torch.equal(drawn[0], drawn[1])
    torch.testing.assert_close(drawn.mean(0), expected, rtol=0.1, atol=0.2)
