"""Documents compared at three levels: the numbers, where they are from, and what is shown of them."""

from __future__ import annotations

import re
import shutil
import subprocess

import numpy as np
import pytest
import torch

import pyterrier_longdoc as longdoc
from pyterrier_longdoc.explain import LEVEL_COLUMNS
from pyterrier_longdoc.text.tokens import character_spans
from tests.conftest import RANKERS, as_frame, shake
from tests.explain.test_explain import Balanced

FIRST = "Abstract\n" + "w1 w2 w3. " * 20 + "\n\nMethods\n" + "w4 w5. w6 w7. " * 14
SECOND = "w1 w9 w2. " * 30 + "w40 w41. " * 20
THIRD = "w50 w51 w52."
ROOM = 58


@pytest.fixture(scope="module")
def colde(tiny):
    return shake(longdoc.CoLDE(tiny.encoder, chunk_tokens=ROOM + 2, hidden=8, dims=8))


@pytest.fixture(scope="module")
def comparison(colde):
    return colde.explain(FIRST, SECOND, THIRD, names=["one", "two", "three"])


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_parts_are_labelled_and_found_in_the_text(colde, comparison):
    parts = comparison.parts
    assert list(parts.columns) == ["document", "level", "part", "kind", "heading", "tokens", "spans", "text"]
    assert parts["part"].is_unique
    one = parts[parts["document"] == "one"]
    assert one["part"].tolist()[:3] == ["one", "one §1", "one §2"]
    assert set(one["part"][3:]) >= {"one §1.1", "one §1.2", "one §2.1"}
    assert one["heading"].tolist()[:3] == ["", "Abstract", "Methods"]
    texts = dict(zip(["one", "two", "three"], (FIRST, SECOND, THIRD), strict=True))
    for row in parts.itertuples():
        assert row.text == "".join(texts[row.document][first:end] for first, end in row.spans)
        spans = character_spans(colde.tokenizer, texts[row.document])
        assert [(spans[a][0], spans[b - 1][1]) for a, b in row.tokens] == row.spans
    for level in ("section", "chunk"):  # every token once
        own = one[one["level"] == level]
        assert sum(b - a for tokens in own["tokens"] for a, b in tokens) == len(character_spans(colde.tokenizer, FIRST))
    assert parts.set_index("part").loc["one §2", "text"].startswith("Methods")
    assert parts[parts["document"] == "three"]["part"].tolist() == ["three", "three §1", "three §1.1"]


def test_matrices_are_cosines(colde, comparison):
    vectors = colde.encode_docs([FIRST, SECOND, THIRD])
    assert comparison.documents.to_numpy() == pytest.approx(vectors @ vectors.T, abs=1e-5)
    assert list(comparison.documents.index) == list(comparison.documents.columns) == ["one", "two", "three"]
    parts = colde.parts([FIRST, SECOND, THIRD])
    assert comparison.sections.loc["one §2", "two §1"] == pytest.approx(
        cosine(parts[0].sections[1], parts[1].sections[0]), abs=1e-5
    )
    assert comparison.chunks.loc["one §1.2", "three §1.1"] == pytest.approx(
        cosine(parts[0].chunks[1], parts[2].chunks[0]), abs=1e-5
    )
    for level in ("document", "section", "chunk"):
        matrix = comparison.matrix(level)
        assert np.diag(matrix) == pytest.approx(np.ones(len(matrix)))
        assert matrix.to_numpy() == pytest.approx(matrix.to_numpy().T)


def test_attention_stays_within_documents_and_looks_at_the_next_section(comparison):
    attention = comparison.attention
    assert list(attention.index) == comparison.chunks.index.tolist()
    assert attention.to_numpy().sum(axis=1) == pytest.approx(np.ones(len(attention)))
    for row in attention.index:
        for column in attention.columns:
            same_document = row.split()[0] == column.split()[0]
            section, other = (label.split("§")[1].split(".")[0] for label in (row, column))
            looks = same_document and (section != other or row.startswith("three"))
            assert (attention.loc[row, column] > 0) == looks, (row, column)


def test_the_frame_has_one_row_for_each_two_parts(comparison):
    frame = comparison.frame
    assert list(frame.columns) == LEVEL_COLUMNS
    for level in ("document", "section", "chunk"):
        rows, matrix = frame[frame["level"] == level], comparison.matrix(level)
        counts = [sum(label.split()[0] == name for label in matrix.index) for name in ("one", "two", "three")]
        assert len(rows) == counts[0] * counts[1] + counts[0] * counts[2] + counts[1] * counts[2]
        for row in rows.itertuples():
            assert row.similarity == matrix.loc[row.part_a, row.part_b]
    text = comparison.parts.set_index("part")["text"]
    assert (frame["text_b"].to_numpy() == text[frame["part_b"]].to_numpy()).all()


def test_results_are_compared_row_by_row(colde):
    res = as_frame(("q1", "w1 w2.", "d1", SECOND), ("q1", "w1 w2.", "d2", ""), ("d1", FIRST, "d1", SECOND))
    res = res.assign(score=[0.1, 0.2, 0.3])
    explanation = colde.explain(res)
    assert [each.names for each in explanation.comparisons] == [["q1", "d1"], ["q1", "d2"], ["query d1", "d1"]]
    levels = explanation.levels
    assert list(levels.columns) == ["qid", "docno", *LEVEL_COLUMNS]
    scores = colde(res)["score"]
    whole = levels[levels["level"] == "document"]
    assert whole["similarity"].to_numpy() == pytest.approx(scores.to_numpy(), abs=1e-5)
    alone = colde.explain(FIRST, SECOND).chunks.to_numpy()
    assert explanation.comparisons[2].chunks.to_numpy() == pytest.approx(alone, abs=1e-5)
    assert set(explanation.frame["kind"]) == {"chunk"}
    assert len(colde.explain(res[:0]).levels) == 0


def test_limits_of_documents_are_not_those_of_queries(tiny):
    ranker = shake(longdoc.CoLDE(tiny.encoder, chunk_tokens=ROOM + 2, hidden=8, dims=8, max_doc_tokens=70))
    res = as_frame(("q", FIRST, "d", SECOND))
    with pytest.warns(UserWarning, match="max_doc_tokens=70"):
        whole = ranker.explain(res).comparisons[0]
    assert whole.documents.loc["q", "d"] == pytest.approx(ranker(res)["score"].iloc[0], abs=1e-5)
    tokens = whole.parts.set_index("part")["tokens"]
    assert {name: tokens[name][0][1] for name in "qd"} == {"q": len(character_spans(ranker.tokenizer, FIRST)), "d": 70}
    share = 70 / len(character_spans(ranker.tokenizer, SECOND))
    assert whole.read.to_dict() == {"q": 1, "d": pytest.approx(share)}
    assert f"only the first {share:.0%} of d was read" in whole.html()


def test_parts_of_what_is_read_are_those_of_a_text_that_ends_there(tiny):
    """Sections are cut out of what a ranker reads, not out of the whole text."""
    ranker = shake(longdoc.MatchBERT(tiny.encoder, max_doc_tokens=60))
    with pytest.warns(UserWarning, match="max_doc_tokens=60"):
        whole = ranker.explain(FIRST, SECOND).parts.set_index("part")
    end = character_spans(ranker.tokenizer, FIRST)[59, 1]
    alone = ranker.explain(FIRST[:end], SECOND[:9]).parts.set_index("part")
    own = [part for part in whole.index if part.startswith("A")]
    assert {"A §1", "A §2"} <= set(own)
    assert whole.loc[own, "spans"].tolist() == alone.loc[own, "spans"].tolist()


def test_chunks_weigh_what_the_score_loses(colde):
    res = as_frame(("q", FIRST, "d", SECOND))
    frame = colde.explain(res).frame
    score = colde(res)["score"].iloc[0]
    tokens, query = colde.tokenize([SECOND]), colde.encode_queries([FIRST])[0]
    compared = 0
    for ((first, end),), weight in zip(frame["tokens"], frame["weight"], strict=True):
        if end - first < ROOM:  # the last chunk of its section: without its words, the others stay what they were
            compared += 1
            kept = np.r_[0:first, end : len(tokens.values)]
            with torch.inference_mode():
                (without,) = colde.model.encode_documents(tokens.select(kept, np.array([len(kept)])), colde.budget())
            assert weight == pytest.approx(score - float(without.numpy() @ query), abs=1e-5)
    assert compared == 2


@pytest.mark.parametrize("name", ["SMITH", "MatchBERT", "HAN"])
def test_all_dual_encoders_compare_at_three_levels(tiny, name):
    ranker = shake(RANKERS[name](tiny))
    comparison = ranker.explain(FIRST, SECOND, "")
    parts = comparison.parts
    assert set(parts["level"]) == {"document", "section", "chunk"}
    assert set(parts.loc[parts["level"] == "chunk", "kind"]) == {"block" if name == "SMITH" else "stretch"}
    vectors = ranker.encode_docs([FIRST, SECOND, ""])
    assert comparison.documents.to_numpy() == pytest.approx(vectors @ vectors.T, abs=1e-4)
    section = parts.set_index("part").loc["A §1", "text"]
    alone = ranker.encode_docs([section, SECOND])
    assert comparison.sections.loc["A §1", "A §1"] == pytest.approx(1)
    other = parts.set_index("part").loc["B §1", "text"]
    assert comparison.sections.loc["A §1", "B §1"] == pytest.approx(
        float(alone[0] @ ranker.encode_docs([other])[0]), abs=1e-4
    )
    assert comparison.attention is None
    with pytest.raises(ValueError, match="there is no attention"):
        comparison.matrix("attention")
    assert len(Balanced(comparison.html()).tags) > 10


def test_rankers_that_compare_no_parts_of_queries_have_the_same_form(tiny):
    ranker = shake(longdoc.KNRM(tiny.words))
    res = as_frame(("q", "w1 w2", "d", SECOND), ("q", "w1 w2", "e", "w9"))
    explanation = ranker.explain(ranker(res))
    levels = explanation.levels
    assert list(levels.columns) == ["qid", "docno", *LEVEL_COLUMNS]
    parts = levels.groupby("docno", sort=False)["part_b"].agg(list)
    assert parts["d"][:3] == ["d", "d §1", "d §2"] and parts["d"][3].startswith("d stretch ")
    assert parts["e"] == ["e", "e §1", "e stretch 0"]
    windows = levels[levels["level"] == "chunk"]
    assert windows["similarity"].tolist() == explanation.frame["weight"].tolist()
    assert windows["text_b"].tolist() == explanation.frame["text"].tolist()
    assert levels.loc[levels["level"] == "document", "similarity"].tolist() == ranker(res)["score"].tolist()
    assert set(ranker.explain(res).levels["level"]) == {"section", "chunk"}
    assert list(ranker.explain(res[:0]).levels.columns) == list(levels.columns)


def test_a_section_is_as_good_as_its_strongest_window(tiny):
    ranker = shake(RANKERS["MaxP"](tiny))
    res = as_frame(("q", "w1 w2", "d", FIRST))
    levels = ranker.explain(res).levels
    sections, passages = (levels[levels["level"] == level] for level in ("section", "chunk"))
    assert sections["heading_b"].tolist() == ["Abstract", "Methods"]
    assert "".join(sections["text_b"]) == FIRST
    for section in sections.itertuples():
        ((first, end),) = section.spans_b
        own = [each.similarity for each in passages.itertuples() if first <= each.spans_b[0][0] < end]
        assert section.similarity == max(own)
        assert FIRST[first:end] == section.text_b
    assert set(passages["kind"]) == {"passage"}
    assert set(passages["heading_b"]) == {"Abstract", "Methods"}


@pytest.mark.parametrize(
    ("arguments", "names", "error", "message"),
    [
        ([FIRST], None, ValueError, "two documents or more, got 1"),
        ([FIRST, SECOND], ["a"], ValueError, "names must be 2 different ones"),
        ([FIRST, SECOND], ["a", "a"], ValueError, "names must be 2 different ones"),
        ([FIRST, 5], None, TypeError, "document B is int, not text"),
        ([as_frame(("q", "w1", "d", "w2")), FIRST], None, TypeError, "either one frame of results, or two texts"),
    ],
)
def test_bad_arguments(colde, arguments, names, error, message):
    with pytest.raises(error, match=message):
        colde.explain(*arguments, names=names)


def test_levels_are_checked(comparison):
    with pytest.raises(ValueError, match="level must be one of 'document', 'section', 'chunk', 'attention'"):
        comparison.matrix("word")
    with pytest.raises(ValueError, match="lines must be a whole number of at least 1"):
        comparison.html(lines=0)


# What is shown --------------------------------------------------------------------------------------------------------


def test_the_page_shows_all_chunks_and_links_the_strongest(comparison, tmp_path):
    comparison.save(tmp_path / "page.html", "Side by side", lines=3)
    source = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert source == comparison.html("Side by side", lines=3)
    read = Balanced(source.replace("/>", "></line>"))  # of SVG
    chunks = comparison.parts[comparison.parts["level"] == "chunk"]
    for text in chunks["text"]:
        assert text.strip() in read.text
    lines = [attrs for tag, attrs in read.tags if tag == "line"]
    table = comparison.chunks.to_numpy()
    owner = chunks["document"].to_numpy()
    sizes = {name: int((owner == name).sum()) for name in ("one", "two", "three")}
    assert len(lines) == 3 + min(3, sizes["one"] * sizes["three"])
    best = np.unravel_index(table[owner == "one"][:, owner == "two"].argmax(), (sizes["one"], sizes["two"]))
    strongest = max(lines[:3], key=lambda line: float(line["stroke-width"]))
    assert [(float(strongest[y]) - 5) / 10 for y in ("y1", "y2")] == list(best)
    targets = {attrs["id"] for _, attrs in read.tags if "id" in attrs}
    links = {attrs["href"].removeprefix("#") for tag, attrs in read.tags if tag == "a"}
    assert links <= targets
    assert not re.search(r"<script|https?://|<link|<img", source)


def test_what_is_in_documents_stays_text(colde):
    nasty = '<script>alert("1")</script> & w1. ' * 9
    page = colde.explain(nasty, FIRST, names=["<b>", "ok"]).html()
    assert "<script" not in page
    assert "&lt;script&gt;" in page and "&lt;b&gt;" in page


def test_two_comparisons_in_one_notebook_have_targets_of_their_own(colde):
    pages = [colde.explain(FIRST, other)._repr_html_() for other in (SECOND, THIRD)]
    tags = [Balanced(page.replace("/>", "></line>")).tags for page in pages]
    first, second = ({attrs["id"] for _, attrs in each if "id" in attrs} for each in tags)
    assert first and first.isdisjoint(second)


def test_documents_without_text(colde):
    comparison = colde.explain("", FIRST)
    assert comparison.parts["part"].tolist()[:3] == ["A", "A §1", "A §1.1"]
    assert comparison.parts["spans"].iloc[0] == []
    assert "no text" in comparison.html()
    assert np.isfinite(comparison.frame["similarity"]).all()


def test_heat_maps(comparison, tiny):
    pytest.importorskip("matplotlib")
    figure = comparison.plot()
    maps = [ax for ax in figure.axes if ax.images]
    assert [ax.get_title() for ax in maps] == ["documents", "sections", "chunks", "attention of chunks"]
    assert maps[1].images[0].get_array().data == pytest.approx(comparison.sections.to_numpy())
    assert [label.get_text() for label in maps[0].get_yticklabels()] == ["one", "two", "three"]
    other = longdoc.MatchBERT(tiny.encoder).explain(FIRST, SECOND)
    assert len([ax for ax in other.plot().axes if ax.images]) == 3
    with pytest.raises(ValueError, match="level must be one of"):
        comparison.plot(["word"])


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
def test_a_browser_draws_the_page(comparison, tmp_path):
    """There are shaded cells and heads, lines between the columns, and words."""
    matplotlib = pytest.importorskip("matplotlib.image")
    comparison.save(tmp_path / "page.html", lines=40)
    picture = tmp_path / "page.png"
    subprocess.run(
        [shutil.which("chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1100,2400", f"--screenshot={picture}",
         (tmp_path / "page.html").as_uri()],
        check=True, capture_output=True, timeout=120,
    )
    pixels = (matplotlib.imread(picture)[..., :3] * 255).astype(int)
    assert pixels.shape == (2400, 1100, 3)
    orange = (pixels[..., 0] > 200) & (pixels[..., 2] < 190) & (pixels[..., 0] - pixels[..., 2] > 40)
    assert orange.sum() > 2_000  # heads, cells and lines
    middle = orange[:, 490:610]  # between the columns, where only lines are
    heights = np.flatnonzero(middle[:, 60])
    assert len(heights) > 10
    dark = (pixels.sum(axis=2) < 200).sum()
    assert dark > 2_000  # words
