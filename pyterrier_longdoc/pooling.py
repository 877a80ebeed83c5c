"""The one batching loop: items sorted by length, cut under a token budget, handed out until none is left.

Batches are cut over the windows (or documents, or pairs) of a whole call, not over the rows that a user passed, so that
padding is near zero on every device and memory is bounded by the budget, not by the longest document. When memory runs
out the budget is halved, with a message, and the same items are handed out again in smaller batches: nothing is lost.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pyterrier_longdoc.checks import check_whole

#: Tokens of one forward pass. A CPU is fastest while a batch stays in its cache; a GPU wants to be filled.
DEFAULT_TOKENS = {"cpu": 2_000, "cuda": 65_536, "mps": 16_384}


class Budget:
    """How many tokens one batch may hold, padding included.

    Args:
        tokens: Tokens of a batch; a single item that is longer still makes a batch of its own.

    Raises:
        ValueError: If ``tokens`` is under 1.
    """

    def __init__(self, tokens: int) -> None:
        check_whole("token_budget", tokens)
        self.tokens = tokens

    @classmethod
    def for_device(cls, device: str) -> Budget:
        """The default budget of a kind of device (``"cuda:1"`` counts as ``"cuda"``)."""
        return cls(DEFAULT_TOKENS.get(device.split(":")[0], DEFAULT_TOKENS["cpu"]))

    def times(self, factor: int) -> Budget:
        """A budget of its own, ``factor`` times as large."""
        return Budget(self.tokens * factor)

    def halve(self) -> None:
        """Halves the budget and says so."""
        self.tokens = max(1, self.tokens // 2)
        warnings.warn(f"out of memory: going on with batches of {self.tokens} tokens", RuntimeWarning, stacklevel=2)


class Pool:
    """Items of different lengths, handed out longest first in batches under a budget.

    Longest first, so that memory runs out at once if it does, and neighbours in a batch have similar lengths. Several
    threads may take from one pool.

    Args:
        lengths: Tokens of each item, ``[n]``.
        budget: Tokens of a batch.
        max_items: At most this many items in a batch.
        kinds: Items of different kinds (numbers ``[n]``) never share a batch.
    """

    def __init__(
        self, lengths: np.ndarray, budget: Budget, max_items: int | None = None, kinds: np.ndarray | None = None
    ) -> None:
        self._lengths = np.maximum(np.asarray(lengths, np.int64), 1)
        self._kinds = np.zeros_like(self._lengths) if kinds is None else np.asarray(kinds)
        self._waiting = np.lexsort((-self._lengths, -self._kinds))
        self._budget = budget
        self._max_items = max_items
        self._lock = threading.Lock()

    def take(self) -> np.ndarray | None:
        """The items of the next batch, or ``None`` when none is left."""
        with self._lock:
            if not len(self._waiting):
                return None
            fitting = max(1, self._budget.tokens // int(self._lengths[self._waiting[0]]))
            candidates = self._waiting[: min(fitting, self._max_items or fitting)]
            count = int((self._kinds[candidates] == self._kinds[candidates[0]]).cumprod().sum())
            batch, self._waiting = self._waiting[:count], self._waiting[count:]
            return batch

    def put_back(self, batch: np.ndarray) -> None:
        """Returns items that could not be computed; they are handed out first."""
        with self._lock:
            self._waiting = np.concatenate([batch, self._waiting])

    def stop(self) -> None:
        """Drops what is waiting, so that everyone who takes from the pool comes to an end."""
        with self._lock:
            self._waiting = self._waiting[:0]

    def run(self, compute: Callable[[np.ndarray], Any]) -> Iterator[tuple[np.ndarray, Any]]:
        """Computes batch after batch until the pool is empty.

        Args:
            compute: Called with the items of a batch.

        Yields:
            The items of a batch and what ``compute`` returned for them.

        Raises:
            Exception: Whatever ``compute`` raises, and the out-of-memory error of a batch of one item.
        """
        while (batch := self.take()) is not None:
            try:
                result = compute(batch)
            except (MemoryError, RuntimeError) as error:
                if len(batch) == 1 or not is_out_of_memory(error):
                    raise
                self.put_back(batch)
                result = None
            if result is None:  # outside the handler, which would keep the failed tensors alive
                _free_device_memory()
                self._budget.halve()
            else:
                yield batch, result


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that the memory of the host or of a device is used up."""
    text = f"{type(error).__name__}: {error}".lower()
    return isinstance(error, MemoryError) or any(
        sign in text for sign in ("outofmemory", "out of memory", "can't allocate memory", "not enough memory")
    )


def pooled(
    lengths: np.ndarray, budget: Budget, compute: Callable[[np.ndarray], Any], kinds: np.ndarray | None = None
) -> Any:  # noqa: ANN401
    """Computes one row per item in pooled batches and returns the rows in item order.

    Args:
        lengths: Tokens of each item, ``[n]``; at least one item.
        budget: Tokens of a batch.
        compute: Maps the items of a batch ``[b]`` to a tensor ``[b, ...]``; gradients flow through.
        kinds: As in :class:`Pool`.

    Returns:
        A tensor ``[n, ...]``.
    """
    import torch

    batches, results = zip(*Pool(lengths, budget, kinds=kinds).run(compute), strict=True)
    order = torch.from_numpy(np.argsort(np.concatenate(batches), kind="stable"))
    joined = torch.cat(results)
    return joined[order.to(joined.device)]


def _free_device_memory() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
