"""Every notebook runs from its first cell to its last, without a network, and is committed without outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def ids(path: Path) -> str:
    return path.stem


def outputs(notebook, kind: str) -> list:
    found = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return [output for output in found if kind in output.get("data", {})]


def test_there_are_notebooks():
    assert [path.name for path in NOTEBOOKS if path.name.startswith("01")] == ["01_rerank.ipynb"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=ids)
def test_committed_clean(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    assert all(not cell.outputs and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=ids)
def test_runs(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()  # raises with the cell's traceback
    if path.stem == "01_rerank":
        assert len(outputs(notebook, "image/png")) == 3
        shown = "".join(output["data"]["text/html"] for output in outputs(notebook, "text/html"))
        assert 'class="ld"' in shown and "BM25+TKL" in shown
        assert {each.name for each in tmp_path.iterdir()} == {"python-docs.pisa", "tkl", "tkl.res.gz"}
    if path.stem == "04_colde":
        assert len(outputs(notebook, "image/png")) == 1
        shown = "".join(output["data"]["text/html"] for output in outputs(notebook, "text/html"))
        assert all(name in shown for name in ("MiniLM", "match_similarity", "numbered", 'class="side"', "<svg"))
        assert {each.name for each in tmp_path.iterdir()} == {"colde.html", "documents.jsonl", "pairs.tsv"}
    if path.stem == "05_compare":
        assert len(outputs(notebook, "image/png")) == 3
        shown = "".join(output["data"]["text/html"] for output in outputs(notebook, "text/html"))
        names = ("BM25", "TKL", "MaxP", "PARADE", "IDCM", "QDS-Transformer", "Socialformer", "GFLOP/doc", "chance")
        assert all(name in shown for name in names)
    if path.stem == "03_smith":
        assert len(outputs(notebook, "image/png")) == 1
        shown = "".join(output["data"]["text/html"] for output in outputs(notebook, "text/html"))
        assert all(name in shown for name in ("BM25", "MatchBERT", "word_accuracy", 'class="ld"'))
        assert {each.name for each in tmp_path.iterdir()} == {"halves.pisa", "smith.flex", "smith"}
    if path.stem == "02_socialformer":
        assert len(outputs(notebook, "image/png")) == 3
        shown = "".join(output["data"]["text/html"] for output in outputs(notebook, "text/html"))
        assert 'class="ld"' in shown and "random edges" in shown
        assert {each.name for each in tmp_path.iterdir()} == {"python-docs.pisa", "small-encoder", "socialformer"}
