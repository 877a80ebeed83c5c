"""Explanations: windows come back as the right characters, with weights that mean what they say."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

import pyterrier_longdoc as longdoc
from pyterrier_longdoc.explain import Explanation, WeightedWindow
from pyterrier_longdoc.text.tokens import character_spans
from tests.conftest import as_frame, shake, words

COLUMNS = ["qid", "query", "docno", "window", "kind", "weight", "tokens", "spans", "text"]


class Scripted(longdoc.KNRM):
    """A ranker whose windows are written down: text -> list of windows."""

    script: dict[str, list[WeightedWindow]]

    def evidence(self, queries, documents, pairs):
        return [
            [window._replace(weight=window.weight * (query + 1)) for window in self.script.get(documents[document], [])]
            for query, document in pairs
        ]


@pytest.fixture
def scripted(tiny):
    def make(script, **options):
        ranker = Scripted(tiny.words, **options)
        ranker.script = script
        return ranker

    return make


class Balanced(HTMLParser):
    """Reads a page, checks that its tags match, and collects text and tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open, self.tags, self.text = [], [], ""
        self.feed(page)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data


# The frame ------------------------------------------------------------------------------------------------------------


def test_windows_are_given_as_tokens_characters_and_text(scripted):
    text = "w1 w2, Ünseen w4 — w5 w6"  # tokens: w1 w2 , Ünseen w4 — w5 w6
    ranker = scripted({text: [
        WeightedWindow(0.5, np.array([0, 1]), "region"),
        WeightedWindow(-0.25, np.array([6, 3, 4, -1, -1]), "circle"),
        WeightedWindow(9.0, np.array([-1])),
        WeightedWindow(0.0, np.array([7, 7])),
    ]})
    frame = ranker.explain(as_frame(("q", "w1", "d", text))).frame
    assert list(frame.columns) == COLUMNS
    assert frame.window.tolist() == [0, 1, 3]
    assert frame.kind.tolist() == ["region", "circle", "window"]
    assert frame.weight.tolist() == [0.5, -0.25, 0.0]
    assert frame.tokens.tolist() == [[(0, 2)], [(3, 5), (6, 7)], [(7, 8)]]
    assert frame.spans.tolist() == [[(0, 5)], [(7, 16), (19, 21)], [(22, 24)]]
    assert frame.text.tolist() == ["w1 w2", "Ünseen w4 … w5", "w6"]


def test_rows_keep_their_order_and_share_what_is_known_of_a_pair(scripted):
    ranker = scripted({"w1 w2": [WeightedWindow(1.0, np.array([0])), WeightedWindow(2.0, np.array([1]))],
                       "w3": [WeightedWindow(3.0, np.array([0]))]})
    res = as_frame(("q2", "w9", "b", "w3"), ("q1", "w1", "a", "w1 w2"), ("q2", "w9", "c", "w1 w2"))
    res = res.assign(score=[0.1, 0.2, 0.3], rank=[1, 0, 0], other="x").set_index(pd.Index([5, 5, 5]))
    before = res.copy(deep=True)
    frame = ranker.explain(res).frame
    pd.testing.assert_frame_equal(res, before)
    assert list(frame.columns) == [*COLUMNS, "score", "rank"]
    assert frame.docno.tolist() == ["b", "a", "a", "c", "c"]
    assert frame["score"].tolist() == [0.1, 0.2, 0.2, 0.3, 0.3]
    assert frame["rank"].tolist() == [1, 0, 0, 0, 0]
    # "w9" is the first query met, so its windows weigh once, and those of "w1" twice.
    assert frame.weight.tolist() == [3.0, 2.0, 4.0, 1.0, 2.0]


def test_spans_are_those_of_the_tokens(make_ranker, small):
    ranker = make_ranker()
    text_of = small.set_index("docno")["text"].to_dict()
    frame = ranker.explain(small).frame
    assert set(frame.docno) == set(text_of)
    for row in frame.itertuples():
        text = text_of[row.docno]
        tokens = character_spans(ranker.tokenizer, text)
        assert row.spans == [(tokens[first, 0], tokens[end - 1, 1]) for first, end in row.tokens]
        assert row.text == " \N{HORIZONTAL ELLIPSIS} ".join(text[first:end] for first, end in row.spans)


def test_every_ranker_explains_any_frame(make_ranker, frame):
    ranker = make_ranker()
    explanation = ranker.explain(frame)
    assert set(explanation.frame.docno) == set(frame[frame.text != ""].docno)
    assert np.isfinite(explanation.frame.weight).all()
    kinds = {"SMASH": {"sentence", "paragraph"}, "Socialformer": {"passage", "circle"}}
    assert set(explanation.frame.kind) == (kinds.get(make_ranker.name) or {ranker.window_kind})


def test_an_explanation_does_not_depend_on_the_other_rows(make_ranker, small):
    ranker = make_ranker()
    whole = ranker.explain(small).frame
    for row in (0, len(small) - 1):
        alone = ranker.explain(small.iloc[[row]]).frame
        same = whole[(whole.qid == small.qid.iloc[row]) & (whole.docno == small.docno.iloc[row])].reset_index(drop=True)
        assert alone.spans.tolist() == same.spans.tolist()
        assert alone.weight.tolist() == pytest.approx(same.weight.tolist(), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("saturation", ["salience", "embedding", "idf", "log", "linear"])
def test_weights_of_tkl_add_up_to_the_score(tiny, frame, saturation):
    ranker = shake(longdoc.TKL(tiny.words, heads=4, corpus=tiny.corpus, saturation=saturation))
    scores = ranker(frame).set_index(["qid", "docno"])["score"]
    added = ranker.explain(frame).frame.groupby(["qid", "docno"]).weight.sum().reindex(scores.index, fill_value=0.0)
    assert added.to_numpy() == pytest.approx(scores.to_numpy(), rel=1e-5, abs=1e-5)


def test_the_first_region_of_tkl_is_the_peak_of_its_topography(tiny, documents):
    ranker = shake(longdoc.TKL(tiny.words, heads=4, corpus=tiny.corpus))
    text = documents[15]
    topography = ranker.topography("w1 w2", text)
    assert list(topography.columns) == ["region", "start_token", "start_char", "score"]
    assert topography.start_token.tolist() == list(range(0, 700, 2))
    assert topography.start_char.tolist() == character_spans(ranker.tokenizer, text)[::2, 0].tolist()
    frame = ranker.explain(as_frame(("q", "w1 w2", "d", text))).frame
    assert frame.tokens[0][0][0] == topography.start_token[topography.score.idxmax()]
    assert len(frame) == 3
    starts = sorted(tokens[0][0] for tokens in frame.tokens)
    assert np.diff(starts).min() >= 30


def test_topography_of_nothing_and_of_no_text(tiny):
    ranker = longdoc.TKL(tiny.words, heads=4)
    assert len(ranker.topography("w1", "")) == 0
    assert (ranker.topography("", "w1 w2 w3").score == 0).all()
    with pytest.raises(TypeError, match="text must be a string, got float"):
        ranker.topography("w1", float("nan"))


def test_without_a_stretch_of_text_knrm_scores_as_its_weight_says(tiny):
    ranker = shake(longdoc.KNRM(tiny.words))
    generator = np.random.default_rng(3)
    parts = [words(generator, 30) for _ in range(3)]
    res = as_frame(("q", "w1 w2", "d", " ".join(parts)), ("q", "w1 w2", "without", " ".join([parts[0], parts[2]])))
    full, without = ranker(res)["score"]
    assert ranker.explain(res[:1]).frame.weight[1] == pytest.approx(full - without, rel=1e-3, abs=1e-6)


def test_only_what_was_read_is_explained(tiny):
    ranker = longdoc.KNRM(tiny.words, max_doc_tokens=45)
    with pytest.warns(UserWarning, match="1 of 1 documents are longer than max_doc_tokens=45"):
        explanation = ranker.explain(as_frame(("q", "w1", "d", "w1 " * 100)))
    assert explanation.frame.tokens.tolist() == [[(0, 30)], [(30, 45)]]
    assert explanation.frame.spans.tolist() == [[(0, 89)], [(90, 134)]]
    assert "not read" in explanation.html()


def test_documents_shorter_than_a_region(make_ranker):
    frame = make_ranker().explain(as_frame(("q", "w1", "d", "w1"))).frame
    assert set(frame.text) == {"w1"}
    assert len(frame) == frame.kind.nunique()


def test_empty_and_missing_documents_have_no_windows(make_ranker):
    ranker = make_ranker()
    res = as_frame(("q", "w1", "empty", ""), ("q", "w1", "blank", " \n"), ("q", "w1", "missing", float("nan")))
    with pytest.warns(UserWarning, match="1 of 3 rows have no 'text'"):
        explanation = ranker.explain(res)
    assert len(explanation.frame) == 0 and list(explanation.frame.columns) == COLUMNS
    assert Balanced(explanation.html()).text.count("nothing was read") == 3


def test_empty_frames(make_ranker):
    explanation = make_ranker().explain(as_frame())
    assert list(explanation.frame.columns) == COLUMNS
    assert explanation.frame.weight.dtype == np.float64 and explanation.frame.window.dtype == np.int64
    assert "No documents to explain" in explanation._repr_html_()


def test_other_text_fields(tiny):
    res = as_frame(("q", "w1", "d", "w1 w2")).rename(columns={"text": "body"})
    assert longdoc.KNRM(tiny.words, text_field="body").explain(res).frame.text.tolist() == ["w1 w2"]


def test_missing_columns_and_queries(make_ranker):
    ranker = make_ranker()
    with pytest.raises(pt.validate.InputValidationError, match=re.escape(repr(ranker))):
        ranker.explain(pd.DataFrame({"qid": ["q"], "query": ["w1"], "docno": ["d"]}))
    with pytest.raises(ValueError, match="1 of 1 rows have no query"):
        ranker.explain(as_frame(("q", None, "d", "w1")))


def test_a_ranker_without_evidence(tiny):
    knrm = longdoc.KNRM(tiny.words)
    plain = longdoc.ReRanker.from_model(knrm.model, knrm.tokenizer, model_name="plain")
    with pytest.raises(TypeError, match="ReRanker has no method evidence"):
        plain.explain(as_frame(("q", "w1", "d", "w1")))


# HTML -----------------------------------------------------------------------------------------------------------------


def shown(explanation: Explanation, **limits: int | None) -> Balanced:
    return Balanced(explanation.html(**limits))


def test_everything_of_the_user_is_escaped(scripted):
    nasty = "<script>alert('w1')</script> & \"w2\""
    ranker = scripted({nasty: [WeightedWindow(1.0, np.arange(3), "<b>kind")]})
    explanation = ranker.explain(as_frame((nasty, nasty, f"{nasty}.html", nasty)))
    for page in (explanation._repr_html_(), explanation.html(title=nasty)):
        assert "<script" not in page and "<b>" not in page
    read = shown(explanation)
    assert read.text.count(nasty) == 4  # query, qid, docno, text
    assert {"script", "b"}.isdisjoint(tag for tag, _ in read.tags)


def test_pages_need_nothing_from_elsewhere(make_ranker, small):
    page = make_ranker().explain(small).html()
    assert page.startswith("<!doctype html>")
    read = Balanced(page)
    targets = {attrs["id"] for _, attrs in read.tags if "id" in attrs}
    links = {attrs["href"] for _, attrs in read.tags if "href" in attrs}
    assert links and {link.removeprefix("#") for link in links} <= targets
    assert not any("src" in attrs for _, attrs in read.tags) and "url(" not in page


def test_highlights_cover_the_windows_and_nothing_is_lost(scripted):
    text = " ".join(f"w{number}" for _ in range(3) for number in range(200))
    windows = [WeightedWindow(1.0, np.arange(10, 20)), WeightedWindow(0.5, np.arange(15, 30)),
               WeightedWindow(0.1, np.array([300, 301, 320]))]
    explanation = scripted({text: windows}).explain(as_frame(("q", "w1", "d", text)))
    page = explanation.html()
    assert text in Balanced(re.sub(r"<summary>.*?</summary>", "", page)).text
    assert page.count("<details>") == 2  # between the windows, and behind the last one
    marked = re.findall(r"<mark [^>]*>(.*?)</mark>", page)
    first, end = character_spans_of(explanation, 0, 1)
    assert "".join(marked[:3]) == text[first:end]
    assert " ".join(marked[3:]) == "w100 w101 w120"


def character_spans_of(explanation: Explanation, *windows: int) -> tuple[int, int]:
    spans = [span for window in windows for span in explanation.frame.spans[window]]
    return min(first for first, _ in spans), max(end for _, end in spans)


def test_strength_and_sign_of_weights_are_seen(scripted):
    text = "w1 w2 w3"
    windows = [WeightedWindow(weight, np.array([place])) for place, weight in enumerate([2.0, -2.0, 0.5])]
    page = scripted({text: windows}).explain(as_frame(("q", "w1", "d", text))).html()
    looks = re.findall(r'<mark class="mark( neg)?" style="--a:([.\d]+)" title="([^"]*)"', page)
    assert [look[0] for look in looks] == ["", " neg", ""]
    assert looks[0][1] == looks[1][1] > looks[2][1]
    assert looks[1][2] == "window 1: weight -2, tokens 1–1"


def test_where_signs_mean_nothing_the_highest_is_the_strongest(scripted):
    text = "w1 w2 w3"
    windows = [WeightedWindow(weight, np.array([place])) for place, weight in enumerate([-5.0, -3.0, -4.0])]
    ranker = scripted({text: windows})
    ranker.weight_signed = False
    page = ranker.explain(as_frame(("q", "w1", "d", text))).html()
    assert 'class="mark neg"' not in page
    strength = [float(value) for value in re.findall(r'<mark [^>]*style="--a:([.\d]+)"', page)]
    assert strength[1] > strength[2] > strength[0]


def test_what_is_not_shown_is_counted(scripted):
    ranker = scripted({"w1 w2 w3": [WeightedWindow(1.0, np.array([place])) for place in range(3)]})
    res = as_frame(*((f"q{q}", f"w{q}", f"d{q}-{d}", "w1 w2 w3") for q in range(5) for d in range(7)))
    explanation = ranker.explain(res.assign(rank=[6 - row % 7 for row in range(35)]))
    text = shown(explanation).text
    assert "2 more queries are not shown" in text
    assert text.count("2 more documents of this query are not shown") == 3
    assert "d0-6" in text and "d0-1" not in text  # those of the best rank
    everything = shown(explanation, queries=None, documents=None, windows=1).text
    assert "not shown" not in everything and "d4-0" in everything
    assert everything.count("and 2 weaker") == 35
    with pytest.raises(ValueError, match="documents must be a whole number of at least 1, got 0"):
        explanation.html(documents=0)


def test_files_and_reprs(scripted, tmp_path):
    ranker = scripted({"w1 ü": [WeightedWindow(1.0, np.array([0]))]})
    explanation = ranker.explain(as_frame(("q", "w1", "d", "w1 ü")))
    explanation.save(tmp_path / "page.html", title="Looked at", queries=1)
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == explanation.html("Looked at", queries=1)
    assert repr(explanation) == f"<Explanation of 1 documents by {ranker!r}: 1 windows>"
    assert len(explanation) == 1


def test_jump_targets_of_two_explanations_differ(scripted):
    ranker = scripted({"w1": [WeightedWindow(1.0, np.array([0]))]})
    pages = [ranker.explain(as_frame(("q", query, "d", "w1")))._repr_html_() for query in ("w1", "w2")]
    first, second = ({attrs["id"] for _, attrs in Balanced(page).tags if "id" in attrs} for page in pages)
    assert first and second and first.isdisjoint(second)
