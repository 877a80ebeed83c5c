"""Positions and the highway mix."""

import math

import pytest
import torch

from pyterrier_longdoc.models.contextualizer import Contextualizer, Positions, sinusoids


def test_sinusoids_by_hand():
    table = sinusoids(2, 2, 4)  # time scales 1 and 10,000; rows 2 and 3
    for row, position in zip(table.tolist(), (2, 3), strict=True):
        slow = position / 10_000
        assert row == pytest.approx([math.sin(position), math.sin(slow), math.cos(position), math.cos(slow)], rel=1e-5)


def test_an_odd_width_ends_in_zeros():
    assert sinusoids(0, 3, 5).shape == (3, 5)
    assert sinusoids(0, 3, 5)[:, 4].tolist() == [0, 0, 0]


def test_positions_go_on_beyond_their_last_row():
    positions = Positions(3, 6, offset=500)
    rows = torch.tensor([[0, 2, 3, 7]])
    assert torch.equal(positions(rows)[0], sinusoids(500, 8, 6)[rows[0]])


def test_trained_rows_are_used_and_the_others_are_not_trained():
    positions = Positions(3, 6)
    with torch.no_grad():
        positions.table.fill_(9)
    output = positions(torch.tensor([1, 4]))
    assert output[0].tolist() == [9] * 6
    assert torch.equal(output[1], sinusoids(4, 1, 6)[0])
    assert not Positions(3, 6, trained=False).table.requires_grad


def test_the_mix_is_a_weighted_mean_of_vectors_and_context():
    torch.manual_seed(0)
    contextualizer = Contextualizer(8, 2, 2, 12).eval()
    vectors, positions = torch.randn(2, 5, 8), torch.randn(2, 5, 8)
    with torch.no_grad():
        contextualizer.alpha.fill_(0)
        context = contextualizer(vectors, positions, None)
        contextualizer.alpha.fill_(1)
        torch.testing.assert_close(contextualizer(vectors, positions, None), vectors)
        contextualizer.alpha.fill_(0.3)
        torch.testing.assert_close(contextualizer(vectors, positions, None), 0.3 * vectors + 0.7 * context)
        contextualizer.mix = False
        torch.testing.assert_close(contextualizer(vectors, positions, None), context)


@pytest.mark.parametrize("tokens", [5, 50, 200])
def test_layers_are_torchs_encoder(tokens):
    """The layer's own forward, for few tokens and for many, equals torch's."""
    torch.manual_seed(0)
    contextualizer = Contextualizer(8, 2, 2, 12, mix=False).eval().double()
    layer = torch.nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
    reference = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval().double()
    reference.load_state_dict({f"layers.{name}": value for name, value in contextualizer.layers.state_dict().items()})
    vectors, positions = torch.randn(2, 3, tokens, 8, dtype=torch.float64)
    mask = torch.arange(tokens) < torch.tensor([[tokens], [tokens - 2], [1]])
    for padding in (None, mask):
        ours = contextualizer(vectors, positions, padding)
        theirs = reference(vectors + positions, src_key_padding_mask=None if padding is None else ~padding)
        real = torch.ones_like(mask) if padding is None else mask
        torch.testing.assert_close(ours[real], theirs[real])
        kept = slice(1, tokens - 1)
        torch.testing.assert_close(contextualizer(vectors, positions, padding, kept), ours[:, kept])


def test_heads_must_divide_the_vectors():
    with pytest.raises(ValueError, match=r"heads=10 does not divide .*24.* \[1, 2, 3, 4, 6, 8, 12, 24\]"):
        Contextualizer(24, 10, 2, 12)
