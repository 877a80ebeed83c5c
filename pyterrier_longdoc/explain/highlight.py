"""Documents as HTML, with the windows that made their scores highlighted.

Everything is in the page: the style sheet, no script, no link to elsewhere. Long stretches without a strong window fold
into ``<details>``. Everything that comes from a document or query is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import NamedTuple

from pyterrier_longdoc.explain.colours import STYLE, Scale

#: Characters shown around a strong window, and the shortest stretch that is worth folding away.
_CONTEXT, _FOLD = 140, 300
_PAGE_STYLE = ":root{color-scheme:light dark}body{margin:2em auto;padding:0 1.2em;max-width:62em}.ld{margin:auto}"


class TextWindow(NamedTuple):
    """A window of a document, found again in its text.

    Attributes:
        number: Number of the window in the model's order, from 0.
        kind: What the ranker calls it.
        weight: Its part in the score.
        tokens: First and past-last token of each stretch.
        spans: First and past-last character of each stretch.
    """

    number: int
    kind: str
    weight: float
    tokens: list[tuple[int, int]]
    spans: list[tuple[int, int]]

    def text(self, document: str) -> str:
        """Its words, with an ellipsis between stretches."""
        return " \N{HORIZONTAL ELLIPSIS} ".join(document[first:end] for first, end in self.spans)


@dataclass(frozen=True)
class Card:
    """What is shown of one document.

    Attributes:
        text: The document's text.
        windows: Its windows, in the model's order.
        read: Characters that the model read.
        docno: Its number.
        facts: Small print beside it: rank, score.
        scale: The colours of the weights.
        listed: So many windows, the strongest, are listed; the text around them is not folded.
        anchor: First part of the names of jump targets, unique on the page.
    """

    text: str
    windows: Sequence[TextWindow]
    read: int
    docno: str
    facts: str
    scale: Scale
    listed: int
    anchor: str

    @cached_property
    def strongest(self) -> list[TextWindow]:
        """The windows that are listed, in the model's order."""
        ranked = sorted(self.windows, key=lambda window: -self.scale.strength(window.weight))
        return sorted(ranked[: self.listed], key=lambda window: window.number)

    def html(self) -> str:
        """A head, a map of where the windows lie, their list, and the text."""
        rest = len(self.windows) - len(self.strongest)
        tags = "".join(_tag(self, window) for window in self.strongest)
        tags += note(f"and {rest:,} weaker, shaded in the text") if rest else ""
        return (
            f'<div class="doc"><div class="head"><span class="docno">{escape(self.docno)}</span>'
            f'<span class="facts">{escape(self.facts)}</span></div>{_map(self)}'
            f'<div class="tags">{tags or note("nothing was read: no windows")}</div>'
            f'<div class="text" dir="auto">{"".join(_folded(self))}</div></div>'
        )


def page(title: str, body: str) -> str:
    """A complete HTML page around a :func:`block`."""
    return (
        '<!doctype html><html><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_PAGE_STYLE}</style></head><body>{body}</body></html>"
    )


def block(parts: Sequence[str]) -> str:
    """Parts with the style sheet, as one element that a notebook can show."""
    return f'<div class="ld"><style>{STYLE}</style>{"".join(parts)}</div>'


def query_head(query: str, qid: str, legend: str, cards: Sequence[Card]) -> str:
    """The lines above the cards of a query: its text, and how to read the colours."""
    entries = [f"<span>{cards[0].scale.html()}</span>", f"<span>weight: {escape(legend)}</span>"]
    if any(card.read < len(card.text) for card in cards):
        entries.append('<span><span class="scale unread" style="width:2em"></span>not read</span>')
    return (
        f'<div class="query" dir="auto">{escape(query)}</div><div class="note">query {escape(qid)}</div>'
        f'<div class="legend">{"".join(entries)}</div>'
    )


def note(text: str) -> str:
    """A line of small print."""
    return f'<div class="note">{escape(text)}</div>'


def _tag(card: Card, window: TextWindow) -> str:
    where = window.spans[0][0] / len(card.text)
    return (
        f'<a href="#{card.anchor}-{window.number}" title="{_title([window])}">{_number(card, window)}'
        f"{window.weight:.4g} at {where:.0%}</a>"
    )


def _number(card: Card, window: TextWindow, target: str = "") -> str:
    return f'<span class="n{card.scale.side(window.weight)}" data-n="{window.number}"{target}></span>'


def _title(windows: Sequence[TextWindow]) -> str:
    lines = []
    for window in windows:
        stretches = ", ".join(f"{first}\N{EN DASH}{end - 1}" for first, end in window.tokens[:3])
        more = " ..." if len(window.tokens) > 3 else ""
        lines.append(f"{window.kind} {window.number}: weight {window.weight:.6g}, tokens {stretches}{more}")
    return escape("\n".join(lines))


def _map(card: Card) -> str:
    length, scale, parts = len(card.text), card.scale, []
    for window in sorted(card.windows, key=lambda window: scale.strength(window.weight)):  # the strongest lie on top
        listed = window in card.strongest
        target = f' href="#{card.anchor}-{window.number}"' if listed else ""
        look = f'class="mark{scale.side(window.weight)}" title="{_title([window])}"'
        for first, end in window.spans:
            place = f"left:{first / length:.2%};width:{(end - first) / length:.2%};{scale.style(window.weight, listed)}"
            parts.append(f'<a{target} {look} style="{place}"></a>')
    if card.read < length:
        parts.append(f'<span class="unread" style="left:{card.read / length:.2%};right:0"></span>')
    return f'<div class="map">{"".join(parts)}</div>'


def _folded(card: Card) -> Iterator[str]:
    length, place = len(card.text), 0
    for first, end in [*_shown(card), (length, length)]:
        if place < first:
            hidden = "".join(_marked(card, place, first))
            yield f"<details><summary>{first - place:,} more characters</summary>{hidden}</details>"
        yield from _marked(card, first, end)
        place = end


def _shown(card: Card) -> list[tuple[int, int]]:
    """Stretches of text that are not folded: the strong windows and what is around them."""
    text, shown = card.text, [(0, 0)]
    for first, end in sorted(span for window in card.strongest for span in window.spans) or [(0, _CONTEXT)]:
        first, end = _word_border(text, first - _CONTEXT, -1), _word_border(text, end + _CONTEXT, 1)
        if first - shown[-1][1] < _FOLD:
            opened, closed = shown.pop()
            first, end = opened, max(end, closed)
        shown.append((first, end))
    first, end = shown[-1]
    return [*shown[:-1], (first, len(text) if len(text) - end < _FOLD else end)]


def _word_border(text: str, place: int, step: int) -> int:
    """The next place between two words, at most 30 characters on; within the text."""
    for near in range(place, place + 30 * step, step):
        if not 0 < near < len(text):
            return min(max(near, 0), len(text))
        if text[near - (step < 0)].isspace():
            return near
    return place


def _marked(card: Card, first: int, end: int) -> Iterator[str]:
    """The text between two characters, cut wherever a window begins or ends."""
    spans = [(window, *span) for window in card.windows for span in window.spans]
    spans = [(window, start, stop) for window, start, stop in spans if start < end and stop > first]
    borders = {first, end, *(place for _, *span in spans for place in span), card.read}
    cuts = sorted(place for place in borders if first <= place <= end)
    for start, stop in zip(cuts, cuts[1:], strict=False):
        inside = [window for window, opened, closed in spans if opened <= start < closed]
        for window in inside:
            if start == window.spans[0][0] and window in card.strongest:
                yield _number(card, window, f' id="{card.anchor}-{window.number}"')
        words = escape(card.text[start:stop])
        if inside:
            inside.sort(key=lambda window: -card.scale.strength(window.weight))
            top = inside[0]
            style = card.scale.style(top.weight, top in card.strongest)
            look = f'class="mark{card.scale.side(top.weight)}" style="{style}"'
            yield f'<mark {look} title="{_title(inside)}">{words}</mark>'
        else:
            yield f'<span class="faint">{words}</span>' if start >= card.read else words
