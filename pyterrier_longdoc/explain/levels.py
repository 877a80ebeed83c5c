"""Documents compared at three levels: as wholes, by their sections, and by their chunks (CoLDE, sections 3 and 4.3).

One number hides which parts of two long documents are alike. A ranker that can say what it makes of the parts of a
document has a method ``parts(texts, side)`` (see :mod:`~pyterrier_longdoc.explain.parts`); :class:`Comparison` lays
the parts of two or more documents side by side. It is made by ``ranker.explain(text, other_text)``, and for each row of
a result frame by ``ranker.explain(results)``.
:mod:`~pyterrier_longdoc.explain.window_levels` has the same table for rankers that read a query as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pyterrier_longdoc.checks import check_whole
from pyterrier_longdoc.explain.explanation import LEVEL_COLUMNS, LEVELS, stretches_of
from pyterrier_longdoc.explain.highlight import block, page
from pyterrier_longdoc.text.headings import headings, title_at
from pyterrier_longdoc.text.tokens import character_spans

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pyterrier_longdoc.dual_encoder import DualEncoder
    from pyterrier_longdoc.explain.parts import Parts

#: What heat maps show.
MAPS = (*LEVELS, "attention")


def compare(ranker: DualEncoder, texts: Sequence[str], names: Sequence[str] | None = None) -> Comparison:
    """Compares documents with each other; see :class:`Comparison`.

    Args:
        ranker: A ranker with a method ``parts``.
        texts: Two or more documents.
        names: What to call them; A, B, C ... by default.

    Raises:
        ValueError: If there are fewer than two documents, or their names are not as many and all different.
        TypeError: If a document is no string.
    """
    if len(texts) < 2:
        raise ValueError(f"a comparison needs two documents or more, got {len(texts)}")
    names = [chr(ord("A") + number) for number in range(len(texts))] if names is None else [str(each) for each in names]
    if len(names) != len(texts) or len(set(names)) != len(texts):
        raise ValueError(f"names must be {len(texts)} different ones, got {names}")
    for name, text in zip(names, texts, strict=True):
        if not isinstance(text, str):
            raise TypeError(f"document {name} is {type(text).__name__}, not text")
    spans = [character_spans(ranker.tokenizer, text) for text in texts]
    return Comparison(names, texts, spans, ranker.parts(texts), repr(ranker))


def compare_results(ranker: DualEncoder, res: pd.DataFrame) -> list[Comparison]:
    """Compares the query and the document of each row of a frame; each different text is read once."""
    documents = res[ranker.text_field].astype(object).where(res[ranker.text_field].notna(), "")
    rows = list(zip(res["query"], documents, strict=True))
    parts, spans = [], {}
    for texts, side in zip(zip(*rows, strict=True), ("queries", "documents"), strict=False):
        unique = list(dict.fromkeys(texts))
        parts.append(dict(zip(unique, ranker.parts(unique, side), strict=True)))
        spans |= {text: character_spans(ranker.tokenizer, text) for text in unique}
    found = []
    for row, qid, docno in zip(rows, res["qid"], res["docno"], strict=True):
        names = [f"query {qid}" if qid == docno else str(qid), str(docno)]
        of_row = [known[text] for known, text in zip(parts, row, strict=True)]
        found.append(Comparison(names, row, [spans[text] for text in row], of_row, repr(ranker)))
    return found


class Comparison:
    """The similarities of documents, of their sections and of their chunks.

    As the last line of a notebook's cell it shows the first document's chunks beside those of each other one, with
    lines between those that are alike (Figure 5 of the CoLDE paper).

    Args:
        names: What the documents are called.
        texts: The documents.
        spans: First and past-last character of each token of each document.
        parts: What the ranker makes of each.
        ranker: Name of the ranker.

    Attributes:
        names: What the documents are called.
        texts: The documents.
    """

    def __init__(
        self,
        names: Sequence[str],
        texts: Sequence[str],
        spans: Sequence[np.ndarray],
        parts: Sequence[Parts],
        ranker: str,
    ) -> None:
        self.names, self.texts = list(names), list(texts)
        self._spans, self._parts, self._ranker = spans, parts, ranker

    @cached_property
    def parts(self) -> pd.DataFrame:
        """One row a document, section and chunk.

        Columns: ``document``; ``level``; ``part``, its label ("A", "A §1", "A §1.2" for the second chunk of the first
        section); ``kind``; ``heading``, that of its section if the text has one there; ``tokens`` and ``spans``, lists
        of first and past-last token and character of each stretch; ``text``.
        """
        columns = ["document", "level", "part", "kind", "heading", "tokens", "spans", "text"]
        rows = [row for number in range(len(self.names)) for row in self._rows(number)]
        return pd.DataFrame(rows, columns=columns)

    @cached_property
    def read(self) -> pd.Series:
        """The share of each document's tokens that the ranker read; 1 for all."""
        positions = [sum(map(len, parts.section_positions)) for parts in self._parts]
        shares = [own / len(spans) if len(spans) else 1.0 for own, spans in zip(positions, self._spans, strict=True)]
        return pd.Series(shares, self.names)

    def _rows(self, number: int) -> Iterator[tuple]:
        name, parts = self.names[number], self._parts[number]
        whole = np.concatenate([np.empty(0, np.int64), *parts.section_positions])
        yield name, LEVELS[0], name, LEVELS[0], "", *self._place(number, whole)
        titles, known = [], headings(self.texts[number])
        for section, positions in enumerate(parts.section_positions):
            tokens, spans, text = self._place(number, positions)
            titles.append(title_at(self.texts[number], known, spans[0][0]) if spans else "")
            yield name, LEVELS[1], f"{name} §{section + 1}", LEVELS[1], titles[-1], tokens, spans, text
        seen = [0] * len(titles)
        for section, positions in zip(parts.section_of, parts.chunk_positions, strict=True):
            seen[section] += 1
            label = f"{name} §{section + 1}.{seen[section]}"
            yield name, LEVELS[2], label, parts.kind, titles[section], *self._place(number, positions)

    def _place(self, number: int, positions: np.ndarray) -> tuple[list, list, str]:
        tokens, spans = stretches_of(positions, self._spans[number])
        return tokens, spans, "".join(self.texts[number][first:end] for first, end in spans)

    # Matrices ---------------------------------------------------------------------------------------------------------

    @cached_property
    def documents(self) -> pd.DataFrame:
        """The cosine of each document and each other one."""
        return self._cosines("document", [each.document[None] for each in self._parts])

    @cached_property
    def sections(self) -> pd.DataFrame:
        """The cosine of each section and each other one, within and across documents."""
        return self._cosines("section", [each.sections for each in self._parts])

    @cached_property
    def chunks(self) -> pd.DataFrame:
        """The cosine of each chunk and each other one, within and across documents."""
        return self._cosines("chunk", [each.chunks for each in self._parts])

    @cached_property
    def attention(self) -> pd.DataFrame | None:
        """How much each chunk (row) looks at each other one of its document; ``None`` if the ranker's do not."""
        tables = [each.attention for each in self._parts]
        if any(table is None for table in tables):
            return None
        labels = self._labels("chunk")
        joined = pd.DataFrame(0.0, labels, labels)
        place = 0
        for table in tables:
            joined.iloc[place : place + len(table), place : place + len(table)] = table
            place += len(table)
        return joined

    def matrix(self, level: str) -> pd.DataFrame:
        """:attr:`documents`, :attr:`sections` or :attr:`chunks` by the name of the level, or :attr:`attention`.

        Raises:
            ValueError: If there is no such level, or no attention.
        """
        if level not in MAPS:
            raise ValueError(f"level must be one of {', '.join(map(repr, MAPS))}, got {level!r}")
        if level != "attention":
            return getattr(self, f"{level}s")
        if self.attention is None:
            raise ValueError(f"the parts that {self._ranker} compares do not look at each other: there is no attention")
        return self.attention

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row for each two parts of different documents.

        Columns: ``level``, ``part_a``, ``part_b``, ``similarity``, ``kind``, and of both parts ``heading``, ``tokens``,
        ``spans`` and ``text``, such as ``text_a`` and ``text_b``.
        """
        described = ["heading", "tokens", "spans", "text"]
        tables = []
        for level in LEVELS:
            parts = self.parts[self.parts["level"] == level].reset_index(drop=True)
            groups = parts.groupby("document", sort=False).indices
            for first, second in combinations(groups.values(), 2):
                a, b = (each.ravel() for each in np.meshgrid(first, second, indexing="ij"))
                sides = [
                    parts.loc[rows, ["part", *described]].reset_index(drop=True).add_suffix(f"_{side}")
                    for side, rows in (("a", a), ("b", b))
                ]
                similarity = self.matrix(level).to_numpy()[a, b]
                own = pd.DataFrame({"level": level, "similarity": similarity, "kind": parts["kind"].to_numpy()[b]})
                tables.append(pd.concat([own, *sides], axis=1))
        return pd.concat(tables, ignore_index=True)[LEVEL_COLUMNS]

    def _cosines(self, level: str, vectors: Sequence[np.ndarray]) -> pd.DataFrame:
        joined = np.concatenate(vectors).astype(np.float64)
        lengths = np.linalg.norm(joined, axis=1, keepdims=True)
        unit = joined / np.where(lengths > 0, lengths, 1)
        labels = self._labels(level)
        return pd.DataFrame(unit @ unit.T, labels, labels)

    def _labels(self, level: str) -> list[str]:
        return self.parts.loc[self.parts["level"] == level, "part"].tolist()

    # Pictures ---------------------------------------------------------------------------------------------------------

    def plot(self, levels: Sequence[str] = MAPS) -> Figure:
        """Heat maps of the levels (Figure 4); see :func:`pyterrier_longdoc.plots.plot_comparison`."""
        from pyterrier_longdoc.plots import plot_comparison

        return plot_comparison(self, levels)

    def html(self, title: str | None = None, *, lines: int = 12) -> str:
        """A page of its own, without scripts or links to elsewhere.

        Args:
            title: Its title; the names of the documents by default.
            lines: So many lines between chunks are drawn, the strongest, for each two documents.

        Raises:
            ValueError: If ``lines`` is under 1.
        """
        return page(title or f"What is alike in {', '.join(self.names)}", self._block(lines))

    def save(self, path: str | Path, title: str | None = None, *, lines: int = 12) -> None:
        """Writes the page to a file; arguments as in :meth:`html`."""
        Path(path).write_text(self.html(title, lines=lines), encoding="utf-8")

    def _repr_html_(self) -> str:
        return self._block(12)

    def _block(self, lines: int) -> str:
        from pyterrier_longdoc.explain.linked_text import linked_texts

        check_whole("lines", lines)
        return block(list(linked_texts(self, self._ranker, lines)))

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(self.names)} by {self._ranker}: {len(self.parts)} parts>"
