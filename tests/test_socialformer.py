"""Socialformer as a transformer: ablations, term weights, training, graphs, explanations and figures."""

import numpy as np
import pandas as pd
import pytest
import torch

import pyterrier_longdoc as longdoc
from pyterrier_longdoc.graph import PATTERNS
from pyterrier_longdoc.plots.socialformer import plot_circle_sizes, plot_patterns
from tests.conftest import as_frame, shake, words

SMALL = {"passage_tokens": 30, "n_circles": 4, "max_nodes": 20}
TEXT = " ".join(f"w{n % 60}" for n in range(90))


@pytest.fixture
def make(tiny):
    def make(**options):
        return longdoc.Socialformer(tiny.encoder, **{**SMALL, **options})

    return make


@pytest.fixture
def some() -> pd.DataFrame:
    generator = np.random.default_rng(3)
    return as_frame(*(("1", "w1 w2 w5", f"d{n}", words(generator, 20 * n)) for n in range(6)))


# Settings -------------------------------------------------------------------------------------------------------------


def test_the_papers_settings_are_the_defaults(tiny):
    ranker = longdoc.Socialformer(tiny.encoder)
    config = ranker.model.config
    assert (config.passage_tokens, config.n_circles, config.max_nodes, config.sparsity) == (128, 16, 128, 0.93)
    assert (config.partition, config.aggregation) == ("node", "max")
    assert (config.exchange_heads, config.exchange_hidden) == (4, 512)
    assert config.patterns == PATTERNS
    assert ranker.max_doc_tokens == 2048


def test_every_ablation_is_one_argument(make, some):
    ablations = [{"patterns": [name for name in PATTERNS if name != off]} for off in PATTERNS]
    ablations += [{"patterns": []}, {"n_circles": 0}, {"exchange": False}, {"partition": "edge"}, {"sparsity": 0.8},
                  {"central": "node"}, {"smoothing": "identity"}, {"centrality": "cosine"}, {"aggregation": "mean"}]
    ablations = [{"smoothing": "sqrt", **options} for options in ablations]  # or centrality is that of a few tokens
    plain = shake(make(smoothing="sqrt"))(some)["score"]
    for options in ablations:
        scores = shake(make(**options))(some)["score"]
        assert np.isfinite(scores).all()
        assert not np.allclose(scores[3:], plain[3:], atol=1e-6), options


def test_the_frozen_copy_is_only_there_where_it_is_needed(make):
    sizes = {
        name: sum(parameter.numel() for parameter in make(**options).model.social.parameters())
        for name, options in {
            "attention": {}, "cosine": {"centrality": "cosine"}, "off": {"patterns": PATTERNS[:3]},
            "passages": {"n_circles": 0},
        }.items()
    }
    assert sizes["attention"] > sizes["cosine"] > 0
    assert sizes["off"] == sizes["passages"] == 0


def test_other_encoders_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no encoder here"):
        longdoc.Socialformer(str(tmp_path / "nothing"))


def test_unknown_settings_raise(make):
    with pytest.raises(TypeError, match="partitions"):
        make(partitions="edge")
    for wrong in ("static_distance", None, 5):
        with pytest.raises(ValueError, match="patterns must be a list of names"):
            make(patterns=wrong)
    for corpus in ("one text", [None], [{"text": None}]):
        with pytest.raises(TypeError, match="corpus must be texts"):
            make(corpus=corpus)


def test_numbers_of_numpy_are_saved_as_pythons(make, some, tmp_path):
    """Such as those of a grid search."""
    ranker = make(n_circles=np.int64(2), seed=np.int32(7), sparsity=np.float32(0.9), exchange_heads=np.uint8(2))
    ranker.save(tmp_path / "saved")
    loaded = longdoc.Socialformer.from_pretrained(tmp_path / "saved")
    assert loaded.model.config == ranker.model.config
    assert loaded(some)["score"].tolist() == ranker(some)["score"].tolist()


def test_a_ranker_made_in_inference_mode(make, some):
    """Its tensors count no versions."""
    expected = make()(some)["score"].tolist()
    with torch.inference_mode():
        ranker = make()
        assert ranker(some)["score"].tolist() == expected
    assert ranker(some)["score"].tolist() == expected
    ranker.model.social.set_document_frequency(np.arange(len(ranker.model.social.idf)), 500)
    assert ranker(some)["score"].tolist() != expected


def test_weights_are_read_to_where_rounding_is_the_same(tmp_path):
    """Views of a file lie at any address, what is loaded from a checkpoint of ours at multiples of 64 bytes."""
    ranker = longdoc.Socialformer(max_doc_tokens=60)
    assert {parameter.data_ptr() % 64 for parameter in ranker.model.parameters()} == {0}
    frame = as_frame(("1", "files", "d", "open and read files " * 9), ("1", "files", "e", "write lines"))
    ranker.save(tmp_path / "saved")
    loaded = longdoc.Socialformer.from_pretrained(tmp_path / "saved")
    assert loaded(frame)["score"].tolist() == ranker(frame)["score"].tolist()


def test_texts_are_tokenised_once(make, some, monkeypatch):
    ranker, seen = make(), []
    tokenize = longdoc.ReRanker.tokenize
    monkeypatch.setattr(longdoc.ReRanker, "tokenize", lambda self, texts: seen.extend(texts) or tokenize(self, texts))
    first = ranker(some)["score"]
    assert sorted(seen) == sorted({*some["text"], "w1 w2 w5"})
    assert ranker(some.iloc[::-1])["score"].tolist() == first.tolist()[::-1]
    assert len(seen) == 7


# Centrality and term weights ------------------------------------------------------------------------------------------


def test_a_centrality_function_of_the_users_own(make, some, tmp_path):
    def ends(query, document):
        return np.linspace(0, 1, len(document)) ** 8

    ranker = shake(make(centrality=ends, patterns=["dynamic_centrality"], sparsity=0.98))
    circles = ranker.social_graph("w1", TEXT).circles
    assert np.mean(np.concatenate(circles)) > 60  # of 90 tokens
    ranker.save(tmp_path / "own")
    loaded = longdoc.Socialformer.from_pretrained(tmp_path / "own", centrality=ends)
    assert loaded(some)["score"].tolist() == ranker(some)["score"].tolist()
    with pytest.raises(ValueError, match="give it again"):
        longdoc.Socialformer.from_pretrained(tmp_path / "own")(some)
    make().save(tmp_path / "plain")
    with pytest.raises(ValueError, match="not a function of the user's"):
        longdoc.Socialformer.from_pretrained(tmp_path / "plain", centrality=ends)


def test_document_frequencies_come_from_a_corpus_and_are_saved(make, tiny, tmp_path):
    ranker = make(corpus=[{"text": text} for text in tiny.corpus], max_doc_tokens=100)
    counts = [sum(f" {word} " in f" {text} " for text in tiny.corpus) for word in ("w3", "w59")]
    ids = ranker.tokenize(["w3 w59"]).values
    assert len(ids) == 2
    expected = np.log1p(len(tiny.corpus) / np.maximum(counts, 1))
    assert ranker.model.social.idf[ids.astype(int)].tolist() == pytest.approx(expected.tolist())
    ranker.save(tmp_path / "saved")
    loaded = longdoc.ReRanker.from_pretrained(tmp_path / "saved")
    assert torch.equal(loaded.model.social.idf, ranker.model.social.idf)
    assert loaded.max_doc_tokens == 100
    assert [c.tolist() for c in loaded.social_graph("w1", TEXT).circles] == [
        c.tolist() for c in ranker.social_graph("w1", TEXT).circles
    ]


def _training(generator):
    rows, labels = [], []
    for q in range(4):
        for n in range(9):
            text = words(generator, 15 + n) + (" w55" * 15 if n == 0 else "")
            rows.append((f"q{q}", f"w{q + 20} w1", f"d{q}-{n}", text))
        labels.append((f"q{q}", f"d{q}-0", 1))
    return as_frame(*rows), pd.DataFrame(labels, columns=["qid", "docno", "label"])


def test_fit_has_the_papers_settings(make, monkeypatch):
    seen = {}

    def stop(ranker, task, *args, **options):
        seen["settings"] = task.settings
        return ranker

    monkeypatch.setattr("pyterrier_longdoc.training.fitting.train", stop)
    ranker = make()
    ranker.fit(*_training(np.random.default_rng(0)))
    settings = seen["settings"]
    assert (settings.loss, settings.group_size, settings.batch_size, settings.epochs) == ("listwise", 8, 8, 1)
    assert settings.lr == settings.representation_lr == 1e-5
    assert ranker.model.social.has_idf  # of the training documents
    ranker = make()
    with pytest.raises(TypeError, match="no setting 'learning_rate'"):
        ranker.fit(*_training(np.random.default_rng(0)), learning_rate=1)
    assert not ranker.model.social.has_idf


def test_it_learns_and_its_graphs_stay(make):
    res, qrels = _training(np.random.default_rng(0))
    ranker = make(seed=1, aggregation="mean")
    ranker.model.social.set_document_frequency(np.ones(len(ranker.model.social.idf)), 10)
    frozen = [parameter.clone() for parameter in ranker.model.social.parameters()]
    graph = ranker.social_graph("w20 w1", TEXT)
    ranker.fit(res, qrels, lr=5e-3, representation_lr=5e-3, epochs=20, batch_size=4, clip_norm=1.0, verbose=False)
    losses = ranker.history["loss"]
    assert losses.iloc[-4:].mean() < 0.5 * losses.iloc[:4].mean()
    assert all(torch.equal(*pair) for pair in zip(frozen, ranker.model.social.parameters(), strict=True))
    again = ranker.social_graph("w20 w1", TEXT)
    assert [c.tolist() for c in graph.circles] == [c.tolist() for c in again.circles]


# Graphs and explanations ----------------------------------------------------------------------------------------------


def test_the_graph_that_is_shown_is_the_one_that_is_read(make):
    ranker = shake(make(sparsity=0.9))
    shown = ranker.social_graph("w1 w2", TEXT)
    assert shown.adjacency.n == shown.weights.n == 90
    assert shown.adjacency.density == pytest.approx(0.1, abs=0.02)
    frame = ranker.explain(as_frame(("1", "w1 w2", "d", TEXT))).frame
    assert frame["kind"].tolist() == ["passage"] * 3 + ["circle"] * 4
    covered = [{t for a, b in spans for t in range(a, b)} for spans in frame["tokens"]]
    assert covered[3:] == [set(circle.tolist()) for circle in shown.circles]
    with pytest.raises(TypeError, match="text must be a string, got NoneType"):
        ranker.social_graph("w1", None)


@pytest.mark.parametrize("aggregation", ["max", "mean"])
def test_explanations_add_up_to_the_score(make, some, aggregation):
    ranker = shake(make(aggregation=aggregation))
    added = ranker.explain(some).frame.groupby("docno")["weight"].sum()
    scores = ranker(some).set_index("docno")["score"][added.index] - ranker.model.head[-1].bias.item()
    assert added.tolist() == pytest.approx(scores.tolist(), abs=1e-5)


def test_what_never_won_the_maximum_adds_nothing(make):
    """Equal passages without exchange and circles: the states are equal, so each gets its share; a winner takes all."""
    ranker = make(n_circles=0, exchange=False, passage_tokens=12, patterns=[])
    frame = ranker.explain(as_frame(("1", "w1", "d", "w3 w4 w5 w6 w7 w8 w9 w10 w11 w12 w13 w14 " * 3))).frame
    assert len(frame) == 3
    assert frame["weight"].nunique() == 1


# Figures --------------------------------------------------------------------------------------------------------------

plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def _no_window():
    plt.switch_backend("Agg")
    yield
    plt.close("all")


def test_figure_4_draws_a_matrix_for_each_pattern(make):
    figure = plot_patterns(make(), "w1 w2", TEXT)
    assert [ax.get_title() for ax in figure.axes] == [
        "static distance", "static centrality", "dynamic distance", "dynamic centrality", "mixture"
    ]
    for ax in figure.axes:
        (image,) = ax.images
        drawn = np.asarray(image.get_array()).astype(bool)
        assert drawn.shape == (90, 90)
        assert drawn.mean() == pytest.approx(0.1, abs=0.025)
    near, far = (np.asarray(figure.axes[0].images[0].get_array()).astype(bool).diagonal(k).mean() for k in (1, 60))
    assert near > far
    assert [ax.get_title() for ax in plot_patterns(make(patterns=[]), "w1", TEXT).axes] == ["random edges"]


def test_figure_5_draws_circle_sizes(make):
    figure = plot_circle_sizes(make(max_nodes=128), "w1 w2", TEXT, n_circles=12)
    assert [ax.get_title() for ax in figure.axes] == ["edge partition", "node partition"]
    for ax in figure.axes:
        assert [line.get_label() for line in ax.lines] == [f"sparsity {each}" for each in (0.99, 0.97, 0.95, 0.93)]
        means = [line.get_ydata().mean() for line in ax.lines]
        assert means == sorted(means)  # denser graphs, larger circles
        assert all(len(line.get_xdata()) == 12 for line in ax.lines)
    edge, node = (sum(line.get_ydata().sum() for line in ax.lines) for ax in figure.axes)
    assert edge >= node


def test_figures_refuse_what_they_cannot_draw(make, tiny):
    for plot in (plot_patterns, plot_circle_sizes):
        with pytest.raises(ValueError, match="no tokens"):
            plot(make(), "w1", "")
        with pytest.raises(TypeError, match="no social graph"):
            plot(longdoc.KNRM(tiny.words), "w1", "w2")
