"""BigBird's attention against a dense one with the same pairs of tokens allowed."""

import numpy as np
import pytest
import torch
from torch import nn

from pyterrier_longdoc.models.block_attention import BlockAttention, full_attention_limit, random_blocks

BLOCK, RANDOM, HEADS, SIZE = 4, 2, 3, 5


class Projections(nn.Module):
    def __init__(self):
        super().__init__()
        self.num_attention_heads, self.attention_head_size = HEADS, SIZE
        self.query, self.key, self.value = (nn.Linear(7, HEADS * SIZE) for _ in range(3))


@pytest.fixture
def attention():
    torch.manual_seed(0)
    return BlockAttention(Projections(), block=BLOCK, random=RANDOM, dropout=0.0, seed=5, layer=1).eval()


def dense(attention, states, lengths):
    """Every allowed pair of tokens, one by one."""
    out = torch.zeros(*states.shape[:2], HEADS * SIZE)
    for row, length in enumerate(lengths):
        count = -(-length // BLOCK)
        sparse = states.shape[1] > full_attention_limit(BLOCK, RANDOM)
        chosen = random_blocks(count, HEADS, RANDOM, (5, 1)) if sparse else None
        query, key, value = (each(states[row]).view(-1, HEADS, SIZE) for each in (
            attention.query, attention.key, attention.value
        ))
        for head in range(HEADS):
            for token in range(length):
                own = token // BLOCK
                blocks = set(range(count))
                if sparse and own not in (0, count - 1):
                    blocks = {0, own - 1, own, own + 1, count - 1, *chosen[head, own - 1].tolist()}
                seen = [other for other in range(length) if other // BLOCK in blocks]
                weights = (key[seen, head] @ query[token, head] / SIZE**0.5).softmax(0)
                out[row, token, head * SIZE : (head + 1) * SIZE] = weights @ value[seen, head]
    return out


@pytest.mark.parametrize("lengths", [[36], [37], [40], [41, 43, 44], [61, 64], [9, 36, 1], [97]])
def test_the_same_as_dense_attention_over_the_allowed_pairs(attention, lengths):
    states = torch.randn(len(lengths), max(lengths), 7)
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    mask = None
    if not real.all():
        mask = torch.zeros(real.shape).masked_fill(~real, torch.finfo(torch.float32).min)[:, None, None]
    with torch.no_grad():
        found, weights = attention(states, mask)
        expected = dense(attention, states, lengths)
    assert weights is None
    assert (found - expected)[real].abs().max() < 1e-5


def test_training_reads_the_same_blocks(attention):
    states = torch.randn(1, 50, 7)
    expected = attention(states)[0]
    torch.manual_seed(1)
    np.random.seed(1)
    before = np.random.get_state()[1].copy()
    assert torch.equal(attention.train()(states)[0], expected)
    assert (np.random.get_state()[1] == before).all()


@pytest.mark.parametrize("count", [10, 11, 64])
def test_random_blocks(count):
    blocks = random_blocks(count, HEADS, RANDOM, (0, 0))
    assert blocks.shape == (HEADS, count - 2, RANDOM)
    for head in blocks:
        for own, chosen in enumerate(head.tolist(), 1):
            assert len(set(chosen)) == RANDOM
            assert not set(chosen) & {0, own - 1, own, own + 1, count - 1}
    assert not (blocks[0] == blocks[1]).all()
    assert (random_blocks(count, HEADS, RANDOM, (0, 0)) == blocks).all()
    assert not (random_blocks(count, HEADS, RANDOM, (0, 1)) == blocks).all()
