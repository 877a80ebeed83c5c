"""Compared documents as HTML: chunks side by side, with lines between those that are alike (Figure 5 of CoLDE).

Everything is in the page: no script, no link to elsewhere. Boxes are all equally high, so that lines know where they
lie; what does not fit into a box is reached by scrolling. Everything that comes from a document is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pyterrier_longdoc.colours import Scale
from pyterrier_longdoc.highlight import note

if TYPE_CHECKING:
    from pyterrier_longdoc.levels import Comparison

#: Tables with more rows are not shown.
_MOST_ROWS = 40
_STYLE = """
.ld .tables{display:flex;flex-wrap:wrap;gap:1em 2.5em;align-items:flex-end;margin:.6em 0 1em}
.ld table.sim{border-collapse:collapse;font-size:.8em;margin:0}
.ld table.sim caption{text-align:left;font-weight:600;padding:0 0 .3em}
.ld table.sim th{font-weight:400;padding:.15em .5em;text-align:right;background:none;white-space:nowrap}
.ld table.sim td{padding:.15em .55em;text-align:right;border:1px solid var(--line)}
.ld table.sim .new{border-top:2px solid currentColor}
.ld .side{display:grid;grid-template-columns:minmax(0,1fr) clamp(3em,12%,8em) minmax(0,1fr);margin:.5em 0 1em}
.ld .side>div{display:flex;flex-direction:column}
.ld .side>h4{margin:0;padding:.3em .6em;font:600 1em ui-monospace,monospace;overflow-wrap:anywhere}
.ld .box{height:9em;margin:.3em 0;box-sizing:border-box;border:1px solid var(--line);border-radius:6px;overflow:hidden;
  display:flex;flex-direction:column}
.ld .box:target{outline:3px solid currentColor}
.ld .box .head{padding:.15em .6em;font-size:.82em;flex:none;flex-wrap:nowrap;white-space:nowrap}
.ld .box .head b{overflow:hidden;text-overflow:ellipsis}
.ld .box .words{padding:.3em .6em;overflow:auto;white-space:pre-wrap;overflow-wrap:anywhere;font-size:.85em;flex:1}
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
    tables = [_table(comparison.documents, "documents"), _table(comparison.sections, "sections")]
    yield f'<div class="tables">{"".join(tables)}</div>'
    seed = repr((comparison.names, comparison.texts)) + ranker
    anchor = "lt" + blake2b(seed.encode("utf-8", "replace"), digest_size=5).hexdigest()
    first, *others = comparison.names
    owner = comparison.parts.loc[comparison.parts["level"] == "chunk", "document"].to_numpy()
    across = comparison.chunks.to_numpy()[owner == first][:, owner != first]
    scale = Scale.of(across.ravel().tolist(), signed=False)  # one for all pictures, so that they compare
    for number, name in enumerate(others):
        yield from _side_by_side(comparison, first, name, scale, lines, f"{anchor}-{number}")
    yield from _folded(comparison.chunks, "chunks")
    if comparison.attention is not None:
        yield from _folded(comparison.attention, "attention of chunks (rows look at columns)")


def _side_by_side(
    comparison: Comparison, left: str, right: str, scale: Scale, lines: int, anchor: str
) -> Iterator[str]:
    parts = comparison.parts[comparison.parts["level"] == "chunk"]
    sides = [parts[parts["document"] == name] for name in (left, right)]
    table = comparison.chunks.loc[sides[0]["part"], sides[1]["part"]].to_numpy()
    drawn = np.argsort(-table, axis=None, kind="stable")[:lines]
    links = [(int(row), int(column)) for row, column in zip(*np.unravel_index(drawn, table.shape), strict=True)]
    anchors = [f"{anchor}-{side}" for side in "lr"]
    rows = max(table.shape)
    kind = sides[1]["kind"].iloc[0]
    yield (
        f'<div class="legend"><span>{scale.html()}</span><span>similarity of {escape(kind)}s; '
        f"{len(links):,} of {table.size:,} pairs are linked</span></div>"
    )
    columns = [
        _column(each, anchors[side], table.max(axis=1 - side), scale) for side, each in enumerate(sides)
    ]
    drawing = "".join(_line(link, table, scale, sides, anchors) for link in reversed(links))
    svg = (
        f'<svg viewBox="0 0 10 {rows * 10}" preserveAspectRatio="none" style="height:{rows * _ROW:.1f}em" '
        f'role="img" aria-label="lines between similar chunks">{drawing}</svg>'
    )
    yield (
        f'<div class="side"><h4>{escape(left)}</h4><span></span><h4>{escape(right)}</h4>'
        f"<div>{columns[0]}</div><div>{svg}</div><div>{columns[1]}</div></div>"
    )
    yield f'<div class="tags last">{"".join(_tag(link, table, scale, sides, anchors) for link in links)}</div>'


def _column(parts: pd.DataFrame, anchor: str, best: np.ndarray, scale: Scale) -> str:
    """The boxes of one document; the shade of a head says how alike its most similar partner is."""
    boxes = []
    for number, (part, heading, text) in enumerate(parts[["part", "heading", "text"]].itertuples(index=False)):
        title = f"{part} {heading}".strip()
        words = escape(text) if text.strip() else note("no text")
        boxes.append(
            f'<div class="box" id="{anchor}{number}"><div class="head mark" style="{scale.style(best[number], True)}">'
            f'<b title="{escape(title)}">{escape(title)}</b><span class="facts">{best[number]:.3g}</span></div>'
            f'<div class="words" dir="auto" tabindex="0">{words}</div></div>'
        )
    return "".join(boxes)


def _line(
    link: tuple[int, int], table: np.ndarray, scale: Scale, sides: list[pd.DataFrame], anchors: list[str]
) -> str:
    row, column = link
    similarity = table[link]
    width = 1 + 4 * scale.strength(similarity)
    return (
        f'<a href="#{anchors[1]}{column}"><title>{_names(link, sides)}: {similarity:.4g}</title>'
        f'<line x1="0" y1="{row * 10 + 5}" x2="10" y2="{column * 10 + 5}" stroke-width="{width:.1f}" '
        f'style="{scale.style(similarity, True)}"/></a>'
    )


def _tag(
    link: tuple[int, int], table: np.ndarray, scale: Scale, sides: list[pd.DataFrame], anchors: list[str]
) -> str:
    style = scale.style(table[link], True)
    words = f"&nbsp;{_names(link, sides)} {table[link]:.3g}"
    return f'<a href="#{anchors[1]}{link[1]}" class="mark" style="{style}">{words}</a>'


def _names(link: tuple[int, int], sides: list[pd.DataFrame]) -> str:
    return escape(" \N{EN DASH} ".join(side["part"].iloc[place] for side, place in zip(sides, link, strict=True)))


def _table(matrix: pd.DataFrame, caption: str) -> str:
    """A matrix as a shaded table, with a line where another document begins."""
    labels, values = [escape(label) for label in matrix.index], matrix.to_numpy()
    others = values[~np.eye(len(values), dtype=bool)]
    scale = Scale.of(others.tolist(), signed=False)
    owners = [label.rsplit(" §", 1)[0] for label in matrix.index]
    new = [False, *(first != second for first, second in pairwise(owners))]
    head = "".join(f'<th scope="col">{label}</th>' for label in labels)
    body = []
    for row, label in enumerate(labels):
        cells = "".join(
            f'<td class="mark" style="{scale.style(min(value, scale.high), False)}">{value:.2f}</td>'
            for value in values[row]
        )
        opening = ' class="new"' if new[row] and len(set(owners)) < len(owners) else ""
        body.append(f'<tr{opening}><th scope="row">{label}</th>{cells}</tr>')
    return f'<table class="sim"><caption>{escape(caption)}</caption><tr><th></th>{head}</tr>{"".join(body)}</table>'


def _folded(matrix: pd.DataFrame, caption: str) -> Iterator[str]:
    if len(matrix) <= _MOST_ROWS:
        yield f"<details><summary>{escape(caption)}</summary>{_table(matrix, caption)}</details>"
    else:
        yield note(f"{len(matrix)} {caption.split()[0]} rows are too many to show: see the frame")
