"""Compared documents as HTML: chunks side by side, with lines between those that are alike (Figure 5 of CoLDE).

Everything is in the page: no script, no link to elsewhere. Boxes are all equally high, so that lines know where they
lie; what does not fit into a box is reached by scrolling. Everything that comes from a document is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from html import escape
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from pyterrier_longdoc.explain.colours import Scale
from pyterrier_longdoc.explain.highlight import note

if TYPE_CHECKING:
    from pyterrier_longdoc.explain.levels import Comparison

#: Tables with more rows are not shown.
_MOST_ROWS = 40
_STYLE = """
.ld .tables{display:flex;flex-wrap:wrap;gap:1em 2.5em;align-items:flex-start;margin:.6em 0 1em}
.ld .wide{max-width:100%;overflow-x:auto}
.ld table.sim{border-collapse:collapse;font-size:.8em;margin:0}
.ld table.sim caption{text-align:left;font-weight:600;padding:0 0 .3em}
.ld table.sim th{font-weight:400;padding:.15em .5em;text-align:right;background:none;white-space:nowrap}
.ld table.sim td{padding:.15em .55em;text-align:right;border:1px solid var(--line)}
.ld table.sim th[colspan]{text-align:center}
.ld table.sim tr.new>*{border-top:2px solid currentColor}
.ld table.sim td.new{border-left:2px solid currentColor}
.ld .side{display:grid;grid-template-columns:minmax(0,1fr) clamp(3em,12%,8em) minmax(0,1fr);margin:.5em 0 1em}
.ld .side>div{display:flex;flex-direction:column}
.ld .side>h4{margin:0;padding:.3em .6em;font:600 1em ui-monospace,monospace;overflow-wrap:anywhere}
.ld .box{height:9em;margin:.3em 0;box-sizing:border-box;border:1px solid var(--line);border-radius:6px;overflow:hidden;
  display:flex;flex-direction:column}
.ld .box:target{outline:3px solid currentColor}
.ld .box .head{padding:.15em .6em;font-size:.82em;flex:none;flex-wrap:nowrap;white-space:nowrap}
.ld .box .head b{overflow:hidden;text-overflow:ellipsis}
.ld .box .words{padding:.3em .6em 1.2em;overflow:auto;white-space:pre-line;overflow-wrap:anywhere;font-size:.85em;
  flex:1;-webkit-mask:linear-gradient(#000 calc(100% - 1.5em),transparent);
  mask:linear-gradient(#000 calc(100% - 1.5em),transparent)}
.ld .tags.last{margin:0 0 2em}
.ld .side svg{display:block;width:100%}
.ld .side line{stroke:rgb(POS/var(--a));vector-effect:non-scaling-stroke;stroke-linecap:round}
.ld .side a:hover line{stroke:currentColor}
""".replace("POS", "245 140 20")
#: Height of a box with its margins, in em.
_ROW = 9.6


def linked_texts(comparison: Comparison, ranker: str, lines: int) -> Iterator[str]:
    """The parts of a page: how alike documents and sections are, and the first document beside each other one.

    Args:
        comparison: The documents.
        ranker: Name of the ranker.
        lines: So many lines are drawn, the strongest, between each two documents.
    """
    yield f"<style>{_STYLE}</style>"
    names = " \N{LEFT RIGHT ARROW} ".join(comparison.names)
    yield f'<div class="query" dir="auto">{escape(names)}</div>'
    yield note(f"cosine similarity of whole documents, of sections and of chunks, by {ranker}")
    cut = [f"the first {share:.0%} of {name}" for name, share in comparison.read.items() if share < 1]
    if cut:
        yield note(f"only {', '.join(cut)} {'was' if len(cut) == 1 else 'were'} read")
    tables = [_table(comparison.documents, "documents"), _table(comparison.sections, "sections")]
    yield f'<div class="tables">{"".join(tables)}</div>'
    seed = repr((comparison.names, comparison.texts)) + ranker
    anchor = "lt" + blake2b(seed.encode("utf-8", "replace"), digest_size=5).hexdigest()
    first, *others = comparison.names
    pictures = [Picture.of(comparison, first, name, lines, f"{anchor}-{number}") for number, name in enumerate(others)]
    # One scale for all pictures, so that they compare; over the lines, which all lie near its end otherwise
    scale = Scale.of([picture.table[link] for picture in pictures for link in picture.links], signed=False)
    for picture in pictures:
        yield from picture.html(scale)
    yield from _folded(comparison.chunks, "similarity of all chunks")
    if comparison.attention is not None:
        yield from _folded(comparison.attention, "attention of chunks (rows look at columns)")


class Picture(NamedTuple):
    """Two documents side by side.

    Attributes:
        names: What they are called.
        sides: Their chunks, rows of :attr:`Comparison.parts <pyterrier_longdoc.explain.levels.Comparison.parts>`.
        table: Similarities of these, ``[chunks of the first, chunks of the second]``.
        links: Row and column of those that lines are drawn between, the strongest first.
        anchor: First part of the names of jump targets, unique on the page.
    """

    names: tuple[str, str]
    sides: tuple[pd.DataFrame, pd.DataFrame]
    table: np.ndarray
    links: list[tuple[int, int]]
    anchor: str

    @classmethod
    def of(cls, comparison: Comparison, left: str, right: str, lines: int, anchor: str) -> Picture:
        """Two documents of a comparison, with so many lines or fewer."""
        chunks = comparison.parts[comparison.parts["level"] == "chunk"]
        own, other = (chunks[chunks["document"] == name] for name in (left, right))
        table = comparison.chunks.loc[own["part"], other["part"]].to_numpy()
        drawn = np.unravel_index(np.argsort(-table, axis=None, kind="stable")[:lines], table.shape)
        links = list(zip(*(each.tolist() for each in drawn), strict=True))
        return cls((left, right), (own, other), table, links, anchor)

    def html(self, scale: Scale) -> Iterator[str]:
        """A legend, the boxes with the lines between them, and the list of the lines."""
        kind = self.sides[1]["kind"].iloc[0]
        kinds = f"{kind}es" if kind.endswith("ch") else f"{kind}s"
        yield (
            f'<div class="legend"><span>{scale.html()}</span><span>similarity of {escape(kinds)}; '
            f"{len(self.links):,} of {self.table.size:,} pairs are linked</span></div>"
        )
        rows = max(self.table.shape)
        lines = "".join(self._line(link, scale) for link in reversed(self.links))
        svg = (
            f'<svg viewBox="0 0 10 {rows * 10}" preserveAspectRatio="none" style="height:{rows * _ROW:.1f}em" '
            f'role="img" aria-label="lines between similar {escape(kinds)}">{lines}</svg>'
        )
        left, right = (self._column(side, scale) for side in (0, 1))
        heads = [f"<h4>{escape(name)}</h4>" for name in self.names]
        yield (
            f'<div class="side">{heads[0]}<span></span>{heads[1]}'
            f"<div>{left}</div><div>{svg}</div><div>{right}</div></div>"
        )
        yield f'<div class="tags last">{"".join(self._tag(link, scale) for link in self.links)}</div>'

    def _column(self, side: int, scale: Scale) -> str:
        """The boxes of one document; the shade of a head says how alike its most similar partner is."""
        boxes = []
        chunks = zip(self._labels(side), self.sides[side]["heading"], self.sides[side]["text"], strict=True)
        for number, ((label, heading, text), best) in enumerate(
            zip(chunks, self.table.max(axis=1 - side), strict=True)
        ):
            title = escape(f"{label} {heading}".strip())
            words = escape(text) if text.strip() else note("no text")
            boxes.append(
                f'<div class="box" id="{self._target(side, number)}">'
                f'<div class="head mark" style="{_shade(best, scale)}">'
                f'<b title="{title}">{title}</b><span class="facts">{best:.3g}</span></div>'
                f'<div class="words" dir="auto" tabindex="0">{words}</div></div>'
            )
        return "".join(boxes)

    def _line(self, link: tuple[int, int], scale: Scale) -> str:
        row, column = link
        width = 1 + 4 * scale.strength(self.table[link])
        return (
            f'<a href="#{self._target(1, column)}"><title>{self._names(link)}: {self.table[link]:.4g}</title>'
            f'<line x1="0" y1="{row * 10 + 5}" x2="10" y2="{column * 10 + 5}" stroke-width="{width:.1f}" '
            f'style="{_shade(self.table[link], scale)}"/></a>'
        )

    def _tag(self, link: tuple[int, int], scale: Scale) -> str:
        words = f"&nbsp;{self._names(link)} &nbsp;{self.table[link]:.3g}"
        style = _shade(self.table[link], scale)
        return f'<a href="#{self._target(1, link[1])}" class="mark" style="{style}">{words}</a>'

    def _names(self, link: tuple[int, int]) -> str:
        return escape(" \N{EN DASH} ".join(self._labels(side)[place] for side, place in enumerate(link)))

    def _labels(self, side: int) -> list[str]:
        """The chunks' labels without the name of their document, which stands above them."""
        return [part.removeprefix(self.names[side]).strip() for part in self.sides[side]["part"]]

    def _target(self, side: int, number: int) -> str:
        return f"{self.anchor}-{'lr'[side]}{number}"


def _shade(similarity: float, scale: Scale) -> str:
    return scale.style(float(np.clip(similarity, scale.low, scale.high)), True)


def _table(matrix: pd.DataFrame, caption: str) -> str:
    """A matrix as a shaded table, with a line where another document begins."""
    labels, values = [escape(label) for label in matrix.index], matrix.to_numpy()
    others = values[~np.eye(len(values), dtype=bool)]
    scale = Scale.of(others.tolist(), signed=False)
    owners = [label.rsplit(" §", 1)[0] for label in matrix.index]
    grouped = len(set(owners)) < len(owners)
    new = [grouped and first != second for first, second in pairwise([owners[0], *owners])]
    head = _table_head(labels, owners if grouped else [])
    body = []
    for row, label in enumerate(labels):
        cells = "".join(
            f'<td class="mark{" new" * border}" style="{scale.style(min(value, scale.high), False)}">{value:.2f}</td>'
            for value, border in zip(values[row], new, strict=True)
        )
        opening = ' class="new"' if new[row] else ""
        body.append(f'<tr{opening}><th scope="row">{label}</th>{cells}</tr>')
    return (
        f'<div class="wide"><table class="sim"><caption>{escape(caption)}</caption>'
        f'{head}{"".join(body)}</table></div>'
    )


def _table_head(labels: list[str], owners: list[str]) -> str:
    """The labels of the columns; those of parts without the names of their documents, which stand above them."""
    if not owners:
        columns = "".join(f'<th scope="col">{label}</th>' for label in labels)
        return f"<tr><th></th>{columns}</tr>"
    sizes = [(owner, len(list(group))) for owner, group in groupby(owners)]
    names = "".join(f'<th scope="colgroup" colspan="{size}">{escape(owner)}</th>' for owner, size in sizes)
    parts = "".join(f'<th scope="col">\N{SECTION SIGN}{label.rsplit(" §", 1)[1]}</th>' for label in labels)
    return f"<tr><th></th>{names}</tr><tr><th></th>{parts}</tr>"


def _folded(matrix: pd.DataFrame, caption: str) -> Iterator[str]:
    if len(matrix) <= _MOST_ROWS:
        yield f"<details><summary>{escape(caption)}</summary>{_table(matrix, caption)}</details>"
    else:
        yield note(f"{caption}: {len(matrix):,} rows are too many to show; see the matrices of the comparison")
