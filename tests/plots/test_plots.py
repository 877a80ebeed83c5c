"""Figures: what is drawn is what was computed; how it looks is for people to judge."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest

import pyterrier_longdoc as longdoc
from pyterrier_longdoc import plots
from pyterrier_longdoc.evaluation.analysis import length_bias, region_positions
from tests.conftest import as_frame, shake
from tests.evaluation.test_analysis import LENGTHS, QRELS, SHORT, regions

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def legend(ax) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_topography(tiny, documents, tmp_path):
    tkl = shake(longdoc.TKL(tiny.words, heads=4, corpus=tiny.corpus))
    text = documents[13]
    ax = plots.plot_topography(tkl, "w1 w2", text)
    expected = tkl.topography("w1 w2", text)
    assert ax.lines[0].get_xdata().tolist() == expected.start_token.tolist()
    assert ax.lines[0].get_ydata().tolist() == expected.score.tolist()
    spans = [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in ax.patches]
    assert spans == [tokens[0] for tokens in tkl.explain(as_frame(("q", "w1 w2", "d", text))).frame.tokens]
    assert [label[:3] for label in legend(ax)] == ["1st", "2nd", "3rd"]
    assert ax.get_xlabel() and ax.get_ylabel() and ax.get_title() == "w1 w2"
    ax.figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1_000


def test_topography_of_the_wrong_things(tiny):
    with pytest.raises(TypeError, match="only TKL has one"):
        plots.plot_topography(longdoc.KNRM(tiny.words), "w1", "w2")
    with pytest.raises(ValueError, match="no tokens"):
        plots.plot_topography(longdoc.TKL(tiny.words, heads=4), "w1", "")


def test_dollars_in_a_query_are_no_formula(tiny):
    ax = plots.plot_topography(longdoc.TKL(tiny.words, heads=4), "from $5 to $x_{", "w1 $a_ w2 $")
    ax.figure.canvas.draw()


def test_region_positions():
    frame = regions((0, 0), (0, 2), (0, 700), (1, 6), (3, 900))
    ax = plots.plot_region_positions(frame, bins_per_doubling=1)
    table = region_positions(frame)
    first = table[(table["window"] == 0) & (table["regions"] > 0)]
    assert ax.lines[0].get_ydata().tolist() == first["density"].tolist()
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert legend(ax) == [
        "1st region (33.3% after token 500)", "2nd region (0.0% after token 500)", "4th region (100.0% after token 500)"
    ]
    with pytest.raises(ValueError, match="no windows to draw"):
        plots.plot_region_positions(pd.DataFrame({"window": [], "tokens": []}))


def test_length_bias_is_drawn_into_given_axes():
    import matplotlib.pyplot as plt

    mine = plt.subplots()[1]
    ax = plots.plot_length_bias({"short": SHORT, "same": SHORT}, QRELS, LENGTHS, k=2, bins=2, ax=mine)
    assert ax is mine
    assert legend(ax) == ["relevant", "short, top 2", "same, top 2"]
    table = length_bias({"short": SHORT}, QRELS, LENGTHS, k=2, bins=2)
    for line, name in zip(ax.lines, ["relevant", "short"], strict=False):
        assert line.get_ydata().tolist() == table[table.series == name].probability.tolist()
        assert line.get_xdata().tolist() == [20, 45]


def test_effectiveness_against_cost():
    rows = {"name": ["BM25", "MaxP", "IDCM"], "nDCG@10": [0.4, 0.6, 0.58], "GFLOP/doc": [float("nan"), 30.0, 8.0]}
    ax = plots.plot_cost(pd.DataFrame(rows))
    assert ax.collections[0].get_offsets().tolist() == [[30, 0.6], [8, 0.58]]
    assert [text.get_text() for text in ax.texts] == ["MaxP", "IDCM"]
    assert legend(ax) == ["BM25"]
    assert ax.lines[0].get_ydata() == [0.4, 0.4]
    assert ax.get_xscale() == "log"
    with pytest.raises(ValueError, match="no column 'AP'"):
        plots.plot_cost(pd.DataFrame(rows), "AP")
    with pytest.raises(ValueError, match="no row of the table has a cost"):
        plots.plot_cost(pd.DataFrame(rows).head(1))


def test_labels_of_cost_do_not_lie_on_each_other():
    names = ["BM25", "MaxP", "SumP", "AvgP", "PARADE", "Longformer", "QDS-Transformer"]
    values, costs = [0.4, 0.5, 0.501, 0.502, 0.5, 0.6, 0.1], [None, 20, 20, 20.1, 21, 20, 20]
    ax = plots.plot_cost(pd.DataFrame({"name": names, "nDCG@10": values, "GFLOP/doc": costs}))
    ax.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert len(boxes) == 6
    assert not any(one.overlaps(two) for number, one in enumerate(boxes) for two in boxes[:number])


@pytest.mark.parametrize("values", [(np.nan, np.nan), (np.inf, np.inf), (0.5, 0.5)])
def test_points_that_are_not_drawn_have_labels_that_stay(values):
    import matplotlib.pyplot as plt

    figure = plt.figure(layout="constrained").subfigures(1, 2)[0]
    ax = figure.subplots()
    own = ax.text(1, 0.2, "mine")
    ax.set_ylim(0, 0.3)
    table = pd.DataFrame({"name": ["a", "b"], "nDCG@10": values, "GFLOP/doc": [1.0, 1.0]})
    assert [text.get_text() for text in plots.plot_cost(table, ax=ax).texts] == ["mine", "a", "b"]
    assert own.get_position() == (1, 0.2)


def test_many_lines_are_told_apart():
    rows = [(limit, f"r{number}", 0.1 * number) for number in range(21) for limit in (200, 400)]
    ax = plots.plot_length_limits(pd.DataFrame(rows, columns=["limit", "name", "nDCG@10"]))
    assert len({(line.get_color(), line.get_linestyle(), line.get_marker()) for line in ax.lines}) == 21
    ax.figure.draw_without_rendering()
    assert ax.get_legend().get_window_extent().x0 >= ax.get_window_extent().x1


def test_the_probe():
    rows = [(0, "MaxP", 0.9), (0, "chance", 0.3), (600, "MaxP", 0.8), (600, "chance", 0.3)]
    ax = plots.plot_by_position(pd.DataFrame(rows, columns=["before", "name", "RR"]))
    assert legend(ax) == ["MaxP", "chance"]
    assert ax.lines[0].get_ydata().tolist() == [0.9, 0.8]
    assert ax.lines[1].get_linestyle() == "--"
    with pytest.raises(ValueError, match="no column 'RR'"):
        plots.plot_by_position(pd.DataFrame({"before": [1], "name": ["a"]}))


def test_length_limits():
    rows = [(200, "TK", 0.4), (200, "TKL", 0.5), (2_000, "TK", 0.4), (2_000, "TKL", 0.6)]
    ax = plots.plot_length_limits(pd.DataFrame(rows, columns=["limit", "name", "AP"]), "AP")
    assert legend(ax) == ["TK", "TKL"]
    assert ax.lines[1].get_xdata().tolist() == [200, 2_000]
    assert ax.get_xscale() == "log"


def test_without_matplotlib_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        plots.plot_region_positions(regions((0, 1)))
