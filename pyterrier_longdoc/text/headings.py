"""Headings of texts: Markdown, reStructuredText, HTML, or lines of plain text that look like headings.

One pass over the lines of a text, so that the time is linear in its length whatever it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

#: What a fence of a code block in Markdown begins with; behind backticks there are no more of them.
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_HASHES = re.compile(r"#{1,6}[ \t]+(?=[^\s#])")
_RULE = re.compile(r"([=\-~^\"'`*+#:._])\1{2,}")
_HTML = re.compile(r"<(/?)h[1-6]\b[^<>]*>", re.I)
_TAG = re.compile(r"<[^<>]*>")
_NUMBERED = re.compile(r"(?:\d+(?:\.\d+)*\.?|[IVX]+\.)[ \t]+[^\W\d_]")
#: Titles are no longer than so many characters and words.
_LONGEST, _PLAIN_LONGEST, _MOST_WORDS = 120, 80, 12
#: Nobody breaks lines of text that are shorter.
_NARROW = 40
#: Signs that a title may begin with.
_OPENING = "\"'([\N{LEFT DOUBLE QUOTATION MARK}\N{LEFT SINGLE QUOTATION MARK}"
#: Signs that end sentences or their parts, not titles.
_ENDS = ".,;:!?\N{IDEOGRAPHIC FULL STOP}\N{FULLWIDTH COMMA}\N{FULLWIDTH EXCLAMATION MARK}\N{FULLWIDTH QUESTION MARK}"


class Heading(NamedTuple):
    """A heading of a text.

    Attributes:
        start: Its first character, marks included.
        title: Its words.
    """

    start: int
    title: str


def headings(text: str) -> list[Heading]:
    """The headings of a text, in its order.

    Where two or more are marked as such (Markdown, reStructuredText, HTML) those; else lines that look like headings
    too: short, numbered or at the start of a block, with a capital (in scripts that have them), without a sign that
    ends a sentence, and broken off before the line was full. What stands in fenced code is none.
    """
    lines = _without_fences(text.split("\n"))
    marked = [*_hashed(lines), *_underlined(lines)]
    starts = _starts(lines)
    found = {starts[number]: title for number, title in marked} | dict(_tagged("\n".join(lines)))
    if len(found) < 2:  # a single one may be there by accident, or for the title
        found = {starts[number]: lines[number] for number in _plain(lines)} | found
    return [Heading(start, " ".join(_TAG.sub(" ", title).split())) for start, title in sorted(found.items())]


def heading_characters(text: str) -> list[int]:
    """The first character of each heading."""
    return [heading.start for heading in headings(text)]


def _starts(lines: Sequence[str]) -> list[int]:
    starts, place = [], 0
    for line in lines:
        starts.append(place)
        place += len(line) + 1
    return starts


def _without_fences(lines: list[str]) -> list[str]:
    """The lines, those of fenced code as spaces."""
    kept, fence = [], ""
    for number, line in enumerate(lines):
        sign = _FENCE.match(line)
        inside = bool(fence)
        if inside:
            fence = "" if sign and sign[1].startswith(fence) else fence
        elif sign and not (sign[1][0] == "~" and _is_underline(lines, number)):
            fence, inside = sign[1], True
        kept.append(" " * len(line) if inside else line)
    return kept


def _is_underline(lines: Sequence[str], number: int) -> bool:
    """Whether a line of tildes is under a title, or over one that has another such line under it."""
    rule = lines[number].strip()
    before, after = (lines[place].strip() if 0 <= place < len(lines) else "" for place in (number - 1, number + 2))
    return _RULE.fullmatch(rule) is not None and (
        _fits(before, rule) or (rule == after and _fits(lines[number + 1].strip(), rule))
    )


def _hashed(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Markdown: ``## Title ##``, from the first column on: further right, # begins comments of code."""
    for number, line in enumerate(lines):
        if marks := _HASHES.match(line):
            yield number, line[marks.end() :].rstrip(" \t\r#")


def _underlined(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """A line of signs under a title that has nothing, or another such line, above it."""
    stripped = ["", "", *(line.strip() for line in lines)]
    for number, (above, over, title, rule) in enumerate(
        zip(["", *stripped], stripped, stripped[1:], stripped[2:], strict=False)
    ):
        if rule and _RULE.fullmatch(rule) and _fits(title, rule):
            if not over:
                yield number - 1, title
            elif not above and _RULE.fullmatch(over) and len(over) >= len(title):
                yield number - 2, title


def _fits(title: str, rule: str) -> bool:
    """Whether a line may be the title over a line of signs: these may be few in Markdown only."""
    enough = rule[0] in "=-" or len(rule) >= min(4, len(title))
    return 0 < len(title) <= _LONGEST and enough and not _RULE.fullmatch(title)


def _tagged(text: str) -> Iterator[tuple[int, str]]:
    """HTML: ``<h1>Title</h1>``."""
    opening = None
    for tag in _HTML.finditer(text):
        if not tag[1]:
            opening = tag
        elif opening is not None:
            yield opening.start(), text[opening.end() : tag.start()]
            opening = None


def _plain(lines: Sequence[str]) -> Iterator[int]:
    """Lines that look like titles: the first ones of blocks, or numbered, and broken off before they were full."""
    block: list[int] = []
    for number, line in enumerate([*lines, ""]):
        if line.strip():
            block.append(number)
            continue
        own = [lines[each].rstrip() for each in block]
        width = max(_NARROW, *map(len, own), 0)
        for place, (title, following) in enumerate(zip(own, [*own[1:], ""], strict=False)):
            opens = place == 0 or _NUMBERED.match(title)
            if opens and _looks_like_a_title(title) and not _continues(title, following, width):
                yield block[place]
        block = []


def _continues(line: str, following: str, width: int) -> bool:
    """Whether a line was full, as there was no room for the next one's first word, which is not indented either."""
    indented = following[:1].isspace() and len(line) <= _NARROW
    return bool(following) and not indented and len(line) + 1 + len(following.split(maxsplit=1)[0]) > width


def _looks_like_a_title(line: str) -> bool:
    letter = next((sign for sign in line if sign.isalpha()), "")
    short = len(line) <= _PLAIN_LONGEST and len(line.split()) <= _MOST_WORDS
    opens = line[0].isalnum() or line[0] in _OPENING
    return short and opens and letter != "" and not letter.islower() and line[-1] not in _ENDS


def title_at(text: str, known: Sequence[Heading], first: int) -> str:
    """The one of the headings of a text that a section begins with, whose first character is given, if there is one."""
    before = (each for each in known if each.start <= first)
    return next((each.title for each in before if not text[each.start : first].strip()), "")
