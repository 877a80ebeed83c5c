"""Which parts of the documents made the scores.

A ranker's score comes from windows over a document's tokens, and tokens lead back to characters. So every ranker is
explained in the same form: for each pair a list of :class:`WeightedWindow`, token positions and their weight.
:func:`explain` finds them again in the text: a frame with one row a window, or the documents with windows highlighted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_longdoc.checks import check_whole
from pyterrier_longdoc.explain.highlight import Card, Scale, TextWindow, block, note, page, query_head
from pyterrier_longdoc.text.tokens import character_spans

if TYPE_CHECKING:
    from pyterrier_longdoc.explain.levels import Comparison
    from pyterrier_longdoc.reranker import ReRanker

#: What documents are compared by: as wholes, by sections, by chunks (or passages, blocks, regions ...).
LEVELS = ("document", "section", "chunk")
#: Columns of a frame of compared parts.
LEVEL_COLUMNS = [
    "level", "part_a", "part_b", "similarity", "kind",
    *(f"{name}_{side}" for side in "ab" for name in ("heading", "tokens", "spans", "text")),
]


class WeightedWindow(NamedTuple):
    """A window of a document, as a ranker's ``evidence(queries, documents, pairs)`` gives a list of for each pair.

    Attributes:
        weight: Its part in the score.
        positions: Positions of its tokens in the document, in any order, contiguous or not; negative ones are padding.
        kind: What it is, such as ``"region"`` or ``"passage"``.
    """

    weight: float
    positions: np.ndarray
    kind: str = "window"


def explain(ranker: ReRanker, res: pd.DataFrame) -> Explanation:
    """Finds out which windows of the documents of a frame made their scores.

    Args:
        ranker: A ranker with a method ``evidence``.
        res: A frame as for ``ranker.transform``, scored or not; it is not changed. Missing text counts as empty.

    Returns:
        The windows of each row, in the model's order; none for an empty document.

    Raises:
        TypeError: If the ranker has no ``evidence``.
        ValueError: If a query is missing.
    """
    if not hasattr(ranker, "evidence"):
        name = type(ranker).__name__
        raise TypeError(f"{ranker} cannot be explained: {name} has no method evidence(queries, documents, pairs)")
    pt.validate.result_frame(res, extra_columns=["query", *ranker.text_columns], context=ranker)
    texts = res[ranker.text_field].astype(object).where(res[ranker.text_field].notna(), "").tolist()
    windows, read = _windows(ranker, res, texts) if len(res) else ([], [])
    kept = [name for name in ("qid", "query", "docno", "score", "rank") if name in res]
    comparisons: list[Comparison] = []
    if hasattr(ranker, "parts"):
        from pyterrier_longdoc.explain.levels import compare_results

        comparisons = compare_results(ranker, res)
    return Explanation(
        res[kept].reset_index(drop=True), texts, windows, read, ranker=repr(ranker),
        meaning=getattr(ranker, "weight_meaning", "the window's part in the score"),
        signed=getattr(ranker, "weight_signed", True), comparisons=comparisons,
    )


class Explanation:
    """The windows that made the scores of some documents.

    As the last line of a notebook's cell it shows the documents with the windows highlighted.

    Args:
        results: Columns qid, query, docno and, if known, score and rank.
        texts: The document of each row.
        windows: The windows of each row.
        read: How many characters of each row's document the ranker read.
        ranker: Name of the ranker.
        meaning: What its weights mean.
        signed: Whether a weight under zero speaks against a document; if not, only differences mean something.
        comparisons: The query and document of each row compared at three levels, by rankers that can.

    Attributes:
        comparisons: The same; empty for rankers that compare no parts of queries.
        frame: One row a window, in the order of the results and of the model: qid, query, docno, window (its number
            in the model's order, from 0), kind, weight, tokens and spans (lists of first and past-last token and
            character of each stretch), text (gaps as an ellipsis), and score and rank where the results have them.
    """

    def __init__(
        self,
        results: pd.DataFrame,
        texts: Sequence[str],
        windows: Sequence[list[TextWindow]],
        read: Sequence[int],
        *,
        ranker: str,
        meaning: str,
        signed: bool,
        comparisons: Sequence[Comparison] = (),
    ) -> None:
        self._results, self._texts, self._windows, self._read = results, texts, windows, read
        self._ranker, self._meaning, self._signed = ranker, meaning, signed
        self.comparisons = list(comparisons)
        self.frame = self._as_frame()

    def _as_frame(self) -> pd.DataFrame:
        rows = np.repeat(np.arange(len(self._windows)), [len(windows) for windows in self._windows])
        parts = [window for windows in self._windows for window in windows]
        texts = [part.text(self._texts[row]) for row, part in zip(rows, parts, strict=True)]
        columns = {
            "window": pd.Series([part.number for part in parts], dtype=np.int64),
            "kind": pd.Series([part.kind for part in parts], dtype=object),
            "weight": pd.Series([part.weight for part in parts], dtype=np.float64),
            "tokens": pd.Series([part.tokens for part in parts], dtype=object),
            "spans": pd.Series([part.spans for part in parts], dtype=object),
            "text": pd.Series(texts, dtype=object),
        }
        rest = [name for name in ("score", "rank") if name in self._results]
        of_row = self._results.iloc[rows].reset_index(drop=True)
        return pd.concat([of_row[["qid", "query", "docno"]], pd.DataFrame(columns), of_row[rest]], axis=1)

    @property
    def levels(self) -> pd.DataFrame:
        """Queries and documents compared at three levels: one row for each two parts.

        Columns: qid, docno, and those of :attr:`Comparison.frame <pyterrier_longdoc.explain.levels.Comparison.frame>`.
        For rankers that compare no parts of queries, see
        :func:`pyterrier_longdoc.explain.window_levels.levels_of_windows`.
        """
        from pyterrier_longdoc.explain.window_levels import levels_of_windows

        if not self.comparisons:
            return levels_of_windows(self._results, self._texts, self._read, self._windows)
        tables = [each.frame for each in self.comparisons]
        rows = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
        ids = self._results[["qid", "docno"]].iloc[rows].reset_index(drop=True)
        return pd.concat([ids, pd.concat(tables, ignore_index=True)], axis=1)

    def html(
        self, title: str | None = None, *, queries: int | None = 3, documents: int | None = 5, windows: int = 5
    ) -> str:
        """A page of its own, without scripts or links to elsewhere.

        Args:
            title: Its title; the ranker's name by default.
            queries: So many queries are shown; all if ``None``. What is left out is counted on the page.
            documents: So many documents of each query, those of the best rank first; all if ``None``.
            windows: So many windows of each document, the strongest, are listed; the others are only shaded.

        Raises:
            ValueError: If a limit is under 1.
        """
        title = title or f"What {self._ranker} looked at"
        return page(title, self._block(queries, documents, windows))

    def save(self, path: str | Path, title: str | None = None, **limits: int | None) -> None:
        """Writes the page to a file; arguments as in :meth:`html`."""
        Path(path).write_text(self.html(title, **limits), encoding="utf-8")

    def _repr_html_(self) -> str:
        return self._block(3, 5, 5)

    def __len__(self) -> int:
        return len(self.frame)

    def __repr__(self) -> str:
        return f"<Explanation of {len(self._results)} documents by {self._ranker}: {len(self.frame)} windows>"

    def _block(self, queries: int | None, documents: int | None, windows: int) -> str:
        for name, limit in (("queries", queries), ("documents", documents), ("windows", windows)):
            if limit is not None:
                check_whole(name, limit)
        # Names of jump targets must differ between the outputs of one notebook.
        seed = self.frame.to_json(default_handler=str) + self._ranker
        anchor = "ld" + blake2b(seed.encode("utf-8", "replace"), digest_size=5).hexdigest()
        groups = list(self._results.groupby("qid", sort=False).indices.values())
        groups.sort(key=lambda rows: rows[0])
        parts = [part for rows in groups[:queries] for part in self._query(rows, documents, windows, anchor)]
        if queries is not None and len(groups) > queries:
            parts.append(note(f"{len(groups) - queries:,} more queries are not shown; see .html(queries=...)."))
        return block(parts or [note("No documents to explain.")])

    def _query(self, rows: np.ndarray, documents: int | None, listed: int, anchor: str) -> Iterator[str]:
        if "rank" in self._results:
            rows = rows[np.argsort(self._results["rank"].to_numpy()[rows], kind="stable")]
        shown = rows[:documents]
        scale = Scale.of([window.weight for row in shown for window in self._windows[row]], self._signed)
        cards = [self._card(row, scale, listed, f"{anchor}-{row}") for row in shown]
        first = self._results.iloc[rows[0]]
        yield query_head(str(first["query"]), str(first["qid"]), self._meaning, cards)
        yield from (card.html() for card in cards)
        if len(rows) > len(shown):
            left_out = len(rows) - len(shown)
            yield note(f"{left_out:,} more documents of this query are not shown; see .html(documents=...).")

    def _card(self, row: int, scale: Scale, listed: int, anchor: str) -> Card:
        result, text = self._results.iloc[row], self._texts[row]
        facts = [f"{name} {result[name]:.6g}" for name in ("rank", "score") if name in result]
        line = " \N{MIDDLE DOT} ".join([*facts, f"{len(text):,} characters"])
        return Card(text, self._windows[row], self._read[row], str(result["docno"]), line, scale, listed, anchor)


def _windows(
    ranker: ReRanker, res: pd.DataFrame, texts: Sequence[str]
) -> tuple[list[list[TextWindow]], list[int]]:
    queries, documents, pairs = ranker._unique_texts(res)
    # The pairs of a document follow each other
    unique, first, row = np.unique(pairs[:, ::-1], axis=0, return_index=True, return_inverse=True)
    evidence = ranker.evidence(queries, documents, np.ascontiguousarray(unique[:, ::-1]))
    found, read, spans = [], [], np.empty((0, 2), np.int64)
    for place, windows in enumerate(evidence):
        document = unique[place, 0]
        if not place or document != unique[place - 1, 0]:
            spans = character_spans(ranker.tokenizer, texts[first[place]])
        found.append(list(_located(windows, spans)))
        limit = getattr(ranker, "max_doc_tokens", None)
        whole = limit is None or limit >= len(spans)
        read.append(len(texts[first[place]]) if whole else int(spans[limit - 1, 1]))
    return [found[place] for place in row.reshape(-1)], [read[place] for place in row.reshape(-1)]


def _located(windows: Sequence[WeightedWindow], spans: np.ndarray) -> Iterator[TextWindow]:
    for number, window in enumerate(windows):
        tokens, characters = stretches_of(window.positions, spans)
        if tokens:
            yield TextWindow(number, window.kind, float(window.weight), tokens, characters)


def stretches_of(positions: np.ndarray, spans: np.ndarray) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The stretches that token positions make.

    Args:
        positions: Positions of tokens in a document, in any order; negative ones are padding.
        spans: First and past-last character of each token of the document, ``[tokens, 2]``.

    Returns:
        First and past-last token of each stretch, and first and past-last character.
    """
    positions = np.unique(np.asarray(positions, np.int64))
    positions = positions[positions >= 0]
    runs = np.split(positions, np.flatnonzero(np.diff(positions) > 1) + 1) if len(positions) else []
    tokens = [(int(run[0]), int(run[-1]) + 1) for run in runs]
    return tokens, [(int(spans[run, 0].min()), int(spans[run, 1].max())) for run in runs]
