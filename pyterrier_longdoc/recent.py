"""What was computed lately, by a key, in so much memory and no more."""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np


class Recent:
    """Arrays by key; beyond a size, those longest unused go. Threads may share one; copies and pickles start empty.

    Args:
        max_bytes: Size of all arrays together; a single one that is larger is kept alone.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._arrays: OrderedDict[bytes, np.ndarray] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: bytes) -> np.ndarray | None:
        """The array of a key, if it is still there."""
        with self._lock:
            if key in self._arrays:
                self._arrays.move_to_end(key)
            return self._arrays.get(key)

    def put(self, key: bytes, array: np.ndarray) -> None:
        """Keeps an array, which must not be changed any more."""
        with self._lock:
            old = self._arrays.pop(key, None)
            self._bytes += array.nbytes - (0 if old is None else old.nbytes)
            self._arrays[key] = array
            while self._bytes > self.max_bytes and len(self._arrays) > 1:
                self._bytes -= self._arrays.popitem(last=False)[1].nbytes

    def clear(self) -> None:
        """Forgets everything."""
        with self._lock:
            self._arrays.clear()
            self._bytes = 0

    def __len__(self) -> int:
        return len(self._arrays)

    def __reduce__(self) -> tuple[type, tuple]:
        return Recent, (self.max_bytes,)
