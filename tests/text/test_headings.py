"""Headings are found in Markdown, reStructuredText, HTML and plain text, and in no time."""

from __future__ import annotations

import textwrap
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_longdoc.text.headings import Heading, headings

MARKDOWN = "# Title\n\nSome words.\n\n```\n# no heading\n```\n\nA short line\n\n## Second *one* ##\nText.\n"
RST = "=======\nA Title\n=======\n\nWords here.\n\nSection one\n-----------\nText.\n\nNext\n~~~~\nMore."
HTML = "<html><body><h1 id='a'>First <b>part</b></h1><p>Words.</p><H2>Second</H2>Text.</body></html>"
PLAIN = "Abstract\nIn this paper we test.\n\nIntroduction\nWords.\n\nNo heading, as:\nso.\n2.1 Related work\nIt is."
PROSE = (
    "Long documents follow an inherent structure, and are organised into sections. In their section 2 Methods of all "
    "kinds are named"
)
WRAPPED = f"Results\n\n{textwrap.fill(PROSE, 66)}\n\n{textwrap.fill(PROSE, 84)}"
INDENTED = "NAME\n    a_module_with_a_long_name_of_one_word - about it\n\n    Words of it\n\nDATA\n    X = 1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MARKDOWN, [("# Title", "Title"), ("## Second", "Second *one*")]),
        (RST, [("=======\nA", "A Title"), ("Section one", "Section one"), ("Next", "Next")]),
        (HTML, [("<h1", "First part"), ("<H2", "Second")]),
        (PLAIN, [("Abstract", "Abstract"), ("Introduction", "Introduction"), ("2.1", "2.1 Related work")]),
        (INDENTED, [("NAME", "NAME"), ("DATA", "DATA")]),
        ("NAME\n    x - y\n\nNotes\n=====\n\n- Item\n\n<P>Word", [("NAME", "NAME"), ("Notes", "Notes")]),
        (WRAPPED, [("Results", "Results")]),  # a line that was full is the start of a paragraph
        ("3 apples were eaten by somebody who was hungry and came home late that day and night\n\nno title.", []),
        ("Just one sentence.", []),
        ("", []),
        ("Titel\r\n=====\r\n\r\nWorte.\r\n\r\n# Zwei\r\n", [("Titel", "Titel"), ("# Zwei", "Zwei")]),
        ("\u7eea\u8bba 1\n\n\u4e00\u53e5\u8bdd\u3002", [("\u7eea", "\u7eea\u8bba 1")]),
        ("One\n===\n\nx::\n\n   # a comment\n   y", [("One", "One")]),
        ("---\ntitle: front matter\n---\n\n# Real", [("# Real", "Real")]),
        ("words of a paragraph\nThat goes on\n---\nand on", []),  # no blank line above: a rule, and no heading
        ("<h1>never closed <h2>Closed</h2>", [("<h2", "Closed")]),
        ("```python\n# code\n<h1>x</h1>\n```\n\nWords", [("Words", "Words")]),
        ("```inline``` code\n\n# One", [("# One", "One")]),
        ("~~~\n# code\n~~~\n# One", [("# One", "One")]),
        ("# One\n\n````\n```\n# two\n````\n# Three", [("# One", "One"), ("# Three", "Three")]),
        ("# One\n\n```\n# two\n# three\n", [("# One", "One")]),  # a fence that is never closed
        ("#include <x>\n####### seven\n# \n", []),
    ],
)
def test_headings(text, expected):
    assert headings(text) == [Heading(text.index(start), title) for start, title in expected]


def test_tildes_under_titles_open_no_code():
    text = "One\n~~~~\nText.\n\nTwo\n====\nText.\n\n~~~~~\nThree\n~~~~~\nText.\n\nFour\n----\n"
    assert [heading.title for heading in headings(text)] == ["One", "Two", "Three", "Four"]


@pytest.mark.parametrize(
    "piece",
    ["\n", "\n \t", "   \n", "\r\n", "<h1>x ", "<h1 ", "<", "</h2>", "# ", "-----\n", "~~~\n", "```\n", "x", " ", "A\n",
     "1 A\n", "\x0c"],
)
def test_the_time_is_linear(piece):
    """Any number of signs: what takes quadratic time takes minutes here."""
    start = time.process_time()
    headings("# A\n" + piece * 200_000 + "\nb")
    headings("A\n\n" + "<h1>" + piece * 200_000 + "</h1>\nb")
    assert time.process_time() - start < 20


@given(st.text(alphabet="ab. \nAB#=~-`1<>h/", max_size=300))
def test_headings_stand_in_the_text(text):
    found = headings(text)
    assert [each.start for each in found] == sorted({each.start for each in found})
    assert all(0 <= each.start < len(text) for each in found)
