"""Encoded documents that are kept between calls, in memory or in one file.

A document is known by its tokens and by the weights that encoded it: another text, a longer limit or a trained model
never meets a stale entry.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pyterrier_longdoc.recent import Recent
from pyterrier_longdoc.windows import Ragged

if TYPE_CHECKING:
    from torch import Tensor


class DocumentCache:
    """Token vectors of documents by content.

    Args:
        path: A file to keep them in (SQLite); memory if ``None``.
        max_bytes: In memory, the documents longest unused go beyond this size. A file grows without limit.

    Raises:
        ValueError: If the file is something else.
    """

    def __init__(self, path: str | Path | None = None, *, max_bytes: int = 4 * 2**30) -> None:
        self.path = None if path is None else str(path)
        self.max_bytes = max_bytes
        self._memory = Recent(max_bytes)
        if self.path is not None:
            self._create()

    def vectors(self, settings: str, documents: Ragged, encode: Callable[[Ragged], Tensor]) -> Tensor:
        """Vectors of all tokens of some documents, encoding those that are not known yet.

        Args:
            settings: What else the vectors depend on: weights and precision.
            documents: Token ids of each document.
            encode: Encodes documents into float32 ``[sum of lengths, d]``.

        Returns:
            ``[sum of lengths, d]``.
        """
        import torch

        contents = (settings.encode() + documents[i].tobytes() for i in range(len(documents)))
        keys = [blake2b(content, digest_size=16).digest() for content in contents]
        known = [self._get(key) for key in keys]
        missing = np.array([i for i, vectors in enumerate(known) if vectors is None], np.int64)
        if len(missing):
            fresh = documents.take(missing)
            encoded = encode(fresh).float().cpu().numpy()
            for place, i in enumerate(missing):
                known[i] = encoded[fresh.offsets[place] : fresh.offsets[place + 1]].copy()
            self._put({keys[i]: known[i] for i in missing})
        width = max(vectors.shape[1] for vectors in known)
        return torch.from_numpy(np.concatenate([vectors.reshape(-1, width) for vectors in known]))

    def __len__(self) -> int:
        if self.path is None:
            return len(self._memory)
        with closing(self._connect()) as database:
            return database.execute("SELECT count(*) FROM documents").fetchone()[0]

    def _get(self, key: bytes) -> np.ndarray | None:
        if self.path is None:
            return self._memory.get(key)
        with closing(self._connect()) as database:
            row = database.execute("SELECT vectors FROM documents WHERE key = ?", (key,)).fetchone()
        return None if row is None else _unpack(row[0])

    def _put(self, documents: dict[bytes, np.ndarray]) -> None:
        if self.path is not None:
            rows = [(key, _pack(vectors)) for key, vectors in documents.items()]
            with closing(self._connect()) as database, database:
                database.executemany("INSERT OR REPLACE INTO documents VALUES (?, ?)", rows)
            return
        for key, vectors in documents.items():
            self._memory.put(key, vectors)

    def _create(self) -> None:
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        try:
            with closing(self._connect()) as database, database:
                database.execute("CREATE TABLE IF NOT EXISTS documents (key BLOB PRIMARY KEY, vectors BLOB NOT NULL)")
                database.execute("SELECT key, vectors FROM documents LIMIT 0")
        except sqlite3.DatabaseError as error:
            raise ValueError(f"{self.path} is no document cache: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60)

    def __getstate__(self) -> dict:
        return {"path": self.path, "max_bytes": self.max_bytes}

    def __setstate__(self, state: dict) -> None:
        self.__init__(state["path"], max_bytes=state["max_bytes"])


def _pack(vectors: np.ndarray) -> bytes:
    return np.int32(vectors.shape[1]).tobytes() + vectors.tobytes()


def _unpack(blob: bytes) -> np.ndarray:
    return np.frombuffer(blob, np.float32, offset=4).reshape(-1, int(np.frombuffer(blob, np.int32, 1)[0]))
