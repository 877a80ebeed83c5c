"""The passage rankers as users see them: zero-shot, trained, with titles, sentences and budgets."""

import warnings

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

import pyterrier_longdoc as longdoc
from pyterrier_longdoc.models.encoder import load_encoder
from pyterrier_longdoc.models.pruning import SELECTORS
from tests.conftest import as_frame, shake, words
from tests.test_contract import assert_close

RANKERS = ["FirstP", "MaxP", "SumP", "AvgP", "KMaxP"]


@pytest.fixture(scope="module")
def classifier(tiny, tmp_path_factory):
    """A cross-encoder of one label, as ``sentence-transformers`` saves them."""
    path = tmp_path_factory.mktemp("classifier")
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(tiny.encoder, num_labels=1)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(path)
    load_encoder(tiny.encoder)[1].save_pretrained(path)
    return str(path)


@pytest.fixture(scope="module")
def predict(classifier):
    """What sentence-transformers makes of pairs of texts."""
    cross = pytest.importorskip("sentence_transformers").CrossEncoder(classifier, device="cpu")

    def score(query, passages):
        pairs = [(query, passage) for passage in passages]
        return cross.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False).tolist()

    return score


@pytest.fixture(scope="module")
def results():
    """Documents of 3 to 260 words of one token each, for two queries."""
    generator = np.random.default_rng(5)
    texts = [" ".join(f"w{n}" for n in generator.integers(0, 60, length)) for length in (3, 60, 61, 130, 260)]
    queries = (("1", "w1 w2"), ("2", "w3 w4 w5"))
    return as_frame(*((qid, query, f"d{n}", text) for qid, query in queries for n, text in enumerate(texts)))


BY_HAND = {
    "MaxP": max, "SumP": sum, "AvgP": np.mean, "KMaxP": lambda scores: np.mean(sorted(scores)[-3:]),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_zero_shot_scores_are_those_of_the_cross_encoder(classifier, predict, results, name):
    """Of passages cut by hand, the tail included."""
    ranker = getattr(longdoc, name)(classifier, passage_tokens=60, overlap=20)
    expected = []
    for row in results.itertuples():
        parts = row.text.split()
        starts = [0, *(start for start in range(40, len(parts), 40) if start + 20 < len(parts))]
        scores = predict(row.query, [" ".join(parts[start : start + 60]) for start in starts])
        expected.append(BY_HAND[name](scores))
    assert_close(ranker(results)["score"], expected)


def test_firstp_reads_the_head(classifier, predict, results):
    ranker = longdoc.FirstP(classifier, max_doc_tokens=50)
    with pytest.warns(UserWarning, match="4 of 5 documents are longer than max_doc_tokens=50"):
        out = ranker(results)
    expected = [predict(row.query, [" ".join(row.text.split()[:50])])[0] for row in results.itertuples()]
    assert_close(out["score"], expected)
    assert longdoc.FirstP(classifier).max_doc_tokens == 448
    assert longdoc.MaxP(classifier).max_doc_tokens is None


def test_rankers_are_what_their_names_say(classifier):
    for name, setting in (("FirstP", "passage_tokens"), ("MaxP", "k"), ("SumP", "aggregation")):
        with pytest.raises(TypeError, match=setting):
            getattr(longdoc, name)(classifier, **{setting: 3})


def test_a_classifier_with_a_seed_is_itself(classifier, tiny):
    """Nothing in it starts at random; an encoder gets a head, and the names tell them apart."""
    assert repr(longdoc.MaxP(classifier)) == repr(longdoc.MaxP(classifier, seed=5))
    assert repr(longdoc.MaxP(tiny.encoder)) != repr(longdoc.MaxP(tiny.encoder, seed=5))
    assert repr(longdoc.MaxP(classifier)) != repr(longdoc.MaxP(classifier, passage_tokens=100))


def test_classifiers_are_saved_and_loaded(classifier, results, tmp_path):
    ranker = longdoc.KMaxP(classifier, passage_tokens=40, overlap=10, k=2)
    ranker.save(tmp_path / "model")
    loaded = longdoc.ReRanker.from_pretrained(tmp_path / "model")
    assert list(loaded(results)["score"]) == list(ranker(results)["score"])
    assert loaded.model.config == ranker.model.config


def test_long_queries_are_an_error_not_a_cut(classifier, results):
    ranker = longdoc.MaxP(classifier, passage_tokens=4_000)
    with pytest.raises(ValueError, match="queries are never cut; lower passage_tokens"):
        ranker(as_frame(("1", "w1 " * 100, "d", "w2 " * 5_000)))


# Explaining -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["MaxP", "SumP"])
def test_passages_explain_the_score(classifier, results, name):
    ranker = getattr(longdoc, name)(classifier, passage_tokens=60, overlap=20)
    out = ranker(results)
    shown = ranker.explain(out).frame
    assert set(shown["kind"]) == {"passage"}
    found = shown.groupby(["qid", "docno"])["weight"].agg("max" if name == "MaxP" else "sum")
    assert_close(found[list(zip(out["qid"], out["docno"], strict=True))], out["score"])
    tails = shown.groupby(["qid", "docno"])["text"].last()
    for row in results.itertuples():
        assert row.text.endswith(tails[row.qid, row.docno])


def test_parade_explains_by_what_would_be_lost(tiny, results):
    ranker = shake(longdoc.PARADE(tiny.encoder, aggregation="mean", passage_tokens=60, overlap=0))
    shown = ranker.explain(ranker(results)).frame
    assert shown["weight"].min() < 0 < shown["weight"].max()
    assert (shown.groupby(["qid", "docno"]).size() == [1, 1, 2, 3, 5] * 2).all()


# Titles ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def titled(results):
    return results.assign(title=["w7 w8", "w9", "", "w11 w12 w13", "w14"] * 2)


def test_titles_go_before_every_passage(classifier, predict, titled):
    ranker = longdoc.MaxP(classifier, title_field="title", passage_tokens=60, overlap=0)
    expected = []
    for row in titled.itertuples():
        parts = row.text.split()
        passages = [" ".join(parts[start : start + 60]) for start in range(0, len(parts), 60)]
        expected.append(max(predict(row.query, [f"{row.title} {passage}".strip() for passage in passages])))
    out = ranker(titled)
    assert_close(out["score"], expected)
    assert list(out.columns) == ["qid", "query", "docno", "text", "title", "score", "rank"]
    shown = ranker.explain(out).frame
    assert shown[shown["docno"] == "d0"]["text"].tolist() == [titled["text"][0]] * 2  # of the text, not of the title
    alone = pd.concat([ranker(titled.iloc[[row]]) for row in range(len(titled))])
    assert_close(alone["score"], expected)


def test_missing_titles_are_empty(classifier, titled):
    ranker = longdoc.MaxP(classifier, title_field="title")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*MaxP")
        out = ranker(titled.assign(title=[None, np.nan, "w1", None, ""] * 2))
    plain = longdoc.MaxP(classifier)(titled)["score"]
    assert_close(out["score"][[0, 1, 3, 4]], plain[[0, 1, 3, 4]])
    assert abs(out["score"][2] - plain[2]) > 1e-4


def test_the_same_text_under_two_titles(classifier, titled):
    out = longdoc.MaxP(classifier, title_field="title")(titled.assign(text="w1 w2 w3"))
    assert out[out["qid"] == "1"]["score"].nunique() == 5


def test_a_missing_column_of_titles(classifier, results):
    ranker = longdoc.MaxP(classifier, title_field="title")
    with pytest.raises(pt.validate.InputValidationError, match="title"):
        ranker(results)
    assert pt.inspect.transformer_inputs(ranker) == [["qid", "docno", "query", "text", "title"]]
    with pytest.raises(TypeError, match="column 'title' holds int"):
        ranker(results.assign(title=3))


def test_titles_are_saved_and_trained_with(tiny, titled, tmp_path):
    qrels = titled[titled["docno"] == "d1"][["qid", "docno"]].assign(label=1)
    ranker = longdoc.MaxP(tiny.encoder, title_field="title", passage_tokens=60, overlap=0)
    ranker.fit(titled, qrels, titled, qrels, epochs=1, verbose=False)
    ranker.save(tmp_path / "model")
    loaded = longdoc.MaxP.from_pretrained(tmp_path / "model")
    assert loaded.title_field == "title"
    assert list(loaded(titled)["score"]) == list(ranker(titled)["score"])
    assert loaded.max_doc_tokens is None
    plain = longdoc.MaxP.from_pretrained(tmp_path / "model", title_field=None)
    assert not np.allclose(plain(titled)["score"], ranker(titled)["score"])


# Sentences ------------------------------------------------------------------------------------------------------------


def test_passages_of_whole_sentences(classifier, predict):
    ranker = longdoc.SumP(classifier, unit="sentence", passage_tokens=8, overlap=0)
    text = "W1 w2 w3. W4 w5 w6. W7 w8 w9 w10 w11. W12."
    frame = as_frame(("1", "w1", "d", text))
    parts = ["W1 w2 w3. W4 w5 w6.", "W7 w8 w9 w10 w11. W12."]
    assert ranker.explain(frame).frame["text"].tolist() == parts
    assert_close(ranker(frame)["score"], [sum(predict("w1", parts))])


# Reading less ---------------------------------------------------------------------------------------------------------


def test_a_budget_is_stated_in_the_output(classifier, results):
    ranker = longdoc.MaxP(classifier, passage_tokens=60, overlap=0, max_passages=2)
    out = ranker(results)
    assert out["passages_read"].tolist() == [1, 1, 1, 2 / 3, 2 / 5] * 2
    assert list(ranker(results.iloc[:0]).columns) == list(out.columns)
    assert pt.inspect.transformer_outputs(ranker, list(results.columns)) == list(out.columns)
    assert ranker.explain(out).frame.groupby(["qid", "docno"]).size().max() == 2
    with pytest.warns(UserWarning, match="max_doc_tokens=120"):
        cut = longdoc.MaxP(classifier, passage_tokens=60, overlap=0, max_passages=1, max_doc_tokens=120)(results)
    assert cut["passages_read"].tolist() == [1, 1, 1 / 2, 1 / 2, 1 / 2] * 2


def test_a_budget_finds_the_relevant_passage(classifier):
    """Placed late in a long document: among two of ten passages that are read is the one with the query's words."""
    filler = ["w30 w31"] * 140
    text = " ".join([*filler[:120], "w1 w2 w3", *filler[120:]])
    ranker = longdoc.MaxP(classifier, passage_tokens=30, overlap=0, max_passages=2)
    shown = ranker.explain(as_frame(("1", "w1 w2 w3", "d", text))).frame
    assert shown["text"].str.contains("w1 w2 w3").any()
    assert len(shown) == 2


def test_a_selector_of_ones_own(classifier, results, monkeypatch, tmp_path):
    monkeypatch.setitem(SELECTORS, "last", lambda query, document, positions: np.arange(len(positions)))
    ranker = longdoc.MaxP(classifier, passage_tokens=60, overlap=0, max_passages=1, selector="last")
    parts = [text.split() for text in results["text"]]
    tails = results.assign(text=[" ".join(each[(len(each) - 1) // 60 * 60 :]) for each in parts])
    assert_close(ranker(results)["score"], longdoc.MaxP(classifier, passage_tokens=60, overlap=0)(tails)["score"])
    ranker.save(tmp_path / "model")
    monkeypatch.delitem(SELECTORS, "last")
    with pytest.raises(ValueError, match=r"'last'.*SELECTORS\[name\] = function"):
        longdoc.MaxP.from_pretrained(tmp_path / "model")


@pytest.mark.parametrize("name", ["MaxP", "PARADE"])
def test_a_score_with_a_budget_depends_on_its_document_alone(tiny, results, name):
    ranker = shake(getattr(longdoc, name)(tiny.encoder, passage_tokens=30, overlap=5, max_passages=3))
    together = ranker(results)["score"]
    alone = [ranker(results.iloc[[row]])["score"].item() for row in range(len(results))]
    assert_close(alone, together)
    assert_close(ranker.apply_attributes(token_budget=50, batch_size=2)(results)["score"], together)


# Training -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def task():
    """The relevant document of a query has forty words in a row that the others lack, anywhere."""
    generator = np.random.default_rng(0)
    rows, qrels = [], []
    for number in range(12):
        for rank in range(4):
            text = words(generator, 100).replace("w20", "w21").split()
            if rank == 0:
                start = int(generator.integers(60))
                text[start : start + 40] = ["w20"] * 40
                qrels.append((f"q{number}", f"q{number}-{rank}", 1))
            rows.append((f"q{number}", f"w{number}", f"q{number}-{rank}", " ".join(text)))
    return as_frame(*rows), pd.DataFrame(qrels, columns=["qid", "docno", "label"])


@pytest.mark.parametrize("name", ["MaxP", "PARADE"])
def test_training_lowers_the_loss(tiny, task, name):
    ranker = getattr(longdoc, name)(tiny.encoder, passage_tokens=40, overlap=0)
    ranker.fit(*task, epochs=16, batch_size=6, lr=3e-3, representation_lr=3e-3, verbose=False)
    losses = ranker.history["loss"]
    assert losses.iloc[-1] < 0.5 * losses.iloc[0]


def test_training_with_sampled_passages_is_repeatable(tiny, task):
    def trained(**settings):
        ranker = longdoc.MaxP(tiny.encoder, passage_tokens=20, overlap=0, train_passages=2)
        ranker.fit(*task, epochs=1, batch_size=6, verbose=False, **settings)
        return [parameter.detach().clone() for parameter in ranker.model.parameters()]

    first, again, other = trained(), trained(), trained(seed=1)
    assert all(torch.equal(*pair) for pair in zip(first, again, strict=True))
    assert not all(torch.equal(*pair) for pair in zip(first, other, strict=True))


def test_a_pretrained_head_is_trained_at_the_encoders_rate(classifier, tiny):
    model = longdoc.MaxP(classifier).model
    assert len(model.representation_parameters()) == len(list(model.parameters()))
    model = longdoc.MaxP(tiny.encoder).model
    assert len(model.representation_parameters()) == len(list(model.parameters())) - 2


def test_trained_rankers_keep_their_settings(tiny, task, tmp_path):
    ranker = longdoc.PARADE(tiny.encoder, aggregation="attention", passage_tokens=40, overlap=0, max_passages=2)
    ranker.fit(*task, epochs=1, output_dir=tmp_path / "run", verbose=False)
    loaded = longdoc.PARADE.from_pretrained(tmp_path / "run" / "best")
    assert loaded.model.config == ranker.model.config
    assert list(loaded(task[0])["score"]) == list(ranker(task[0])["score"])


@pytest.mark.parametrize("change", ["another title", "no titles", "sentences elsewhere"])
def test_a_training_goes_on_with_the_same_titles_and_sentences_only(tiny, tmp_path, change):
    texts = ["w1 w2. W3 w4 w5.", "w6 w7. W8 w9."]
    frame = as_frame(*(("1", "w1", f"d{n}", text) for n, text in enumerate(texts))).assign(title=["w3", "w5"])
    qrels = pd.DataFrame({"qid": ["1"], "docno": ["d1"], "label": [1]})
    settings = {"max_steps": 1, "batch_size": 1, "verbose": False}
    options = {"title_field": "title", "unit": "sentence", "passage_tokens": 20, "overlap": 0}
    longdoc.MaxP(tiny.encoder, **options).fit(frame, qrels, output_dir=tmp_path / "run", **settings)
    longdoc.MaxP(tiny.encoder, **options).fit(frame, qrels, resume=tmp_path / "run", **settings)
    if change == "another title":
        frame = frame.assign(title=["w3", "w6"])
    elif change == "no titles":
        options["title_field"] = None
    else:
        frame = frame.assign(text=[text.replace(". ", ".\n\n") for text in texts])
    with pytest.raises(ValueError, match="not those of then"):
        longdoc.MaxP(tiny.encoder, **options).fit(frame, qrels, resume=tmp_path / "run", **settings)
