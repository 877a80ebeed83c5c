"""Distilling IDCM's selector: the loss by hand, and a selector that finds what its encoder likes."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pyterrier_longdoc as longdoc
from pyterrier_longdoc.training.selection import ndcg_loss
from tests.conftest import shake
from tests.training.toy_task import results, weights_equal


def naive(scores, gains):
    """One list, pair by pair: δ · |G_i - G_j| · log2(1 + exp(s_j - s_i)) of all pairs where i is the better one."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    ideal = sum((2**gain - 1) / math.log2(2 + i) for i, gain in enumerate(sorted(gains, reverse=True)))
    total = 0.0
    for a, i in enumerate(order):
        for b, j in enumerate(order):
            if gains[i] > gains[j]:
                distance = abs(a - b)
                discount = 1 / math.log2(1 + distance) - 1 / math.log2(2 + distance)
                worth = (2 ** gains[i] - 2 ** gains[j]) / ideal
                total += discount * worth * math.log2(1 + math.exp(scores[j] - scores[i]))
    return total


@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(-500, 500), st.integers(0, 4)), min_size=1, max_size=7, unique_by=lambda item: item[0]
        ),
        min_size=1,
        max_size=4,
    )
)
def test_ndcg_loss(lists):
    longest = max(map(len, lists))
    scores, gains = torch.full((len(lists), longest), 99.0), torch.full((len(lists), longest), 3.0)  # padding: ignored
    mask = torch.zeros(len(lists), longest, dtype=torch.bool)
    for row, items in enumerate(lists):
        scores[row, : len(items)] = torch.tensor([score / 100 for score, _ in items])
        gains[row, : len(items)] = torch.tensor([float(gain) for _, gain in items])
        mask[row, : len(items)] = True
    expected = np.mean([naive([score / 100 for score, _ in items], [gain for _, gain in items]) for items in lists])
    assert ndcg_loss(scores, gains, mask).item() == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_two_items_by_hand():
    """The better one, gain 1, is second: δ = 1 - 1/log2(3), worth 1, and a lead of -1."""
    loss = ndcg_loss(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]), torch.ones(1, 2, dtype=torch.bool))
    assert loss.item() == pytest.approx((1 - 1 / math.log2(3)) * math.log2(1 + math.e), abs=1e-6)


@pytest.fixture
def data():
    return *results("t", 0, queries=4, documents=6, length=90), *results("v", 1, queries=3, length=90)


@pytest.fixture
def ranker(tiny):
    return shake(longdoc.IDCM(tiny.encoder, passage_tokens=20, overlap=2, max_passages=2, device="cpu"), scale=0.02)


@pytest.mark.parametrize(
    ("stage", "learns"),
    [("passages", {"encoder", "head"}), ("documents", {"encoder", "head", "weights"}), ("selector", {"selector"})],
)
def test_what_each_stage_changes(ranker, data, stage, learns):
    before = {name: tensor.clone() for name, tensor in ranker.model.state_dict().items()}
    assert ranker.fit(*data, stage=stage, max_steps=2, batch_size=4, verbose=False) is ranker
    after = ranker.model.state_dict()
    changed = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert changed == learns
    assert ranker.model.stage is None
    assert not ranker.model.training
    assert ("found" in ranker.history) == (stage == "selector")


def test_the_selector_learns_what_the_encoder_likes(ranker, data):
    ranker.fit(*data[:2], stage="selector", lr=1e-2, epochs=12, batch_size=12, verbose=False)
    found, loss = ranker.history["found"], ranker.history["loss"]
    assert found.iloc[-1] > found.iloc[0] + 0.1
    assert loss.iloc[-1] < loss.iloc[0]


def test_a_killed_selector_training_goes_on(tiny, data, tmp_path):
    def fresh():
        return shake(longdoc.IDCM(tiny.encoder, passage_tokens=20, overlap=2, max_passages=2, device="cpu"), scale=0.02)

    settings = {"stage": "selector", "epochs": 2, "batch_size": 8, "verbose": False}
    whole = fresh().fit(*data, **settings)
    part = fresh()
    validate, calls = part.transform, []

    def failing(frame):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return validate(frame)

    part.transform = failing
    with pytest.raises(KeyboardInterrupt):
        part.fit(*data, output_dir=tmp_path / "run", save_every=1, **settings)
    assert part.model.stage is None
    resumed = fresh().fit(*data, resume=tmp_path / "run", **settings)
    assert weights_equal(whole, resumed)


def test_bad_calls(ranker, data):
    res, qrels, _, _ = data
    with pytest.raises(ValueError, match="stage must be one of 'passages', 'documents', 'selector', got 'all'"):
        ranker.fit(res, qrels, stage="all")
    with pytest.raises(ValueError, match="no setting 'loss'"):
        ranker.fit(res, qrels, stage="selector", loss="hinge")
    with pytest.raises(ValueError, match="give both or neither"):
        ranker.fit(res, qrels, res, stage="selector")
    with pytest.raises(ValueError, match="No training results"):
        ranker.fit(res.iloc[:0], qrels, stage="selector")
    with pytest.raises(TypeError, match="no setting 'epoch'"):
        ranker.fit(res, qrels, stage="selector", epoch=3)
    assert ranker.model.stage is None


def test_sampling_passages_bounds_the_memory_of_the_stage_of_documents(tiny, data, monkeypatch):
    ranker = longdoc.IDCM(tiny.encoder, passage_tokens=20, overlap=2, train_passages=3, device="cpu")
    read, counts = ranker.model._read, []

    def counting(queries, documents, passages, budget):
        counts.extend(np.diff(passages.offsets).tolist())
        return read(queries, documents, passages, budget)

    monkeypatch.setattr(ranker.model, "_read", counting)
    ranker.fit(*data[:2], max_steps=2, batch_size=4, verbose=False)
    assert set(counts) == {3}
    counts.clear()
    ranker(data[0])
    assert set(counts) == {4}  # of some 16
