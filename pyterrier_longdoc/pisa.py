"""BM25 over an index of PISA, as a transformer that keeps the promises of this package.

PISA's own retriever can be neither pickled nor compared, stops at a query with a NUL character, ranks in float32, and
writes the term weights of new parameters in place. Its tokeniser knows ASCII only: any other character ends a word, so
accents and curly apostrophes are taken off first, from documents and queries alike.
"""

from __future__ import annotations

import os
import sys
import tempfile
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pyterrier as pt

_SETTINGS = ("path", "num_results", "k1", "b", "stopwords", "threads")
_PLAIN = str.maketrans({"\u2018": "'", "\u2019": "'", "\x00": " "})


class BM25(pt.Transformer):
    """Retrieves from a PISA index; :func:`pyterrier_longdoc.first_stage.bm25` builds one.

    Required input columns: ``qid`` and ``query``. Output: the columns of the queries with ``docno``, ``score`` and
    ``rank``, best first. A query that holds no indexed term retrieves nothing.

    Args:
        path: Directory of the index.
        num_results: Documents per query.
        k1: Saturation of the term frequency; may be changed by :class:`pt.GridSearch`, as may ``b``.
        b: Normalisation by document length, from 0 to 1.
        stopwords: Left out of queries: the list of ``terrier``, the shorter one of ``lucene``, or ``none``.
        threads: Threads for retrieval.

    Raises:
        ValueError: If an option is out of range.
    """

    schematic: ClassVar = {"label": "BM25", "help_url": "https://github.com/terrierteam/pyterrier_longdoc#readme"}

    def __init__(
        self,
        path: str | Path,
        *,
        num_results: int = 100,
        k1: float = 0.9,
        b: float = 0.4,
        stopwords: str = "terrier",
        threads: int = 1,
    ) -> None:
        super().__init__()
        if num_results < 1 or k1 < 0 or not 0 <= b <= 1:
            raise ValueError(f"num_results >= 1, k1 >= 0 and 0 <= b <= 1 are needed, got {num_results}, {k1} and {b}")
        self.path = str(path)
        self.num_results = num_results
        self.k1 = k1
        self.b = b
        self.stopwords = stopwords
        self.threads = threads
        self._retriever = open_index(**self._settings())
        self._opened_with = self._settings()

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Retrieves for each row.

        Raises:
            ValueError: If a query is missing.
        """
        pt.validate.query_frame(inp, extra_columns=["query"], context=self)
        if (missing := inp["query"].isna()).any():
            first = inp["qid"][missing].iloc[0]
            raise ValueError(f"{self}: {int(missing.sum())} of {len(inp)} rows have no query (first qid {first!r})")
        if self._opened_with != self._settings():
            self._retriever, self._opened_with = open_index(**self._settings()), self._settings()
        queries = [plain(query) for query in inp["query"]]
        found = self._retriever(pd.DataFrame({"qid": range(len(inp)), "query": pd.Series(queries, dtype=object)}))
        rows = inp.iloc[found["qid"].to_numpy(dtype="int64")].drop(columns=["score", "rank"], errors="ignore")
        return rows.reset_index(drop=True).assign(
            docno=found["docno"].astype(object).to_numpy(),
            score=found["score"].to_numpy(dtype="float64"),
            rank=found["rank"].to_numpy(dtype="int64"),
        )

    def fuse_rank_cutoff(self, k: int) -> BM25 | None:
        """``bm25 % k`` retrieves k documents in the first place."""
        return BM25(**{**self._settings(), "num_results": k}) if k < self.num_results else None

    def subtransformers(self) -> dict[str, pt.Transformer]:
        """None: PISA's retriever is a detail."""
        return {}

    def _settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _SETTINGS}

    def __reduce__(self) -> tuple[Any, ...]:  # an open index cannot be pickled, but opened again
        return _reopen, (self._settings(),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BM25) and self._settings() == other._settings()

    def __hash__(self) -> int:  # not of the parameters: a grid search changes them on a key of its dictionary
        return hash((type(self).__name__, self.path))

    def __repr__(self) -> str:
        return f"BM25({self.path!r})"


def open_index(
    path: str, num_results: int, k1: float, b: float, stopwords: str, threads: int
) -> pt.Transformer:
    """PISA's retriever over an index; the weights for these parameters are computed on first use.

    PISA writes them beside the index under their final names. Here it writes into a directory of links to the index,
    and they are moved when complete: a process that is killed meanwhile leaves no torn file behind.

    Raises:
        FileNotFoundError: If there is no PISA index.
    """
    import pyterrier_pisa as pisa

    if not pisa.PisaIndex(path).built():
        raise FileNotFoundError(f"{path} is no PISA index")
    options = {"k1": k1, "b": b, "num_results": num_results, "threads": threads}
    here = Path(path).resolve()
    if not any(here.glob(f"bm25.k1-{k1:g}.b-{b:g}.q0.*.block_simdbp")):
        with tempfile.TemporaryDirectory(prefix=".weights.", dir=here) as links:
            for file in here.iterdir():
                if file.is_file():
                    (Path(links) / file.name).symlink_to(file)
            with quiet(1, 2):
                pisa.PisaIndex(links, "text", stops=stopwords).bm25(**options)
            for file in sorted(Path(links).iterdir()):
                if not file.is_symlink():
                    os.replace(file, here / file.name)
    return pisa.PisaIndex(str(here), "text", stops=stopwords).bm25(**options)


@contextmanager
def quiet(*descriptors: int) -> Iterator[None]:
    """Keeps what PISA writes past Python to standard output (1) or error (2), line upon line, off the screen."""
    sys.stdout.flush()
    kept = {descriptor: os.dup(descriptor) for descriptor in descriptors}
    with open(os.devnull, "wb") as nowhere:
        for descriptor in descriptors:
            os.dup2(nowhere.fileno(), descriptor)
    try:
        yield
    finally:
        for descriptor, original in kept.items():
            os.dup2(original, descriptor)
            os.close(original)


def plain(text: str) -> str:
    """Text as PISA's tokeniser understands it: no accents, plain apostrophes."""
    text = text.translate(_PLAIN)
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFKD", text)
    kept = "".join(character for character in decomposed if not unicodedata.combining(character))
    return kept.encode("utf-8", "replace").decode("utf-8")


def _reopen(settings: dict[str, Any]) -> BM25:
    return BM25(**settings)
