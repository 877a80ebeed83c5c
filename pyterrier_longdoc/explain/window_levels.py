"""The table of :mod:`~pyterrier_longdoc.explain.levels` for rankers that read a query as a whole: of their windows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import pandas as pd

from pyterrier_longdoc.explain.explanation import LEVEL_COLUMNS, LEVELS
from pyterrier_longdoc.explain.parts import SECTIONS
from pyterrier_longdoc.text.headings import headings, title_at
from pyterrier_longdoc.text.sections import split_sections

if TYPE_CHECKING:
    from pyterrier_longdoc.explain.highlight import TextWindow


def levels_of_windows(
    results: pd.DataFrame, texts: Sequence[str], read: Sequence[int], windows: Sequence[list[TextWindow]]
) -> pd.DataFrame:
    """The levels of rankers that compare no parts of queries; behind the ids, columns are those of a comparison.

    A query is one part. The similarity of a document is its score, if it is known; that of a window is its weight, and
    that of a section the weight of the strongest window that begins in it; sections without one are left out.

    Args:
        results: Columns qid, query, docno and, if known, score.
        texts: The document of each row.
        read: How many characters of it were read.
        windows: Its windows.
    """
    rows = []
    for result, text, end, own in zip(results.to_dict("records"), texts, read, windows, strict=True):
        docno, known = str(result["docno"]), headings(text)
        whole = {"qid": result["qid"], "docno": result["docno"], "part_a": result["qid"], "text_a": result["query"]}
        if "score" in result:
            rows.append({
                **whole, "level": LEVELS[0], "kind": LEVELS[0], "part_b": docno, "similarity": result["score"],
                "text_b": text,
            })
        cuts = [0, *accumulate(map(len, split_sections(text[:end], SECTIONS)))]
        titles = [title_at(text, known, first) for first in cuts[:-1]]
        section_of = [min(bisect_right(cuts, window.spans[0][0]), len(titles)) - 1 for window in own]
        for section in sorted(set(section_of)):
            first, last = cuts[section : section + 2]
            weights = [window.weight for window, its in zip(own, section_of, strict=True) if its == section]
            rows.append({
                **whole, "level": LEVELS[1], "kind": LEVELS[1], "part_b": f"{docno} §{section + 1}",
                "similarity": max(weights), "heading_b": titles[section], "spans_b": [(first, last)],
                "text_b": text[first:last],
            })
        for window, section in zip(own, section_of, strict=True):
            rows.append({
                **whole, "level": LEVELS[2], "kind": window.kind, "part_b": f"{docno} {window.kind} {window.number}",
                "similarity": window.weight, "heading_b": titles[section], "tokens_b": window.tokens,
                "spans_b": window.spans, "text_b": window.text(text),
            })
    return pd.DataFrame(rows, columns=["qid", "docno", *LEVEL_COLUMNS])
