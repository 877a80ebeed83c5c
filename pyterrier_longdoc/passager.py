"""Passages as rows: for pipelines of ``pt.text``, with any scorer between the cutting and the aggregation.

``Passager() >> scorer >> PassageAggregator("max")`` does what ``pt.text.sliding() >> scorer >> pt.text.max_passage()``
does, and drops in for either half of it; but it keeps the tail of every document, short, empty and missing texts and
empty frames included, cuts a passage out of the text as it stands there, and gives each document its own text back.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_longdoc.checks import check_whole
from pyterrier_longdoc.text.split import check_sizes, sliding_windows

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_DOCS = "https://github.com/terrierteam/pyterrier_longdoc#readme"
#: What ``pt.text`` puts between the name of a document and the number of a passage.
_MARK = "%p"
_WORD = re.compile(r"\S+")
_AGGREGATIONS = ("max", "mean", "sum", "first", "kmax")


class Passager(pt.Transformer):
    """Cuts the text of each row into passages: one row a passage, ``docno`` extended by ``%p`` and its number.

    Required columns: ``docno`` and ``text_field``. All other columns are kept; the whole text moves to
    ``<text_field>_0``, from where :class:`PassageAggregator` takes it back.

    Args:
        text_field: Column with the text.
        length: Tokens of a passage.
        stride: Tokens from one passage to the next.
        title_field: Column whose text is put before each passage; missing ones are empty.
        tokenizer: A fast Hugging Face tokenizer, so that passages are as long as a model counts them; words, divided
            by white space, if ``None``.

    Raises:
        ValueError: If the length is under 1, or the stride under 1 or above the length; if a ``docno`` is no text.
    """

    schematic: ClassVar = {"label": "Passager", "help_url": _DOCS}

    def __init__(
        self,
        text_field: str = "text",
        length: int = 150,
        stride: int = 75,
        *,
        title_field: str | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
    ) -> None:
        super().__init__()
        check_sizes(length, 0)
        check_whole("stride", stride)
        if stride > length:
            raise ValueError(f"stride must be 1 to length={length}, or tokens would be left out; got {stride}")
        self.text_field, self.title_field = text_field, title_field
        self.length, self.stride, self.tokenizer = length, stride, tokenizer

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """One row a passage, in the order of rows and text; see the class."""
        read = [name for name in (self.text_field, self.title_field) if name is not None]
        pt.validate.columns(inp, includes=["docno", *read], context=self)
        wrong = next((docno for docno in inp["docno"] if not isinstance(docno, str)), None)
        if wrong is not None:
            raise ValueError(f"{self}: column 'docno' holds {wrong!r}, not text; use frame.astype({{'docno': str}})")
        texts, titles = (_texts(inp, name) for name in (self.text_field, self.title_field))
        cut = {text: self._passages(text) for text in dict.fromkeys(texts)}
        row = np.repeat(np.arange(len(inp)), [len(cut[text]) for text in texts])
        out = inp.iloc[row].reset_index(drop=True)
        docnos = [
            f"{docno}{_MARK}{number}"
            for docno, text in zip(inp["docno"], texts, strict=True)
            for number in range(len(cut[text]))
        ]
        passages = [f"{title} {each}".strip() for title, text in zip(titles, texts, strict=True) for each in cut[text]]
        columns = {"docno": docnos, self.text_field: passages}
        columns = {name: pd.Series(values, dtype=inp["docno"].dtype) for name, values in columns.items()}
        return out.assign(**columns, **{f"{self.text_field}_0": out[self.text_field]})

    def _passages(self, text: str) -> list[str]:
        spans = self._spans(text)
        windows = sliding_windows(np.array([len(spans)]), self.length, self.length - self.stride)
        found = []
        for start, end in zip(windows.positions[:, 0], windows.positions.max(axis=1), strict=True):
            found.append(text[spans[start, 0] : spans[start : end + 1, 1].max()] if end >= 0 else "")
        return found

    def _spans(self, text: str) -> np.ndarray:
        if self.tokenizer is None:
            return np.array([match.span() for match in _WORD.finditer(text)], np.int64).reshape(-1, 2)
        from pyterrier_longdoc.text.tokens import character_spans

        return character_spans(self.tokenizer, text)


class PassageAggregator(pt.Transformer):
    """Scores each document by its passages: one row a document, in the order in which they first come.

    Required columns: ``qid``, ``docno`` (ending in ``%p`` and a number) and ``score``. The other columns are those of
    the document's best passage; its text is the document's again if :class:`Passager` cut it.

    Args:
        how: ``"max"``, ``"mean"``, ``"sum"``, ``"first"`` or ``"kmax"``: the mean of the ``k`` best.
        k: See there.
        text_field: Column with the text.

    Raises:
        ValueError: If ``how`` is unknown or ``k`` under 1; if a ``docno`` is none of a passage, or a score is missing.
    """

    schematic: ClassVar = {"label": "PassageAggregator", "help_url": _DOCS}

    def __init__(self, how: str = "max", k: int = 3, *, text_field: str = "text") -> None:
        super().__init__()
        if how not in _AGGREGATIONS:
            raise ValueError(f"how must be one of {', '.join(map(repr, _AGGREGATIONS))}, got {how!r}")
        check_whole("k", k)
        self.how, self.k, self.text_field = how, k, text_field

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """One row a document; see the class."""
        pt.validate.columns(inp, includes=["qid", "docno", "score"], context=self)
        parts = [str(docno).rpartition(_MARK) for docno in inp["docno"]]
        wrong = next((docno for docno, part in zip(inp["docno"], parts, strict=True) if not part[2].isdigit()), None)
        if wrong is not None or any(not mark for _, mark, _ in parts):
            raise ValueError(f"{self}: docno {wrong!r} is none of a passage; it should end in '%p' and a number")
        unscored = inp["docno"][inp["score"].isna().to_numpy()]
        if len(unscored):
            raise ValueError(f"{self}: {len(unscored)} passages have no score (first: {unscored.iloc[0]!r})")
        out = inp.assign(
            docno=pd.Series([name for name, _, _ in parts], dtype=inp["docno"].dtype).array,
            score=inp["score"].astype(np.float64),
        )
        number = np.array([int(place) for _, _, place in parts], np.int64)
        best = np.lexsort((number, number if self.how == "first" else -out["score"].to_numpy()))
        ordered = out.iloc[best]
        groups = ordered.groupby(["qid", "docno"], sort=False)
        ordered = ordered.assign(score=groups["score"].transform(self._aggregate()))
        kept = ~ordered.duplicated(["qid", "docno"])
        first = out.groupby(["qid", "docno"], sort=False).ngroup().to_numpy()[best][kept]
        result = ordered[kept].iloc[np.argsort(first, kind="stable")].reset_index(drop=True)
        whole = f"{self.text_field}_0"
        if whole in result:
            result = result.assign(**{self.text_field: result[whole]}).drop(columns=whole)
        return pt.model.add_ranks(result)

    def _aggregate(self) -> str | Callable[[pd.Series], float]:
        return (lambda scores: scores.iloc[: self.k].mean()) if self.how == "kmax" else self.how


def _texts(inp: pd.DataFrame, column: str | None) -> list[str]:
    if column is None:
        return [""] * len(inp)
    return ["" if pd.isna(text) else str(text) for text in inp[column]]
