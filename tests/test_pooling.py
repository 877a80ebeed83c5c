"""The batching loop: nothing lost, nothing twice, never above the budget, and memory that runs out."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_longdoc.pooling import DEFAULT_TOKENS, Budget, Pool, is_out_of_memory, pooled

lengths = st.lists(st.integers(0, 50), max_size=30)


@given(lengths, st.integers(1, 200), st.one_of(st.none(), st.integers(1, 5)))
def test_batches_fill_the_budget_and_never_pass_it(lengths, tokens, most):
    sizes = np.maximum(np.array(lengths, np.int64), 1)
    pool, batches = Pool(np.array(lengths), Budget(tokens), most), []
    while (batch := pool.take()) is not None:
        batches.append(batch)
        assert len(batch) == 1 or len(batch) * sizes[batch].max() <= tokens  # padding included
        assert most is None or len(batch) <= most
    handed = np.concatenate([np.empty(0, np.int64), *batches])
    assert sorted(handed.tolist()) == list(range(len(lengths)))
    assert (np.diff(sizes[handed]) <= 0).all()  # longest first
    for before, after in zip(batches, batches[1:], strict=False):
        longest = sizes[before].max()
        full = (len(before) + 1) * longest > tokens or len(before) == most
        assert full, f"{before} could have taken one of {after}"


@given(lengths, st.integers(1, 100), st.integers(1, 60), st.integers(1, 4))
def test_memory_that_runs_out_loses_nothing(lengths, tokens, limit, workers):
    """Batches of more than ``limit`` tokens fail; smaller ones are tried until all items are done, once each."""
    sizes = np.maximum(np.array(lengths, np.int64), 1)
    budget = Budget(tokens)
    pool, lock, done = Pool(np.array(lengths), budget), threading.Lock(), []

    def compute(batch):
        if len(batch) > 1 and len(batch) * sizes[batch].max() > limit:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")
        return sizes[batch] * 2

    def work():
        for batch, result in pool.run(compute):
            with lock:
                done.extend(zip(batch.tolist(), result.tolist(), strict=True))

    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with ThreadPoolExecutor(workers) as threads:
            for future in [threads.submit(work) for _ in range(workers)]:
                future.result()
    assert sorted(done) == [(item, 2 * size) for item, size in enumerate(sizes.tolist())]


def test_halving_says_so():
    budget = Budget(1_000)

    def compute(batch):
        if len(batch) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 MiB")
        return batch

    with pytest.warns(RuntimeWarning, match="out of memory: going on with batches of 500 tokens"):
        batches = [batch for batch, _ in Pool(np.full(10, 100), budget).run(compute)]
    assert budget.tokens == 250
    assert sorted(np.concatenate(batches)) == list(range(10))


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError(), RuntimeError("can't allocate memory")]
)
def test_one_item_that_does_not_fit_raises(error):
    def compute(batch):
        raise error

    with pytest.raises(type(error)), pytest.warns(RuntimeWarning, match="out of memory"):
        list(Pool(np.array([3, 3, 3]), Budget(9)).run(compute))


def test_other_errors_are_not_taken_for_a_lack_of_memory():
    calls = []

    def compute(batch):
        calls.append(len(batch))
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="shapes"):
        list(Pool(np.array([3, 3, 3]), Budget(9)).run(compute))
    assert calls == [3]


@pytest.mark.parametrize(
    ("error", "is_it"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("x"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 5 bytes."), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 1.0 GB)"), True),
        (RuntimeError("CUDA error: device-side assert triggered"), False),
        (ValueError("length mismatch"), False),
    ],
)
def test_what_counts_as_out_of_memory(error, is_it):
    assert is_out_of_memory(error) is is_it


@given(st.lists(st.integers(0, 20), min_size=1, max_size=30), st.integers(1, 60))
def test_pooled_rows_come_back_in_item_order(lengths, tokens):
    rows = pooled(np.array(lengths), Budget(tokens), lambda batch: torch.from_numpy(batch)[:, None] * 10.0)
    assert rows.tolist() == [[10.0 * item] for item in range(len(lengths))]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 3)), min_size=1, max_size=30), st.integers(1, 60))
def test_items_of_different_kinds_never_share_a_batch(items, tokens):
    lengths, kinds = (np.array(column) for column in zip(*items, strict=True))

    def compute(batch):
        assert len(set(kinds[batch])) == 1
        assert len(batch) == 1 or len(batch) * max(1, lengths[batch].max()) <= tokens
        return torch.from_numpy(batch)

    assert pooled(lengths, Budget(tokens), compute, kinds=kinds).tolist() == list(range(len(items)))


def test_gradients_flow_through_pooled():
    weight = torch.arange(4.0, requires_grad=True)
    pooled(np.array([5, 1, 9, 3]), Budget(9), lambda batch: weight[torch.from_numpy(batch)] ** 2).sum().backward()
    assert weight.grad.tolist() == [0, 2, 4, 6]


def test_budgets():
    assert Budget.for_device("cuda:1").tokens == DEFAULT_TOKENS["cuda"]
    assert Budget.for_device("somewhere").tokens == DEFAULT_TOKENS["cpu"]
    budget = Budget(7)
    assert budget.times(3).tokens == 21
    assert budget.tokens == 7
    with pytest.warns(RuntimeWarning):
        Budget(1).halve()
    for wrong in (0, -5):
        with pytest.raises(ValueError, match=f"at least 1, got {wrong}"):
            Budget(wrong)
