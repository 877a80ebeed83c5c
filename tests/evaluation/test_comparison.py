"""Costs of rankers and published values."""

import numpy as np
import pytest

import pyterrier_longdoc as longdoc
from pyterrier_longdoc.data.published import SOURCES, published
from pyterrier_longdoc.evaluation.comparison import costs, operations
from tests.conftest import DIMS, as_frame, words


@pytest.fixture
def frame():
    generator = np.random.default_rng(0)
    return as_frame(*(("1", "w1 w2 w3", f"d{n}", words(generator, 120)) for n in range(6)))


def test_operations_by_hand(tiny):
    """KNRM: one cosine matrix, 2 · query tokens · document tokens · dims, and 2 · kernels for the score."""
    ranker = longdoc.KNRM(tiny.words)
    row = as_frame(("1", "w1 w2 w3", "d", " ".join(["w5"] * 50)))
    assert operations(ranker, row) == 2 * 3 * 50 * DIMS + 2 * 11
    with pytest.raises(ValueError, match="no results"):
        operations(ranker, row.iloc[:0])


def test_attention_is_counted(tiny):
    """A BERT over n tokens: its linear layers, and 4 · n² · dims of attention in each layer but the last."""
    ranker = longdoc.FirstP(tiny.encoder)
    found = []
    for count in (100, 200):
        row = as_frame(("1", "w1", "d", " ".join(["w5"] * count)))
        found.append((count + 4, operations(ranker, row)))
    (short, few), (long, many) = found
    linear = (many - few * (long / short)) / (4 * DIMS * (long**2 - short * long))
    assert 0.9 < linear < 1.3  # one layer of two in full, and a single token's in the other


def test_costs(tiny, frame):
    rankers = {
        "all": longdoc.MaxP(tiny.encoder, passage_tokens=50, overlap=0),
        "head": longdoc.FirstP(tiny.encoder, max_doc_tokens=30),
        "some": longdoc.IDCM(tiny.encoder, passage_tokens=20, overlap=0, max_passages=2),
    }
    with pytest.warns(UserWarning, match="max_doc_tokens=30"):
        table = costs(rankers, frame, counted=2).set_index("name")
    assert table.loc["all", "read"] == 1
    tokens = rankers["all"].tokenize(list(frame["text"])).lengths
    assert table.loc["head", "read"] == pytest.approx(30 * 6 / tokens.sum())
    assert table.loc["some", "read"] == pytest.approx((2 / -(-tokens // 20)).mean())
    assert table.loc["head", "GFLOP/doc"] < table.loc["some", "GFLOP/doc"] < table.loc["all", "GFLOP/doc"]
    assert (table["docs/s"] > 0).all()
    count = sum(parameter.numel() for parameter in rankers["all"].model.parameters())
    assert table.loc["all", "parameters"] == count / 1e6


def test_published_values_have_sources():
    found = set()
    for year, best in ((2019, 0.738), (2020, 0.6623)):
        table = published(f"irds:msmarco-document/trec-dl-{year}/judged")
        assert table["nDCG@10"].iloc[0] == best
        assert table["nDCG@10"].is_monotonic_decreasing
        assert set(table["source"]) <= set(SOURCES.values())
        found |= set(table["source"])
        assert table["AP"].max() < table["nDCG@10"].max()
    assert found == set(SOURCES.values())
    first = published("irds:msmarco-document/trec-dl-2019").set_index(["name", "source"])
    assert first.loc[("TKL (4,000 words)", SOURCES["TKL"])].tolist() == [0.644, 0.277]  # as the paper's Table 1 says
    assert not first.index.duplicated().any()
    assert list(published("longdoc:python-docs").columns) == ["name", "nDCG@10", "AP", "source"]
    assert not len(published("irds:msmarco-passage/trec-dl-2019"))
